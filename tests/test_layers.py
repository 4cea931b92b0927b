"""The layer table holds, in `make test` too, and a new backend cannot be forgotten in its contracts."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any


def _contracts(root: Path) -> dict[str, dict[str, Any]]:
    with (root / "pyproject.toml").open("rb") as file:
        return {
            contract["id"]: contract for contract in tomllib.load(file)["tool"]["importlinter"]["contracts"]
        }


def test_every_import_keeps_to_the_layers(root: Path) -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"]
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    done = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_backend_is_named_in_the_contracts_that_keep_it_apart(root: Path) -> None:
    backends = {
        f"tailrace.{layer}.{folder.name}"
        for layer in ("capture", "sinks")
        for folder in (root / "src/tailrace" / layer).iterdir()
        if (folder / "__init__.py").exists()
    }
    contracts = _contracts(root)
    assert set(contracts["backends"]["forbidden_modules"]) == backends
    assert set(contracts["surfaces"]["forbidden_modules"]) == backends


def test_every_package_has_its_place_in_the_layers(root: Path) -> None:
    packages = {
        folder.name for folder in (root / "src/tailrace").iterdir() if (folder / "__init__.py").exists()
    }
    placed = {
        name.strip(" ()").removeprefix("tailrace.")
        for layer in _contracts(root)["layers"]["layers"]
        for name in layer.split("|")
    }
    assert packages <= placed

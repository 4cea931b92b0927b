"""Settings of a SQLite capture, and the URLs they are written as.

`sqlite:relative.db`, `sqlite:/absolute.db` and `sqlite:///absolute.db` are understood, percent-encoding
decoded. The file must exist and be a database: a capture never creates one.
"""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, fields
from pathlib import Path
from urllib.parse import quote as percent
from urllib.parse import unquote

from tailrace.model.errors import ConfigError, StateUnreadable
from tailrace.model.table import SIMPLE_TYPES, ColumnType

_NUMBERS = ("busy_timeout", "timer", "slice_rows", "slice_bytes", "prune_seconds")


@dataclass(frozen=True)
class SqliteConfig:
    """`types` overrides column types: `"table.column"` → a name of `ColumnType`."""

    path: Path
    busy_timeout: float = 5.0
    timer: float = 0.2
    slice_rows: int = 20_000
    slice_bytes: int = 16 * 1024 * 1024
    prune_seconds: float = 5.0
    types: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path).absolute())
        for name in ("busy_timeout", "prune_seconds"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must not be negative")
        if self.timer <= 0:
            raise ConfigError("timer must be more than 0 seconds")
        if self.slice_rows < 2:
            raise ConfigError("slice_rows must be at least 2: an update is two log rows")
        if self.slice_bytes < 1:
            raise ConfigError("slice_bytes must be at least 1")
        for column, name in self.types.items():
            try:
                _ = ColumnType(name).arrow
            except StateUnreadable:
                raise ConfigError(
                    f"types: {column} has the unknown type {name!r}",
                    remedy=f"use one of {', '.join(SIMPLE_TYPES)}, decimal(10,2)",
                ) from None

    @classmethod
    def from_url(cls, url: str, options: Mapping[str, object] | None = None) -> SqliteConfig:
        """The settings a URL and its options mean; ConfigError for a file that is no database."""
        path = _path(url)
        check_database(path)
        known = {f.name for f in fields(cls)} - {"path"}
        values: dict[str, object] = {}
        for name, value in (options or {}).items():
            if name not in known:
                raise ConfigError(
                    f"unknown option {name!r} of a sqlite source",
                    remedy=f"use one of {', '.join(sorted(known))}",
                )
            values[name] = _number(name, value) if name in _NUMBERS else _types(value)
        return cls(path, **values)  # type: ignore[arg-type]


def _path(url: str) -> Path:
    form = "write sqlite:relative.db, sqlite:/absolute.db or sqlite:///absolute.db"
    scheme, colon, rest = url.partition(":")
    if not colon or scheme.lower() != "sqlite":
        raise ConfigError("not a sqlite URL", remedy=form)
    if rest.startswith("//"):
        if not rest.startswith("///"):
            raise ConfigError("a sqlite URL names a file and has no host", remedy=form)
        rest = rest[2:]
    if "?" in rest or "#" in rest:
        raise ConfigError(
            "a sqlite URL has no query and no fragment",
            remedy="write %3F for a ? and %23 for a # in the path",
        )
    decoded = unquote(rest)
    if not decoded or "\0" in decoded or decoded == ":memory:":
        raise ConfigError("a sqlite URL must name a file", remedy=form)
    if decoded.startswith("//"):
        # As other tools write an absolute path; to SQLite what follows two slashes would be a host.
        decoded = "/" + decoded.lstrip("/")
    return Path(decoded).absolute()


def check_file(path: Path) -> None:
    """ConfigError unless there is a file at `path` that could be a database.

    The file is never opened here, only by SQLite: closing any other descriptor of it drops the locks that all
    connections of this process hold on it, and another process may then take the WAL away under them.
    """
    if any("\ud800" <= sign <= "\udfff" for sign in str(path)):
        raise ConfigError(
            f"the path {str(path)!a} is not valid UTF-8", remedy="rename the file or its directory"
        )
    try:
        status = path.stat()
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}", remedy="correct the path in the URL") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be reached: {error.strerror}") from None
    if stat.S_ISDIR(status.st_mode):
        raise ConfigError(f"{path} is a directory", remedy="name the database file in it")
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"{path} is not a regular file")
    if status.st_size == 0:
        raise ConfigError(f"{path} is empty", remedy="correct the path in the URL")


def check_database(path: Path) -> None:
    """ConfigError unless the file is a database that can be opened."""
    check_file(path)
    try:
        with closing(sqlite3.connect(f"file:{percent(str(path))}?mode=ro", uri=True)) as connection:
            connection.execute("PRAGMA schema_version")
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
            raise ConfigError(
                f"{path} is not a SQLite database, or is encrypted", remedy="correct the path in the URL"
            ) from None
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            raise ConfigError(
                f"{path} cannot be opened",
                remedy=f"give this user read permission to it and to {path.parent}",
            ) from None
        # A lock or another passing fault is for the connection that is really needed.


def _number(name: str, value: object) -> float | int:
    kind = int if name.startswith("slice_") else float
    if not isinstance(value, bool) and isinstance(value, int | float | str):
        try:
            return kind(value)
        except ValueError:
            pass
    raise ConfigError(f"option {name} must be a number")


def _types(value: object) -> dict[str, str]:
    if isinstance(value, Mapping) and all(
        isinstance(k, str) and isinstance(v, str) for k, v in value.items()
    ):
        return dict(value)
    raise ConfigError('option types must be a table of "table.column" = "type"')

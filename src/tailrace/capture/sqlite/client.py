"""Connections to the database file, and SQLite's errors in Tailrace's words.

Readers open the file read-only (`kept.py`, `stream.py`) and hold a read transaction only for as long as they
read. The only writers are setup and teardown (they may wait for the lock, `writing`) and the cursor's flush
(`acknowledge.py`), which never waits and never checkpoints, so that an application's write does not fail
because of us.
"""

from __future__ import annotations

import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal
from urllib.parse import quote as percent

from tailrace.capture.sqlite.config import SqliteConfig, check_file
from tailrace.model.errors import (
    ConfigError,
    DataError,
    NeedsOperator,
    SetupMissing,
    TailraceError,
    Transient,
)

IDENTITY_REMEDY = "point the pipeline at the database its state belongs to, or give it a new state directory"
_FLOOR = (3, 38, 0)
Mode = Literal["ro", "rw"]


def connect(config: SqliteConfig, mode: Mode, *, timeout: float | None = None) -> sqlite3.Connection:
    """A connection in autocommit mode; ConfigError where there is no such database."""
    if sqlite3.sqlite_version_info < _FLOOR:
        raise ConfigError(f"SQLite {sqlite3.sqlite_version} is too old: 3.38 is the oldest that works")
    check_file(config.path)
    with translated(config):
        # Other threads close connections (a generator may be collected anywhere), they never share one.
        connection = sqlite3.connect(
            f"file:{percent(str(config.path))}?mode={mode}",
            uri=True,
            timeout=config.busy_timeout if timeout is None else timeout,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            connection.execute("PRAGMA wal_autocheckpoint=0")
            if mode == "rw":
                # In WAL mode NORMAL keeps the file consistent without a sync while the lock is held.
                connection.execute("PRAGMA synchronous=NORMAL")
        except BaseException:
            connection.close()
            raise
    return connection


@contextmanager
def writing(config: SqliteConfig) -> Iterator[sqlite3.Connection]:
    """A short-lived connection inside one write transaction: all of it or nothing."""
    connection = connect(config, "rw")
    try:
        with translated(config):
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
    finally:
        connection.close()


@contextmanager
def translated(config: SqliteConfig) -> Iterator[None]:
    """Raise SQLite's errors as Tailrace's, naming the file."""
    try:
        yield
    except sqlite3.Error as error:
        if "UTF-8" in str(error):
            # Python quotes the text it could not decode.
            raise DataError(f"{config.path} has a name that is not valid UTF-8") from None
        raise translate(error, config) from error


def is_busy(error: sqlite3.Error) -> bool:
    """Does another connection hold the lock that was asked for?"""
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def translate(error: sqlite3.Error, config: SqliteConfig) -> TailraceError:
    """The error of our tree that a SQLite error means."""
    path, code = config.path, (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
    if is_busy(error):
        return Transient(f"{path} is locked by another connection")
    if code == sqlite3.SQLITE_READONLY:
        return ConfigError(
            f"{path} cannot be written: the file or its directory is read-only",
            remedy=f"give this user write permission to {path} and to {path.parent}",
        )
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return ConfigError(
            f"{path} cannot be opened",
            remedy=f"give this user read and write permission to {path} and to {path.parent}",
        )
    if code == sqlite3.SQLITE_NOTADB:
        return ConfigError(
            f"{path} is not a SQLite database, or is encrypted", remedy="correct the path in the URL"
        )
    if code == sqlite3.SQLITE_CORRUPT:
        return NeedsOperator(f"{path} is damaged", remedy=f"sqlite3 {path} '.recover' and restore the result")
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PROTOCOL):
        return Transient(f"{path}: {error}")
    if "no such table: _tailrace_" in str(error) or "no such table: main._tailrace_" in str(error):
        return SetupMissing(f"{path} was torn down while it was read", remedy="tailrace setup")
    return NeedsOperator(f"{path}: {error}", remedy="tailrace check")


def is_wal(connection: sqlite3.Connection) -> bool:
    """Is the database in WAL mode?"""
    return str(connection.execute("PRAGMA main.journal_mode").fetchone()[0]).lower() == "wal"


def wal_remedy(config: SqliteConfig) -> str:
    """The command that puts the database in WAL mode, for good."""
    return f"sqlite3 {shlex.quote(str(config.path))} 'PRAGMA journal_mode=WAL'"


def require_wal(connection: sqlite3.Connection, config: SqliteConfig) -> None:
    """ConfigError unless readers and writers can work side by side."""
    if not is_wal(connection):
        raise ConfigError(f"{config.path} is not in WAL mode, which capture needs", remedy=wal_remedy(config))

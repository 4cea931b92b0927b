"""The store's file: opened, laid out, and SQLite's errors in Tailrace's words.

    documents                 a view for anyone to read: the documents of the generations that are shown
    tailrace_indexes          the indexes, and the generation of each that readers see
    tailrace_generations      the generations of all indexes: number, name, mapping, marker
    tailrace_leaving          the numbers of generations that are being removed
    tailrace_documents        the documents of all generations
    tailrace_entries          every id that was written to a generation: its number for the search, its
                              version, and since when it is deleted
    tailrace_search_<number>  the words of one generation (FTS5), by the numbers of the entries
    tailrace_texts_<number>   what those words are of: all strings in a document, by the same numbers

The texts are kept beside the documents, not read from them again: the search must be told the very text that
it was given when a document goes, and another version of SQLite may read a string in JSON differently.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import quote as percent

from tailrace.model.errors import ConfigError, NeedsOperator, TailraceError, Transient
from tailrace.sinks.sqlite.config import SqliteStoreConfig

FORMAT = 2
_FLOOR = (3, 38, 0)
_LAYOUT = """
CREATE TABLE tailrace_indexes (
    name TEXT NOT NULL PRIMARY KEY, shown INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE tailrace_generations (
    number INTEGER PRIMARY KEY AUTOINCREMENT, "index" TEXT NOT NULL, name TEXT NOT NULL,
    mapping TEXT NOT NULL, marker TEXT, UNIQUE ("index", name)
);
CREATE TABLE tailrace_leaving (number INTEGER PRIMARY KEY);
CREATE TABLE tailrace_documents (
    generation INTEGER NOT NULL, id TEXT NOT NULL, version INTEGER NOT NULL, document TEXT NOT NULL,
    PRIMARY KEY (generation, id)
) WITHOUT ROWID;
CREATE VIEW documents ("index", id, version, document) AS
    SELECT i.name, d.id, d.version, d.document FROM tailrace_indexes AS i
    CROSS JOIN tailrace_documents AS d ON d.generation = i.shown;
CREATE TABLE tailrace_entries (
    number INTEGER PRIMARY KEY, generation INTEGER NOT NULL, id TEXT NOT NULL, version INTEGER NOT NULL,
    removed REAL, UNIQUE (generation, id)
);
CREATE INDEX tailrace_removed ON tailrace_entries (removed) WHERE removed IS NOT NULL;
"""


def words_of(document: str) -> str:
    """SQL: every string in a document, at any depth, on a line of its own.

    SQLite ends a string at an escaped NUL; a space in its place keeps the rest of it. The replacement cannot
    make the JSON invalid: after a backslash of its own, `u0000` is plain text, and so is `u0020`.
    """
    return (
        "(SELECT group_concat(atom, char(10)) FROM "
        f"json_tree(replace({document}, '\\u0000', '\\u0020')) WHERE type = 'text')"
    )


def connect(config: SqliteStoreConfig, mode: Literal["ro", "rw"]) -> sqlite3.Connection:
    """A connection in autocommit mode. To write, the file is created and laid out where it is new."""
    if sqlite3.sqlite_version_info < _FLOOR:
        raise ConfigError(f"SQLite {sqlite3.sqlite_version} is too old: 3.38 is the oldest that works")
    path = Path(config.path)
    if not path.parent.is_dir():
        raise ConfigError(
            f"the directory of the document store {path} does not exist",
            remedy="create it, or correct the sink's path",
        )
    if mode == "ro" and not path.is_file():
        raise ConfigError(
            f"there is no document store {path} yet", remedy="run the pipeline that writes it: tailrace run"
        )
    with translated(config):
        connection = sqlite3.connect(
            f"file:{percent(str(path))}?mode={'ro' if mode == 'ro' else 'rwc'}",
            uri=True,
            timeout=config.busy_timeout,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            require_search(connection)
            if mode == "rw":
                connection.execute("PRAGMA temp_store=MEMORY")
                # FULL: what was committed is on the disk, which is what a flush promises.
                connection.execute("PRAGMA synchronous=FULL")
                _lay_out(connection, config)
            elif _format(connection, config) == 0:
                raise _foreign(config)
        except BaseException:
            connection.close()
            raise
    return connection


def require_search(connection: sqlite3.Connection) -> None:
    """ConfigError unless the library can search."""
    if "fts5" not in modules(connection):
        raise ConfigError(
            f"the SQLite library of this Python ({sqlite3.sqlite_version}) lacks FTS5, the full-text search",
            remedy="use a Python whose sqlite3 module has FTS5; those of Debian, python.org and conda do",
        )


def modules(connection: sqlite3.Connection) -> set[str]:
    """The virtual tables that the library knows."""
    return {str(name) for (name,) in connection.execute("SELECT name FROM pragma_module_list")}


@contextmanager
def writing(connection: sqlite3.Connection, config: SqliteStoreConfig) -> Iterator[None]:
    """One write transaction: all of it or nothing."""
    with translated(config):
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


@contextmanager
def reading(connection: sqlite3.Connection, config: SqliteStoreConfig) -> Iterator[None]:
    """Several reads of one moment, whoever writes or publishes meanwhile."""
    with translated(config):
        connection.execute("BEGIN")
        try:
            yield
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def _lay_out(connection: sqlite3.Connection, config: SqliteStoreConfig) -> None:
    if _format(connection, config) == FORMAT:
        return
    _use_wal(connection, config)
    with writing(connection, config):
        if _format(connection, config) == FORMAT:
            return
        for statement in _LAYOUT.split(";\n"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version={FORMAT}")


def _use_wal(connection: sqlite3.Connection, config: SqliteStoreConfig) -> None:
    # SQLite does not wait here for another process that does the same.
    deadline = time.monotonic() + config.busy_timeout
    while True:
        try:
            mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
            continue
        if str(mode).lower() != "wal":
            raise ConfigError(
                f"the document store {config.path} cannot be in WAL mode on this filesystem",
                remedy="put it on a disk of this machine",
            )
        return


def _format(connection: sqlite3.Connection, config: SqliteStoreConfig) -> int:
    """The format of the file, 0 where it is new; ConfigError where it is something else."""
    # In this order: another process may lay it out between the two, and then both are there.
    names = {str(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if names and "tailrace_indexes" not in names:
        raise _foreign(config)
    if found > FORMAT:
        raise ConfigError(
            f"the document store {config.path} was written by a newer Tailrace",
            remedy="upgrade tailrace to at least the version that wrote it",
        )
    if names and found < FORMAT:
        raise ConfigError(
            f"the document store {config.path} is of format {found}, which this Tailrace no longer reads",
            remedy=f"remove {config.path}; the pipeline fills it again",
        )
    return found


def _foreign(config: SqliteStoreConfig) -> ConfigError:
    return ConfigError(
        f"{config.path} is not a document store", remedy="give the sink a path of a file of its own"
    )


@contextmanager
def translated(config: SqliteStoreConfig) -> Iterator[None]:
    """Raise SQLite's errors as Tailrace's, naming the file."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translate(error, config) from error


def _is_busy(error: sqlite3.Error) -> bool:
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _code(error: sqlite3.Error) -> int:
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def _translate(error: sqlite3.Error, config: SqliteStoreConfig) -> TailraceError:
    path, code = Path(config.path), _code(error)
    if _is_busy(error):
        return Transient(f"the document store {path} is locked by another writer")
    if code in (
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_AUTH,
    ):
        return ConfigError(
            f"the document store {path} cannot be opened or written",
            remedy=f"give this user read and write permission to {path} and to {path.parent}",
        )
    if code == sqlite3.SQLITE_NOTADB:
        return _foreign(config)
    if code == sqlite3.SQLITE_CORRUPT:
        return NeedsOperator(
            f"the document store {path} is damaged",
            remedy="remove the file; the pipeline fills it again",
        )
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PROTOCOL):
        return Transient(f"the document store {path}: {error}")
    # The message may quote what was searched for, never a document.
    return NeedsOperator(f"the document store {path}: {error}", remedy="remove the file to fill it again")

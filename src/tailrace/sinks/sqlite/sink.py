"""The document store as a sink.

A piece of a batch is first put into a temporary table of the connection, with the words of its documents: the
dear part of the work, done while others may write. Then one short transaction compares versions and changes
documents, entries and words together, by one statement each.

Generations that have left are removed beside that: for a moment by who made them leave, and then a little
with every write, by whichever process it is.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from tailrace.model.errors import ConfigError, NeedsOperator, Transient, UsageError
from tailrace.sinks.contract import (
    DocumentBatch,
    DocumentReport,
    DocumentSink,
    Held,
    Hit,
    Marker,
    Rejection,
)
from tailrace.sinks.sqlite import generations, search
from tailrace.sinks.sqlite.client import connect, reading, translated, words_of, writing
from tailrace.sinks.sqlite.config import SqliteStoreConfig
from tailrace.sinks.sqlite.encode import NOT_JSON, pieces, sift

# Connections of a parent process: closing one here could take the file from under it.
_INHERITED: list[sqlite3.Connection] = []
_PRUNE_EVERY = 60.0
_PRUNE_ROWS = 10_000
# How long a call may spend on removing what has left, and a transaction of it: others wait for that one.
_REMOVE_FOR = 2.0
_REMOVE_BESIDE_WRITES = 0.05
_REMOVE_PIECE = 0.05
_REMOVE_ROWS, _REMOVE_MAX_ROWS = 500, 20_000
_RETIRE_ROWS = 10_000
# A writer spends at most a tenth of its time on it.
_REMOVE_SHARE = 10
_INCOMING = (
    "CREATE TABLE IF NOT EXISTS temp.incoming (id TEXT NOT NULL, document TEXT, words TEXT, valid INTEGER)"
)
_PUT = f"INSERT INTO temp.incoming SELECT ?1, ?2, {words_of('?2')}, 1"
_PUT_VALID = (
    f"INSERT INTO temp.incoming SELECT ?1, ?2, CASE WHEN json_valid(?2) THEN {words_of('?2')} END,"
    " ?2 IS NULL OR json_valid(?2)"
)
_STALE = (
    "DELETE FROM temp.incoming WHERE EXISTS (SELECT 1 FROM tailrace_entries AS e"
    " WHERE e.generation = :number AND e.id = incoming.id AND e.version > :version)"
)
_ENTER = (
    "INSERT INTO tailrace_entries (generation, id, version, removed)"
    " SELECT :number, id, :version, CASE WHEN document IS NULL THEN :now END FROM temp.incoming WHERE true"
    " ON CONFLICT (generation, id) DO UPDATE SET version = excluded.version, removed = excluded.removed"
)
_NUMBERED = (
    "temp.incoming AS i CROSS JOIN tailrace_entries AS e ON e.generation = :number AND e.id = i.id"
    " {kind} JOIN {texts} AS t ON t.number = e.number"
)
# A document whose strings are as they were keeps its words.
_WORDS_OUT = (
    f"INSERT INTO {{search}} ({{search}}, rowid, words) SELECT 'delete', t.number, t.words FROM {_NUMBERED}"
    " WHERE t.words IS NOT i.words"
)
_WORDS_IN = (
    f"INSERT INTO {{search}} (rowid, words) SELECT e.number, i.words FROM {_NUMBERED}"
    " WHERE t.words IS NOT i.words AND i.words IS NOT NULL"
)
_TEXTS = (
    f"INSERT INTO {{texts}} (number, words) SELECT e.number, i.words FROM {_NUMBERED}"
    " WHERE t.words IS NOT i.words ON CONFLICT (number) DO UPDATE SET words = excluded.words"
)
_NO_TEXTS = (
    "DELETE FROM {texts} WHERE number IN (SELECT e.number FROM temp.incoming AS i"
    " CROSS JOIN tailrace_entries AS e ON e.generation = :number AND e.id = i.id WHERE i.words IS NULL)"
)
_REMOVE = (
    "DELETE FROM tailrace_documents WHERE generation = :number"
    " AND id IN (SELECT id FROM temp.incoming WHERE document IS NULL)"
)
_STORE = (
    "INSERT INTO tailrace_documents (generation, id, version, document)"
    " SELECT :number, id, :version, document FROM temp.incoming WHERE document IS NOT NULL"
    " ON CONFLICT (generation, id) DO UPDATE SET version = excluded.version, document = excluded.document"
)
_PRUNE = (
    "DELETE FROM tailrace_entries WHERE number IN"
    " (SELECT number FROM tailrace_entries WHERE removed < ? LIMIT ?)"
)


class SqliteSink(DocumentSink):
    """Documents in a SQLite file, and the search over them.

    A write is durable when it returns. Deletes are remembered for `remember_deletes` seconds. With `local`
    the driver alone writes: where executors are on other machines, each would have a file of its own.
    """

    def __init__(self, config: SqliteStoreConfig, *, local: bool = False) -> None:
        self._config = config
        self.local = local
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int, int] | None = None
        self._pruned = 0.0
        self._remove_again = 0.0

    def __reduce__(self) -> tuple[Any, ...]:
        return (SqliteSink, (self._config,))

    def ensure(self, index: str, generation: str, mapping: Mapping[str, Any]) -> None:
        for name in (index, generation):
            if not name or "\0" in name:
                raise ConfigError(
                    "an index of the document store and its generation need names, without NUL characters"
                )
        text = json.dumps(mapping, ensure_ascii=False, sort_keys=True)
        connection = self._open()
        with reading(connection, self._config):
            settled = generations.is_settled(connection, index, generation, text)
        if not settled:
            with writing(connection, self._config):
                generations.settle(connection, index, generation, text)
        self._remove(connection, _REMOVE_FOR)

    def seeded(self, index: str) -> Marker | None:
        connection = self._open()
        with translated(self._config):
            marker = generations.marker_of(connection, index)
        return None if marker is None else Marker(**json.loads(marker))

    def holds(self, index: str, generation: str) -> bool:
        connection = self._open()
        with translated(self._config):
            return generations.number_of(connection, index, generation) is not None

    def look(self, index: str) -> Held:
        if not Path(self._config.path).is_file():
            return Held()
        connection = connect(self._config, "ro")
        try:
            with reading(connection, self._config):
                found = generations.look(connection, index)
        finally:
            connection.close()
        if found is None:
            return Held()
        name, marker, documents = found
        return Held(name, None if marker is None else Marker(**json.loads(marker)), documents)

    def publish(self, index: str, marker: Marker) -> None:
        connection = self._open()
        with writing(connection, self._config):
            number = self._number(connection, index, marker.generation)
            generations.show(connection, index, number, json.dumps(asdict(marker)))
        self._remove(connection, _REMOVE_FOR)

    def drop(self, index: str) -> None:
        connection = self._open()
        with writing(connection, self._config):
            generations.forget(connection, index)
        self._remove(connection, _REMOVE_FOR)

    def write(self, batch: DocumentBatch) -> DocumentReport:
        if not len(batch):
            return DocumentReport()
        connection = self._open()
        with translated(self._config):
            number = self._number(connection, batch.index, batch.generation)
        ids, documents, rejected = sift(batch, self._config.max_document_bytes)
        report = DocumentReport(rejected=tuple(rejected))
        for rows in pieces(ids, documents, self._config.piece_documents, self._config.piece_bytes):
            report += self._write_piece(connection, number, batch, rows)
        if time.monotonic() >= self._remove_again:
            self._remove(connection, _REMOVE_BESIDE_WRITES)
        return report

    def _write_piece(
        self,
        connection: sqlite3.Connection,
        number: int,
        batch: DocumentBatch,
        rows: Sequence[tuple[str, str | None]],
    ) -> DocumentReport:
        about = {"number": number, "version": batch.version, "now": time.time()}
        names = {"search": generations.search_table(number), "texts": generations.texts_table(number)}
        try:
            with translated(self._config):
                rejected = _put(connection, rows)
            with writing(connection, self._config):
                if not generations.exists(connection, number):
                    raise self._gone(connection, batch.index, batch.generation)
                stale = connection.execute(_STALE, about).rowcount
                deleted, written = connection.execute(
                    "SELECT count(*) FILTER (WHERE document IS NULL), count(document) FROM temp.incoming"
                ).fetchone()
                connection.execute(_WORDS_OUT.format(kind="CROSS", **names), about)
                connection.execute(_ENTER, about)
                connection.execute(_WORDS_IN.format(kind="LEFT", **names), about)
                connection.execute(_TEXTS.format(kind="LEFT", **names), about)
                connection.execute(_NO_TEXTS.format(**names), about)
                connection.execute(_REMOVE, about)
                connection.execute(_STORE, about)
                self._prune(connection)
        finally:
            connection.execute("DELETE FROM temp.incoming")
        return DocumentReport(written, deleted, stale, rejected)

    def _prune(self, connection: sqlite3.Connection) -> None:
        """Forget deletes that are beyond the horizon, now and then and some at a time."""
        if time.monotonic() - self._pruned < _PRUNE_EVERY:
            return
        horizon = time.time() - self._config.remember_deletes
        if connection.execute(_PRUNE, (horizon, _PRUNE_ROWS)).rowcount < _PRUNE_ROWS:
            self._pruned = time.monotonic()

    def _remove(self, connection: sqlite3.Connection, seconds: float) -> None:
        """Remove what has left, for about so long, in short transactions with room for others between."""
        begun = time.monotonic()
        rows = _REMOVE_ROWS
        with translated(self._config):
            while generations.leaving(connection) is not None:
                try:
                    with writing(connection, self._config):
                        started = time.monotonic()
                        generations.remove_some(connection, rows)
                except Transient:
                    # The disk is full, or others are busy: what was asked for is done, this can wait.
                    break
                took = time.monotonic() - started
                if time.monotonic() + 2 * took > begun + seconds:
                    break
                if took < _REMOVE_PIECE / 2:
                    rows = min(rows * 2, _REMOVE_MAX_ROWS)
                elif took > _REMOVE_PIECE:
                    rows = max(rows // 2, 1)
                time.sleep(took)
        self._remove_again = time.monotonic() + _REMOVE_SHARE * (time.monotonic() - begun)

    def retire(self, index: str, generation: str, version: int) -> int:
        connection = self._open()
        with translated(self._config):
            number = self._number(connection, index, generation)
        deleted, last = 0, ""
        while True:
            # From where the last piece ended: all of them together read the generation once.
            with translated(self._config):
                old = connection.execute(
                    "SELECT id FROM tailrace_documents WHERE generation = ? AND id >= ? AND version < ?"
                    " ORDER BY id LIMIT ?",
                    (number, last, version, _RETIRE_ROWS),
                ).fetchall()
            if not old:
                return deleted
            ids = pa.array([id_ for (id_,) in old], pa.string())
            nothing = pa.nulls(len(ids), pa.string())
            deleted += self.write(DocumentBatch(index, generation, ids, nothing, version)).deleted
            last = old[-1][0]

    def flush(self) -> None:
        """Every write has committed already."""

    def read(self, index: str, generation: str | None = None) -> pa.Table:
        connection = self._open()
        with reading(connection, self._config):
            number = self._shown(connection, index)
            if generation is not None:
                number = generations.number_of(connection, index, generation) or 0
                if not number:
                    raise UsageError(f"index {index} has no generation {generation} in {self._config.path}")
            rows = connection.execute(
                "SELECT id, version, document FROM tailrace_documents WHERE generation = ? ORDER BY id",
                (number,),
            ).fetchall()
        columns: list[Sequence[Any]] = list(zip(*rows, strict=True)) or [(), (), ()]
        types = (pa.string(), pa.int64(), pa.large_string())
        arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
        return pa.table(arrays, names=["id", "version", "document"])

    def search(self, index: str, words: Sequence[str], *, limit: int = 10, raw: bool = False) -> list[Hit]:
        """The best documents that have all the words, best first. `raw`: one expression of FTS5's own.

        Reads only, also where no pipeline has made the store yet.
        """
        connection = connect(self._config, "ro")
        try:
            with reading(connection, self._config):
                number = self._shown(connection, index)
                return search.find(connection, number, search.expression(words, raw=raw), limit)
        finally:
            connection.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._file = None

    def _open(self) -> sqlite3.Connection:
        """The connection, opened anew in another process, or where the file was removed or replaced."""
        if self._connection is not None and self._file == _identity(self._config.path):
            return self._connection
        if self._connection is not None and self._file is not None and self._file[0] != os.getpid():
            _INHERITED.append(self._connection)
            self._connection = None
        self.close()
        self._connection = connect(self._config, "rw")
        with translated(self._config):
            self._connection.execute(_INCOMING)
        self._file = _identity(self._config.path)
        return self._connection

    def _number(self, connection: sqlite3.Connection, index: str, generation: str) -> int:
        number = generations.number_of(connection, index, generation)
        if number is None:
            raise self._gone(connection, index, generation)
        return number

    def _gone(self, connection: sqlite3.Connection, index: str, generation: str) -> NeedsOperator:
        if generations.shown(connection, index) is None:
            return NeedsOperator(
                f"the document store {self._config.path} has no index {index}: was the file replaced?",
                remedy="start the pipeline again; it fills the index anew",
            )
        return NeedsOperator(
            f"generation {generation} of index {index} is gone: another filling has taken its place",
            remedy="start the pipeline again; it goes on with the filling that there is, or begins a new one",
            place=self._config.path,
        )

    def _shown(self, connection: sqlite3.Connection, index: str) -> int:
        number = generations.shown(connection, index)
        if number is None:
            names = generations.names(connection)
            raise UsageError(
                f"there is no index {index} in the document store {self._config.path}",
                remedy=f"its indexes: {', '.join(names)}" if names else "it has no index yet: tailrace run",
            )
        return number


def _put(connection: sqlite3.Connection, rows: Sequence[tuple[str, str | None]]) -> tuple[Rejection, ...]:
    """Put the rows into the temporary table; those that are not JSON are rejected."""
    try:
        _fill(connection, _PUT, rows)
    except sqlite3.OperationalError as error:
        if "malformed JSON" not in str(error):
            raise
    else:
        return ()
    # Rare, so the check is not paid for otherwise.
    _fill(connection, _PUT_VALID, rows)
    bad = connection.execute("SELECT id FROM temp.incoming WHERE NOT valid").fetchall()
    connection.execute("DELETE FROM temp.incoming WHERE NOT valid")
    return tuple(Rejection(id_, NOT_JSON) for (id_,) in bad)


def _fill(connection: sqlite3.Connection, statement: str, rows: Sequence[tuple[str, str | None]]) -> None:
    connection.execute("BEGIN")
    try:
        connection.executemany(statement, rows)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _identity(path: str) -> tuple[int, int, int] | None:
    """Which file this is, to this process."""
    try:
        found = os.stat(path)  # noqa: PTH116 - once a call, and a Path costs more than the question
    except OSError:
        return None
    return os.getpid(), found.st_dev, found.st_ino

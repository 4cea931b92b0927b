"""A source that a test writes to and a capture that streams it, and changes as plain values to compare."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tailrace.capture.postgres import PostgresCapture, PostgresConfig
from tailrace.model.change import ChangeBatch, Part
from tailrace.model.errors import SetupMissing
from tailrace.model.position import Position
from tailrace.model.table import TableRef
from tests.support.postgres import Database

CONSUMER = "test"


@dataclass(frozen=True)
class Seen:
    """One change; images without the columns that the log did not carry."""

    table: str
    op: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    position: int
    seq: int
    xid: str

    @property
    def plain(self) -> tuple[str, str, dict[str, Any] | None, dict[str, Any] | None]:
        return self.table, self.op, self.before, self.after


def _image(row: dict[str, Any], side: str) -> dict[str, Any] | None:
    image = row[side]
    if image is None:
        return None
    absent = row.get(f"{side}_absent") or ()
    for name in absent:
        assert image[name] is None
    values = {name: value for name, value in image.items() if name not in absent}
    for name, exact in (row.get(f"{side}_exact") or {}).items():
        if exact is not None:
            values[name] = exact
    return values


def seen(batches: Iterable[ChangeBatch]) -> list[Seen]:
    """Every change of the batches in order."""
    found = []
    for batch in batches:
        batch.data.validate(full=True)
        for row in batch.data.to_pylist():
            images = _image(row, "before"), _image(row, "after")
            place = row["position"], row["seq"], row["xid"]
            found.append(Seen(batch.table.ref.name, row["op"], *images, *place))
    return sorted(found, key=lambda change: (change.position, change.seq))


class Source:
    """A database, its published tables, and captures of them as the least privileged role."""

    def __init__(
        self, database: Database, *ddl: str, tables: tuple[str, ...] = ("*",), **options: Any
    ) -> None:
        self.database = database
        self.options = options
        database.sql(*ddl)
        self.capture = self.open()
        self.refs = self.capture.resolve(tables)
        self.publish()
        self.start = self.capture.register(CONSUMER)

    def open(self, url: str | None = None, **options: Any) -> PostgresCapture:
        chosen = {**self.options, **options}
        return PostgresCapture(PostgresConfig.from_url(url or self.database.url(), chosen))

    def publish(self) -> None:
        """What an operator does: run the SQL that the error names."""
        try:
            self.capture.setup(self.refs)
        except SetupMissing as error:
            with self.database.admin() as connection:
                connection.execute((error.remedy or "").encode())
        assert self.capture.setup(self.refs) == []

    def ref(self, name: str) -> TableRef:
        return next(ref for ref in self.refs if ref.name == name)

    def sql(self, *statements: str) -> None:
        self.database.sql(*statements)

    def transaction(self, *statements: str) -> None:
        with self.database.app.transaction():
            self.database.sql(*statements)

    def head(self) -> Position:
        """Where the log ends once everything that is written is on disk."""
        with self.database.admin() as connection:
            connection.execute("SELECT pg_logical_emit_message(true, 'test', 'flush')")
        return self.capture.head()

    def parts(
        self,
        start: Position | None = None,
        *,
        until: Position | None = None,
        capture: PostgresCapture | None = None,
        acknowledge: bool = False,
    ) -> list[Part]:
        """Everything from `start` to `until`, or to the log's present end."""
        reader, end = capture or self.capture, until or self.head()
        found: list[Part] = []
        deadline = time.monotonic() + 30
        live = reader.live(start or self.start, self.refs, consumer=CONSUMER, wait=0.2)
        with contextlib.closing(live):  # type: ignore[type-var]
            for part in live:
                assert time.monotonic() < deadline, "the log's end was not reached"
                if part is None:
                    continue
                found += part.transactions()
                if part.complete and acknowledge:
                    reader.acknowledge(part.position, consumer=CONSUMER)
                if part.complete and part.position >= end:
                    break
        return found

    def changes(self, start: Position | None = None, **how: Any) -> list[Seen]:
        return seen(batch for part in self.parts(start, **how) for batch in part.batches)

    def active(self) -> bool:
        """Whether someone reads the slot."""
        with self.database.admin() as connection:
            query = "SELECT 1 FROM pg_replication_slots WHERE active AND database = current_database()"
            return connection.execute(query).fetchone() is not None

    def confirmed(self) -> int:
        """What the server has on record for the consumer."""
        return next(c.acknowledged for c in self.open().consumers() if c.name == CONSUMER)


class Background:
    """A stream that a thread reads, as a filler would: what it got, and the error that ended it."""

    def __init__(
        self,
        capture: PostgresCapture,
        start: Position,
        refs: list[TableRef],
        *,
        acknowledge: bool = False,
        slow: Callable[[], None] | None = None,
        between: Callable[[], None] | None = None,
        wait: float = 0.1,
    ) -> None:
        self.capture, self.position, self.acknowledge = capture, start, acknowledge
        self.batches: list[ChangeBatch] = []
        self.error: BaseException | None = None
        self._live = capture.live(start, refs, consumer=CONSUMER, wait=wait)
        self._slow, self._between = slow, between
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for part in self._live:
                if self._between is not None:
                    self._between()
                if part is None:
                    continue
                self.batches += part.batches
                if part.complete:
                    self.position = part.position
                    if self.acknowledge:
                        self.capture.acknowledge(part.position, consumer=CONSUMER)
                if self._slow is not None and part.rows:
                    self._slow()
        except BaseException as error:
            self.error = error

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def changes(self) -> list[Seen]:
        return seen(list(self.batches))

    def close(self) -> None:
        self.capture.close()
        self._thread.join(10)
        assert not self._thread.is_alive()


@contextlib.contextmanager
def background(*arguments: Any, **how: Any) -> Iterator[Background]:
    """A background stream for as long as the block runs."""
    stream = Background(*arguments, **how)
    try:
        yield stream
    finally:
        stream.close()

"""A real database file, its application and its capture, and changes as plain values to compare."""

from __future__ import annotations

import base64
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from tailrace.capture.sqlite import SqliteCapture, SqliteConfig
from tailrace.model.change import ChangeBatch, Part
from tailrace.model.position import Position
from tailrace.model.table import TableRef, TableSchema, quote

CONSUMER = "test"


class Undecodable(bytes):
    """Text that is not UTF-8, as the application reads it."""


def text(raw: bytes) -> str | Undecodable:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return Undecodable(raw)


@dataclass(frozen=True)
class Seen:
    """One change, its values as SQLite holds them."""

    table: str
    op: str
    seq: int
    position: int
    before: dict[str, Any] | None
    after: dict[str, Any] | None


def untag(tagged: str) -> object:
    kind, _, rest = tagged.partition(":")
    match kind:
        case "i":
            return int(rest)
        case "r":
            return float(rest)
        case "t":
            return rest
        case "b":
            return base64.b64decode(rest)
        case "x":
            return Undecodable(base64.b64decode(rest))
    raise AssertionError(f"unexpected tag {kind}")


def _image(row: dict[str, Any], which: str) -> dict[str, Any] | None:
    image = row[which]
    if image is None:
        return None
    exact = row.get(f"{which}_exact") or {}
    values = dict(image)
    for name, tagged in exact.items():
        if tagged is not None:
            assert values[name] is None
            values[name] = untag(tagged)
    return {name: int(v) if isinstance(v, bool) else v for name, v in values.items()}


def seen(batches: Iterable[ChangeBatch]) -> list[Seen]:
    """Every change of the batches in order of number."""
    found = []
    for batch in batches:
        batch.data.validate(full=True)
        for row in batch.data.to_pylist():
            found.append(
                Seen(
                    batch.table.ref.name,
                    row["op"],
                    row["seq"],
                    row["position"],
                    _image(row, "before"),
                    _image(row, "after"),
                )
            )
    return sorted(found, key=lambda change: (change.position, change.seq))


def same(plain: object, captured: object) -> bool:
    """Is the captured value the one plain SQL reads, whatever column type carried it?"""
    if isinstance(captured, Decimal):
        return isinstance(plain, int | float) and Decimal(repr(plain)) == captured
    if isinstance(plain, int) and isinstance(captured, float):
        return int(captured) == plain
    return type(plain) is type(captured) and plain == captured


class Source:
    """A database in WAL mode with an application that writes to it."""

    def __init__(self, path: Path, *ddl: str, **config: Any) -> None:
        self.path = path
        self.app = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.app.execute("PRAGMA journal_mode=WAL")
        self.app.execute("PRAGMA synchronous=OFF")
        self.config = SqliteConfig(path, **{"prune_seconds": 0.0, **config})
        self.captures: list[SqliteCapture] = []
        self.run(*ddl)
        self.capture = self.open()
        self.position: Position | None = None

    def open(self, **config: Any) -> SqliteCapture:
        from dataclasses import replace

        capture = SqliteCapture(replace(self.config, **config))
        self.captures.append(capture)
        return capture

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.app.execute(statement)

    def install(self, *names: str) -> Source:
        self.tables = self.capture.resolve(names or ("*",))
        self.capture.setup(self.tables)
        self.position = self.capture.register(CONSUMER)
        return self

    def parts(self, capture: SqliteCapture | None = None, **options: Any) -> list[Part]:
        """What live has to say now, after the last position."""
        assert self.position is not None
        capture = capture or self.capture
        parts = []
        live = capture.live(self.position, self.tables, consumer=CONSUMER, wait=0.01, **options)
        for part in live:
            if part is None:
                break
            parts.append(part)
            if part.complete:
                self.position = part.position
        live.close()  # type: ignore[attr-defined]
        return parts

    def changes(self, **options: Any) -> list[Seen]:
        return seen(batch for part in self.parts(**options) for batch in part.batches)

    def ops(self) -> list[tuple[str, Any, Any]]:
        """(op, values before, values after) of each change."""
        return [
            (c.op, c.before and tuple(c.before.values()), c.after and tuple(c.after.values()))
            for c in self.changes()
        ]

    def ref(self, name: str) -> TableRef:
        return TableRef("main", name)

    def rows(self, table: TableSchema) -> list[dict[str, Any]]:
        """The table as plain SQL reads it."""
        names = [column.name for column in table.columns]
        self.app.text_factory = text
        try:
            fetched = self.app.execute(
                f"SELECT {', '.join(quote(n) for n in names)} FROM {quote(table.ref.name)}"
            ).fetchall()
        finally:
            self.app.text_factory = str
        return [dict(zip(names, row, strict=True)) for row in fetched]

    def snapshot(self, name: str, rows_per_chunk: int = 1000, **options: Any) -> list[Seen]:
        table = self.capture.describe(self.ref(name))
        found: list[Seen] = []
        for chunk in self.capture.plan(table.ref, rows_per_chunk=rows_per_chunk):
            found += seen(self.capture.snapshot(table, chunk, position=1, seq=len(found), **options))
        return found

    def close(self) -> None:
        for capture in self.captures:
            capture.close()
        self.app.close()


class Model:
    """A table kept by its key from changes alone. Strict: every change must fit the state before it."""

    def __init__(self, key: Sequence[str], *, strict: bool = True) -> None:
        self.key, self.strict = key, strict
        self.rows: dict[tuple[Any, ...], dict[str, Any]] = {}

    def _key(self, image: dict[str, Any]) -> tuple[Any, ...]:
        return tuple((type(image[name]).__name__, image[name]) for name in self.key)

    def apply(self, changes: Iterable[Seen]) -> None:
        for change in changes:
            if change.before is not None:
                gone = self.rows.pop(self._key(change.before), None)
                assert not self.strict or gone == change.before
            if change.after is not None:
                key = self._key(change.after)
                assert not self.strict or key not in self.rows
                self.rows[key] = change.after

    def check(self, plain: list[dict[str, Any]]) -> None:
        expected = {self._key(row): row for row in plain}
        assert self.rows == expected

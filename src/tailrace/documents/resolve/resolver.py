"""Affected documents of an index: entries, values, statements, put together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.capture.contract import Capture
from tailrace.documents.plan import IndexPlan
from tailrace.documents.render.binding import EXACT, TEXT, Row, Values, known, plain_texts
from tailrace.documents.resolve.entries import Entry, entries
from tailrace.documents.resolve.statement import Statement, render
from tailrace.documents.resolve.values import id_texts, plainly_equal, touched
from tailrace.model.change import ChangeBatch, Op
from tailrace.model.render import field_of
from tailrace.model.table import TableRef, TableSchema
from tailrace.model.text import escaped, quoted

# Values that one statement is asked for.
_MOST = 50_000


@dataclass(frozen=True)
class Affected:
    """The documents to build again.

    `keys` has the root's key columns by name, with their types, and of each the text that documents show, by
    its name and `:text`. A value that its type cannot hold is null; where there is any, its column has one
    of tagged values beside it, by its name and `:exact`. With `everything` every document is affected, those
    of the sink that have no root row any more too, and `keys` is empty.
    """

    keys: pa.Table
    everything: bool = False

    def __len__(self) -> int:
        return int(self.keys.num_rows)

    @cached_property
    def texts(self) -> list[pa.ChunkedArray]:
        """The texts of the key columns, in key order."""
        return [self.keys.column(name) for name in self.keys.column_names if name.endswith(TEXT)]

    @property
    def ids(self) -> pa.StringArray:
        """The documents' ids: the key's text, of a composite key the JSON array of its texts."""
        columns = [column.combine_chunks() for column in self.texts]
        if len(columns) == 1:
            return columns[0]
        parts = pc.binary_join_element_wise(*(quoted(escaped(column)) for column in columns), ",")
        return pc.binary_join_element_wise("[", parts, "]", "")


class Resolver:
    """One index. Its statements are made once; it may be used for any number of batches, from any thread."""

    def __init__(self, plan: IndexPlan, dialect: str) -> None:
        self._root, self._dialect = plan.root, dialect
        self._by_table: dict[TableRef, list[Entry]] = {}
        self._statements: dict[tuple[object, ...], Statement] = {}
        for entry in entries(plan):
            self._by_table.setdefault(entry.table.ref, []).append(entry)
            if not self._direct(entry):
                self._statement(entry, entry.table)

    @property
    def tables(self) -> frozenset[TableRef]:
        """The tables whose changes touch documents."""
        return frozenset(self._by_table)

    def resolve(self, changes: Iterable[ChangeBatch], capture: Capture, *, since: int = 0) -> Affected:
        """The documents that these changes touch, each once. Everything up to their end must be visible.

        With `since` only changes beyond that position count: no document is older than it. TRUNCATE of any
        table, and a snapshot that begins, touch every document.
        """
        batches = [fresh for batch in changes if len(fresh := self._fresh(batch, since))]
        if any(_whole(batch) for batch in batches):
            return Affected(self._table([]), everything=True)
        found = [self._table(part) for part in self._parts(batches, capture)]
        return Affected(self._distinct(found))

    def merged(self, parts: Sequence[Affected]) -> Affected:
        """All of these documents, each once."""
        return Affected(self._distinct([part.keys for part in parts]))

    def _fresh(self, batch: ChangeBatch, since: int) -> ChangeBatch:
        if batch.table.ref not in self._by_table:
            return batch.slice(0, 0)
        position = batch.data.column("position")
        if since <= 0 or not len(batch) or pc.min(position).as_py() > since:
            return batch
        return ChangeBatch(batch.table, batch.data.filter(pc.greater(position, since)))

    def _parts(self, batches: Sequence[ChangeBatch], capture: Capture) -> Iterator[Row]:
        """Root keys, many of them several times."""
        asked: dict[str, tuple[Statement, list[list[pa.StringArray]]]] = {}
        for batch in batches:
            for entry in self._by_table[batch.table.ref]:
                direct = self._direct(entry)
                for row in touched(batch, entry.columns, entry.path):
                    if direct:
                        yield self._as_key(entry, row)
                    else:
                        statement = self._statement(entry, batch.table)
                        asked.setdefault(statement.sql, (statement, []))[1].append(statement.texts(row))
        if not asked:
            return
        with capture.together():
            for statement, rows in asked.values():
                yield from self._ask(statement, rows, capture)

    def _ask(self, statement: Statement, rows: list[list[pa.StringArray]], capture: Capture) -> Iterator[Row]:
        names = [str(at) for at in range(len(rows[0]))]
        every = pa.concat_tables([pa.table(dict(zip(names, row, strict=True))) for row in rows])
        distinct = every.group_by(names).aggregate([]).combine_chunks()
        root = self._root
        columns = [(name, root.table.column(name).type) for name in root.key]
        for start in range(0, distinct.num_rows, _MOST):
            piece = distinct.slice(start, _MOST)
            texts = [piece.column(name).combine_chunks() for name in names]
            for batch in capture.query(statement.sql, statement.bind(texts), columns):
                yield [_answered(batch, at, len(columns)) for at in range(len(columns))]

    def _statement(self, entry: Entry, table: TableSchema) -> Statement:
        """The entry's statement for rows of `table`, whose types may have been others than they are now."""
        of = entry.way, tuple(table.column(name).native for name in entry.columns)
        if of not in self._statements:
            self._statements[of] = render(replace(entry, table=table), self._root, self._dialect)
        return self._statements[of]

    def _direct(self, entry: Entry) -> bool:
        """Whether the values are those of the root's key, so that nobody needs to be asked."""
        root = self._root
        if not entry.chain:
            return True
        if len(entry.chain) > 1 or entry.junction is not None or sorted(entry.met) != sorted(root.key):
            return False
        pairs = zip(entry.columns, entry.met, strict=True)
        return all(plainly_equal(entry.table, own, root.table, met) for own, met in pairs)

    def _as_key(self, entry: Entry, row: Row) -> Row:
        """The values as the root's key, in its order and types; what these cannot hold is no root's key."""
        by_name = dict(zip(entry.met or self._root.key, row, strict=True))
        made = [_cast(by_name[name], self._root.table.column(name).type.arrow) for name in self._root.key]
        return known(made)

    def _table(self, key: Sequence[Values]) -> pa.Table:
        root, made = self._root, {}
        for at, name in enumerate(root.key):
            values = key[at] if key else Values(pa.nulls(0, root.table.column(name).type.arrow))
            made[name] = values.typed
            made[name + TEXT] = id_texts(values, root.table.column(name), self._dialect)
            if values.exact is not None and values.exact.null_count < len(values.exact):
                made[name + EXACT] = values.exact
        return pa.table(made)

    def _distinct(self, found: list[pa.Table]) -> pa.Table:
        if not found:
            return self._table([])
        every = pa.concat_tables(found, promote_options="default")
        texts = [name + TEXT for name in self._root.key]
        numbered = every.select(texts).append_column("row", pa.array(np.arange(every.num_rows)))
        first = numbered.group_by(texts).aggregate([("row", "min")]).column("row_min")
        return every.take(first).combine_chunks()


def _whole(batch: ChangeBatch) -> bool:
    kinds = pa.array([Op.TRUNCATE.value, Op.SNAPSHOT.value])
    return bool(pc.any(pc.is_in(batch.data.column("op"), value_set=kinds)).as_py())


def _answered(batch: pa.RecordBatch, at: int, of: int) -> Values:
    """A column of an answer with `of` columns, and its part of `exact`, which may follow them."""
    tagged = None
    if batch.num_columns > of:
        exact, name = batch.column(of), batch.schema.field(at).name
        tagged = field_of(exact, name) if exact.type.get_field_index(name) >= 0 else None
    return Values(batch.column(at), tagged)


def _cast(values: Values, kind: pa.DataType) -> Values:
    if values.typed.type == kind:
        return values
    if pa.types.is_integer(kind) and pa.types.is_integer(values.typed.type):
        wide = values.typed.cast(pa.int64())
        bits = kind.bit_width - 1
        fits = (
            pc.and_(pc.greater_equal(wide, -(2**bits)), pc.less(wide, 2**bits))
            if bits < 63
            else wide.is_valid()
        )
        return Values(pc.if_else(fits, wide, pa.scalar(None, pa.int64())).cast(kind), values.exact)
    # A column whose type was changed meanwhile: by its text. What is none of the new type is no key now.
    texts = plain_texts(values.typed)
    try:
        return Values(texts.cast(kind))
    except pa.ArrowInvalid:
        return Values(pa.concat_arrays([_one(texts.slice(row, 1), kind) for row in range(len(texts))]))


def _one(text: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return text.cast(kind)
    except pa.ArrowInvalid:
        return pa.nulls(1, kind)

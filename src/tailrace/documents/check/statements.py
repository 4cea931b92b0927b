"""SQL of a file, and the statement that builds documents, as the source itself judges them.

Statements are planned, not run: no row is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from tailrace.capture.contract import Capture
from tailrace.config.index import fields as written
from tailrace.config.index.models import IndexSchema
from tailrace.config.index.parts import Filters, RawFilter
from tailrace.config.lines import Path
from tailrace.documents import plan
from tailrace.documents.check.found import Found
from tailrace.documents.check.sound import has
from tailrace.documents.compile import MissingTable
from tailrace.documents.render import Keys, build_query
from tailrace.documents.render.conditions import conditions
from tailrace.documents.render.dialect import Dialect
from tailrace.documents.render.families import of_kind
from tailrace.documents.render.foreign import for_spark, refused
from tailrace.documents.render.postgres import Postgres
from tailrace.documents.render.sqlite import Sqlite
from tailrace.model.errors import ConfigError, DataError, NeedsOperator
from tailrace.model.table import ColumnType, TableRef, TableSchema

_DIALECTS: dict[str, type[Postgres | Sqlite]] = {"postgres": Postgres, "sqlite": Sqlite}
_NOWHERE = TableSchema(TableRef("", ""), ())
_TEXT, _LONG = ColumnType("string"), ColumnType("long")
# What SQLite's EXPLAIN gives.
_EXPLAINED = (
    ("addr", _LONG),
    ("opcode", _TEXT),
    ("p1", _LONG),
    ("p2", _LONG),
    ("p3", _LONG),
    ("p4", _TEXT),
    ("p5", _LONG),
    ("comment", _TEXT),
)


def judge_written(found: Found, schema: IndexSchema, dialect: str) -> None:
    """What the file's own SQL shows without a source: that it is none, or none that Spark can run."""
    if dialect not in _DIALECTS:
        return
    for path, sql in _sqls(schema):
        if (why := refused(sql, dialect)) is not None:
            what, remedy = why
            found.add("error", "sql", path, what, remedy=remedy)
            continue
        try:
            for_spark(sql, _NOWHERE, dialect)
        except (ConfigError, RecursionError):
            found.add(
                "warning",
                "not_for_spark",
                path,
                "cannot be put into Spark's SQL, so only the source itself can build the documents",
                remedy="write it in simpler SQL",
            )


def _sqls(schema: IndexSchema) -> Iterator[tuple[Path, str]]:
    yield from _raw(schema.filters, ("filters",))
    if schema.soft_delete is not None:
        yield from _raw(schema.soft_delete.when, ("soft_delete", "when"))
    for path, field in schema.walk():
        if isinstance(field, written.Expression):
            yield (*path, "sql"), field.sql
        if isinstance(field, written.Join | written.Aggregate):
            yield from _raw(field.filters, (*path, "filters"))
            through = getattr(field, "through", None)
            if through is not None:
                yield from _raw(through.filters, (*path, "through", "filters"))


def _raw(filters: Filters, path: Path) -> Iterator[tuple[Path, str]]:
    for at, one in enumerate(filters):
        if isinstance(one, RawFilter):
            yield (*path, at, "raw"), one.raw


class Statements:
    """Asks the source. What the role may not read is told by `Capture.coverage`, and not again here."""

    def __init__(self, found: Found, capture: Capture) -> None:
        self._found = found
        self._capture = capture
        self._dialect: Dialect | None = _DIALECTS[capture.dialect]() if capture.dialect in _DIALECTS else None

    def filters(self, filters: Sequence[plan.Filter], table: TableSchema, path: Path) -> None:
        """Judge the conditions of a list."""
        dialect = self._dialect
        if dialect is None or isinstance(table, MissingTable):
            return
        for at, one in enumerate(filters):
            if isinstance(one, plan.Raw):
                # The end of the line ends a comment, as it does where documents are built.
                self._refused(table, f"{one.sql}\n", (*path, at, "raw"), "the condition is refused")
                continue
            if not has(table, [one.column]):
                continue
            what = f"`{one.column}` cannot be compared with the value"
            try:
                (condition,) = conditions([one], table, dialect)
            except ConfigError as error:
                self._found.add("error", "filter", (*path, at, "value"), error.message, remedy=error.remedy)
                continue
            # SQLite compares anything with anything, by functions that only our own statements have.
            if dialect.name == "postgres":
                self._refused(table, condition, (*path, at, "value"), what)

    def expression(self, value: plan.Expression, table: TableSchema, path: Path) -> None:
        """Judge an expression, and whether its value can be shown as its kind."""
        dialect = self._dialect
        if dialect is None or isinstance(table, MissingTable):
            return
        x = f"({value.sql}\n)"
        if self._refused(table, f"{x} IS NULL", path, "the expression is refused"):
            return
        if dialect.name == "postgres":
            shown = dialect.expression(x, value.kind, of_kind(value.kind, dialect.source))
            self._refused(table, f"({shown}) IS NULL", path, f"the expression is no `{value.kind}`")

    def _refused(self, table: TableSchema, condition: str, path: Path, what: str) -> bool:
        if self._found.refused(path):
            return True
        try:
            self._capture.check_condition(table.ref, condition)
        except ConfigError as error:
            told = error.message.partition(" is refused: ")[2] or error.message
            self._found.add("error", "sql", path, f"{what}: {told}", table=table.ref)
            return True
        except NeedsOperator:
            return True
        return False

    def build(self, made: plan.IndexPlan) -> None:
        """Judge the whole statement: what nothing else found is found here, if not where it stands."""
        dialect = self._dialect
        if dialect is None:
            return
        try:
            query = build_query(made, dialect.name, Keys())
            keys = pa.table({column.name: pa.array([], column.type.arrow) for column in query.key})
            explain = dialect.name == "sqlite"
            sql = f"EXPLAIN {query.sql}" if explain else f"SELECT * FROM ({query.sql}) AS q LIMIT 0"
            for _ in self._capture.query(sql, query.bind(keys), _EXPLAINED if explain else query.columns):
                break
        except (ConfigError, DataError, NeedsOperator) as error:
            if "GRANT" not in (error.remedy or ""):
                self._found.add(
                    "error",
                    "build",
                    (),
                    f"the source refuses the statement that builds documents: {error.message}",
                    remedy=error.remedy,
                )

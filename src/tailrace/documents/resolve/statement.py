"""The way from values up to the roots as SQL, for PostgreSQL and SQLite.

    keys k ─▶ [junction] ─▶ the place that is met ─▶ [junction] ─▶ its parent ─▶ … ─▶ the root

PostgreSQL gets the values as one array of texts a column, read as the type of the changed column: what the
source compares then is what it compares when it joins the two tables, and no value is forced into a narrower
type. SQLite gets them as one JSON array of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from tailrace.documents.plan import Place
from tailrace.documents.resolve.entries import Entry
from tailrace.documents.resolve.values import Row, sent_json, sent_texts
from tailrace.model.errors import ConfigError
from tailrace.model.table import Column, TableSchema

_HOLDER = "tailrace_value_{}"
_KEYS = "k"


@dataclass(frozen=True)
class Statement:
    """A statement, for `Capture.query`, and how values are bound to it."""

    sql: str
    dialect: str

    def texts(self, row: Row) -> list[pa.StringArray]:
        """The values as they are sent; equal ones have equal texts."""
        return [(sent_texts if self.dialect == "postgres" else sent_json)(values) for values in row]

    def bind(self, texts: Sequence[pa.Array]) -> list[str]:
        """The parameters for these rows of texts."""
        if self.dialect == "postgres":
            return [_array(column) for column in texts]
        rows = pc.binary_join_element_wise(*texts, ",") if len(texts) > 1 else texts[0]
        return ["[[" + _joined(rows, "],[") + "]]" if len(rows) else "[]"]


def _array(texts: pa.Array) -> str:
    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    return '{"' + _joined(escaped, '","') + '"}' if len(texts) else "{}"


def _joined(texts: pa.Array, separator: str) -> str:
    whole = pa.LargeListArray.from_arrays(
        pa.array([0, len(texts)], pa.int64()), texts.cast(pa.large_string())
    )
    return str(pc.binary_join(whole, pa.scalar(separator, pa.large_string()))[0].as_py())


def render(entry: Entry, root: Place, dialect: str) -> Statement:
    """The statement from an entry's values to the root's keys, each once."""
    if dialect not in ("postgres", "sqlite"):
        raise ConfigError(f"documents cannot be kept from a source that speaks {dialect or 'no SQL'}")
    postgres = dialect == "postgres"
    met = entry.chain[-1]
    query = exp.select(*(_column(_name(root), column) for column in root.key)).distinct()
    query = query.from_(_arrays(entry) if postgres else _json())
    table, alias, columns = met.table, _name(met), entry.met
    if entry.junction is not None:
        table, alias, columns = entry.junction.table, "j", entry.junction.right
    meets = _meets_text if postgres else _meets_json
    pairs = zip(entry.columns, columns, strict=True)
    on = [
        meets(at, entry.table.column(own), table.column(name), _column(alias, name))
        for at, (own, name) in enumerate(pairs)
    ]
    # SQLite then begins with the values, and finds rows by their index.
    query = _join(query, table, alias, on, "" if postgres else "CROSS")
    if entry.junction is not None:
        query = _join(query, met.table, _name(met), _equal("j", entry.junction.left, _name(met), entry.met))
    for place, parent in zip(entry.chain[:0:-1], entry.chain[-2::-1], strict=True):
        query = _upward(query, place, parent)
    return Statement(_finished(query, dialect), dialect)


def _upward(query: exp.Select, place: Place, parent: Place) -> exp.Select:
    link = place.link
    if link is None:
        raise ConfigError(f"the place {'.'.join(place.path)} hangs on nothing")
    if link.through is None:
        return _join(
            query, parent.table, _name(parent), _equal(_name(place), link.own, _name(parent), link.parent)
        )
    junction, alias = link.through, f"j{place.number}"
    query = _join(query, junction.table, alias, _equal(_name(place), link.own, alias, junction.right))
    return _join(query, parent.table, _name(parent), _equal(alias, junction.left, _name(parent), link.parent))


def _name(place: Place) -> str:
    return f"p{place.number}"


def _column(alias: str, name: str) -> exp.Column:
    return exp.column(name, table=alias, quoted=True)


def _equal(one: str, names: Sequence[str], other: str, others: Sequence[str]) -> list[exp.Expression]:
    pairs = zip(names, others, strict=True)
    return [exp.EQ(this=_column(other, b), expression=_column(one, a)) for a, b in pairs]


def _join(
    query: exp.Select, table: TableSchema, alias: str, on: Sequence[exp.Expression], kind: str = ""
) -> exp.Select:
    source = exp.table_(
        table.ref.name, db=table.ref.schema, quoted=True, alias=exp.to_identifier(alias, quoted=True)
    )
    return query.join(source, on=exp.and_(*on), join_type=kind)


def _arrays(entry: Entry) -> exp.Expression:
    """The values as rows of texts: `unnest(…, …) AS k(c0, c1)`."""
    texts = [exp.Cast(this=_holder(at), to=_type("text[]")) for at in range(len(entry.columns))]
    names = [exp.to_identifier(f"c{at}", quoted=True) for at in range(len(entry.columns))]
    alias = exp.TableAlias(this=exp.to_identifier(_KEYS, quoted=True), columns=names)
    return exp.Unnest(expressions=texts, alias=alias)


def _json() -> exp.Expression:
    """The values as rows of a JSON array: `json_each(…) AS k`."""
    rows = exp.Anonymous(this="json_each", expressions=[_holder(0)])
    return exp.Table(this=rows, alias=exp.TableAlias(this=exp.to_identifier(_KEYS, quoted=True)))


def _type(name: str) -> exp.DataType:
    """A type as the source itself spells it."""
    return exp.DataType(this=exp.DataType.Type.USERDEFINED, kind=name)


def _holder(at: int) -> exp.Expression:
    return exp.Var(this=_HOLDER.format(at))


def _meets_text(at: int, changed: Column, met: Column, column: exp.Column) -> exp.Expression:  # noqa: ARG001
    """A column equals the value at that place of a row of texts."""
    native = _type(changed.native or "text")
    return exp.EQ(this=column, expression=exp.Cast(this=_column(_KEYS, f"c{at}"), to=native))


def _meets_json(at: int, changed: Column, met: Column, column: exp.Column) -> exp.Expression:
    """A column equals the value at that place of a row of JSON."""
    if changed.type.name.startswith("timestamp"):
        # Several texts are one moment, and SQLite compares texts.
        raise ConfigError(
            f"column {changed.name} relates rows and cannot be read as {changed.type.name}",
            remedy=f"leave the column {changed.name} out of the types of the source",
        )
    value = _json_value(at)
    equal = exp.EQ(this=column, expression=value)
    converted = _converted(changed.native, met.native)
    if converted is None:
        return equal
    other = exp.EQ(this=exp.Cast(this=column.copy(), to=_type(converted)), expression=value.copy())
    return exp.paren(exp.or_(equal, other))


def _json_value(at: int) -> exp.Expression:
    """A value of a row; bytes and text that is not UTF-8 come as objects (`values.sent_json`)."""

    def part(function: str, path: str) -> exp.Expression:
        return exp.Anonymous(
            this=function, expressions=[_column(_KEYS, "value"), exp.Literal.string(f"$[{at}]{path}")]
        )

    def raw(path: str) -> exp.Expression:
        return exp.Anonymous(this="unhex", expressions=[part("json_extract", path)])

    text = exp.Cast(this=raw(".x"), to=_type("TEXT"))
    odd = exp.func("coalesce", raw(".b"), text)
    is_odd = exp.EQ(this=part("json_type", ""), expression=exp.Literal.string("object"))
    return exp.case().when(is_odd, odd).else_(part("json_extract", ""))


def _converted(own: str, met: str) -> str | None:
    """What SQLite would convert the met column to if it joined the two; a value alone does not make it."""
    mine, theirs = _affinity(own), _affinity(met)
    if theirs in ("NUMERIC", mine) or mine == "BLOB":
        return None
    return mine


def _affinity(declared: str) -> str:
    text = declared.upper()
    if "INT" in text:
        return "NUMERIC"
    if any(word in text for word in ("CHAR", "CLOB", "TEXT")):
        return "TEXT"
    return "BLOB" if "BLOB" in text or not text.strip() else "NUMERIC"


def _finished(query: exp.Select, dialect: str) -> str:
    """The text, with the driver's placeholders. Names may have a `%` in them, which PostgreSQL's doubles."""
    text = query.sql(dialect=dialect)
    if dialect == "sqlite":
        return text.replace(_HOLDER.format(0), "?")
    text = text.replace("%", "%%")
    for at in reversed(range(text.count(_HOLDER.format("")))):
        text = text.replace(_HOLDER.format(at), "%s")
    return text

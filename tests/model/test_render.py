"""JSON text of changes equals what a naive writer makes of the same rows, value by value."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.change import ChangeBatch
from tailrace.model.render import buffer_of, envelope, envelope_schema, json_objects, lines, ndjson
from tests.model.changes import batch_of, table_of

WIDE = table_of(
    {
        "id": "long",
        "n": "integer",
        "small": "short",
        "price": "double",
        "ratio": "float",
        "name": "string",
        'odd "name"\n': "string",
        "raw": "binary",
        "ok": "boolean",
        "day": "date",
        "at": "timestamp",
        "local": "timestamp_ntz",
        "amount": "decimal(20,10)",
        ".dot": "decimal(10,0)",
    }
)
UTC = dt.UTC
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "long": st.integers(-(2**63), 2**63 - 1),
    "integer": st.integers(-(2**31), 2**31 - 1),
    "short": st.integers(-(2**15), 2**15 - 1),
    "double": st.floats(),
    "float": st.floats(width=32),
    "string": st.text(alphabet=st.characters(exclude_categories=["Cs"]))
    | st.sampled_from(['"', "\\", "\0\x7f\x1f\n", "\\n"]),
    "binary": st.binary(max_size=9),
    "boolean": st.booleans(),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
    "timestamp_ntz": st.datetimes(),
    "decimal(20,10)": st.decimals(Decimal("-9999999999"), Decimal("9999999999"), places=10),
    "decimal(10,0)": st.decimals(Decimal(-9999999999), Decimal(9999999999), places=0),
}
ROWS = st.fixed_dictionaries({c.name: st.none() | VALUES[c.type.name] for c in WIDE.columns})


def iso(value: dt.datetime) -> str:
    text = value.replace(tzinfo=None).isoformat()
    text = text.rstrip("0") if value.microsecond else text
    return text + ("Z" if value.tzinfo else "")


def naive(value: Any) -> Any:
    """What a value is after json.loads with exact numbers."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.datetime):
        return iso(value)
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def same(table: Any, found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(found) == [c.name for c in table.columns if c.name in expected]
    for name, value in expected.items():
        kind = table.column(name).type.name
        text = found[name]
        if isinstance(value, float) and math.isfinite(value):
            assert isinstance(text, Decimal), f"{name} must stay a real"
            read = float(pa.scalar(float(text), pa.float32()).as_py()) if kind == "float" else float(text)
            assert read == value
            assert math.copysign(1, float(text)) == math.copysign(1, value)
        elif isinstance(value, Decimal):
            assert Decimal(text) == value
        else:
            assert text == naive(value), name
            assert type(text) is type(naive(value))


def exact_loads(text: str) -> Any:
    return json.loads(text, parse_float=Decimal)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.none() | ROWS, max_size=8))
def test_every_value_reads_back_as_the_naive_writer_says(rows: list[dict[str, Any] | None]) -> None:
    struct = pa.array(rows, WIDE.struct)
    for array, expected in ((struct, rows), (struct.slice(1), rows[1:])):
        texts = json_objects(array, WIDE).to_pylist()
        assert len(texts) == len(expected)
        for text, row in zip(texts, expected, strict=True):
            if row is None:
                assert text is None
            else:
                same(WIDE, exact_loads(text), row)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(ROWS, st.none() | st.sets(st.sampled_from([c.name for c in WIDE.columns]))), max_size=6
    )
)
def test_absent_columns_are_left_out_and_null_is_not(
    rows: list[tuple[dict[str, Any], set[str] | None]],
) -> None:
    struct = pa.array([row for row, _ in rows], WIDE.struct)
    absent = pa.array([None if a is None else sorted(a) for _, a in rows], pa.list_(pa.string()))
    for text, (row, gone) in zip(json_objects(struct, WIDE, absent=absent).to_pylist(), rows, strict=True):
        same(WIDE, exact_loads(text), {n: v for n, v in row.items() if n not in (gone or ())})


def test_exact_values_replace_the_null_of_their_column() -> None:
    tags = [
        "i:123456789012345678901234567890",
        "r:1.5",
        "r:inf",
        "r:-inf",
        't:a"b\n',
        "b:AAE=",
        "x:/w==",
        "v:12:30",
    ]
    struct = pa.array(
        [{"id": 1, "n": None}] * len(tags) + [{"id": 1, "n": 7}, {"id": 1, "n": None}],
        table_of({"id": "long", "n": "integer"}).struct,
    )
    exact = pa.array([{"n": tag} for tag in tags] + [{"n": None}, None], pa.struct([("n", pa.string())]))
    texts = json_objects(struct, table_of({"id": "long", "n": "integer"}), exact=exact).to_pylist()
    assert [json.loads(text)["n"] for text in texts] == [
        123456789012345678901234567890,
        1.5,
        "Infinity",
        "-Infinity",
        'a"b\n',
        {"$binary": "AAE="},
        {"$text": "/w=="},
        "12:30",
        7,
        None,
    ]


def test_times_outside_the_years_one_to_9999_keep_their_year() -> None:
    table = table_of({"id": "timestamp", "d": "date"})
    micros = pa.array([-(2**60), 2**62, None, 1_500_000], pa.int64()).cast(table.struct[0].type)
    days = pa.array([-1_000_000, 4_000_000, None, 0], pa.int32()).cast(pa.date32())
    struct = pa.StructArray.from_arrays([micros, days], fields=list(table.struct))
    found = [json.loads(text) for text in json_objects(struct, table).to_pylist()]
    assert (
        found[1]["id"].startswith("148108-")
        or found[1]["id"].startswith("+148108-")
        or "14810" in found[1]["id"]
    )
    assert found[0]["id"].startswith("-34")
    assert [row["d"] for row in found] == ["-0768-02-04", "12921-08-18", None, "1970-01-01"]
    assert found[3]["id"] == "1970-01-01T00:00:01.5Z"


SMALL = table_of({"id": "long", "name": "string"})


def changes(table: Any = SMALL) -> ChangeBatch:
    at = dt.datetime(2024, 2, 29, 12, 0, 0, 250000, tzinfo=UTC)
    return batch_of(
        table,
        [
            {"op": "s", "position": 5, "seq": 0, "ts": at},
            {"op": "r", "position": 5, "seq": 1, "ts": at, "after": {"id": 1, "name": "a"}},
            {
                "op": "u",
                "position": 6,
                "seq": 0,
                "xid": 'x"1',
                "before": {"id": 1, "name": "a"},
                "after": {"id": 2, "name": None},
            },
            {"op": "d", "position": 7, "seq": 0, "ts": at, "before": {"id": 2, "name": None}},
            {"op": "t", "position": 8, "seq": 0, "ts": at},
        ],
    )


def test_an_envelope_has_the_key_of_the_row_that_is_now_or_was_last() -> None:
    record = envelope(changes())
    assert record.schema == envelope_schema()
    record.validate(full=True)
    keys = record.column("key").to_pylist()
    assert keys == [None, '{"id":1}', '{"id":2}', '{"id":2}', None]
    assert record.column("table").to_pylist() == ["orders"] * 5


def test_lines_are_whole_envelopes_with_nested_images() -> None:
    found = [json.loads(line) for line in bytes(ndjson(changes())).splitlines()]
    fields = ["op", "schema", "table", "key", "before", "after", "position", "seq", "xid", "ts"]
    assert all(list(line) == fields for line in found)
    assert found[2] == {
        "op": "u",
        "schema": "main",
        "table": "orders",
        "key": {"id": 2},
        "before": {"id": 1, "name": "a"},
        "after": {"id": 2, "name": None},
        "position": 6,
        "seq": 0,
        "xid": 'x"1',
        "ts": None,
    }
    assert found[0]["before"] is None
    assert found[0]["ts"] == "2024-02-29T12:00:00.25Z"


def test_a_table_without_identity_has_no_key() -> None:
    record = envelope(changes(table_of({"id": "long", "name": "string"}, key=())))
    assert record.column("key").null_count == 5


def test_lines_of_several_tables_are_interleaved_in_order() -> None:
    other = batch_of(
        table_of({"id": "long"}, name="other"),
        [{"op": "c", "position": p, "seq": s, "after": {"id": 1}} for p, s in [(6, 1), (5, 9), (4, 0)]],
    )
    found = [json.loads(line) for line in bytes(buffer_of(lines([changes(), other]))).splitlines()]
    order = [(line["position"], line["seq"]) for line in found]
    assert order == sorted(order)
    assert len(order) == 8


def test_slices_of_a_batch_render_like_the_whole() -> None:
    whole = bytes(ndjson(changes())).splitlines(keepends=True)
    assert bytes(ndjson(changes().slice(1, 3))) == b"".join(whole[1:4])
    assert bytes(ndjson(changes().slice(0, 0))) == b""


def test_slices_keep_what_is_absent_and_what_is_tagged_at_its_row() -> None:
    batch = batch_of(
        SMALL,
        [
            {"op": "u", "position": 1, "seq": 0, "after": {"id": 1}, "after_absent": ["name"]},
            {"op": "u", "position": 1, "seq": 1, "after": {"id": 2}, "after_absent": []},
            {"op": "u", "position": 1, "seq": 2, "after": {"id": None}, "after_exact": {"id": "t:x"}},
            {"op": "u", "position": 1, "seq": 3, "after": {"id": 4}, "after_absent": ["id", "name"]},
        ],
    )
    expected = [{"id": 1}, {"id": 2, "name": None}, {"id": "x", "name": None}, {}]
    for start in range(4):
        found = bytes(ndjson(batch.slice(start, 4 - start))).splitlines()
        assert [json.loads(line)["after"] for line in found] == expected[start:]


@pytest.mark.parametrize("name", [".x", "a.b", "[0]", "order", "ü", "it's"])
def test_any_column_name_renders(name: str) -> None:
    table = table_of({"id": "long", name: "string"})
    batch = batch_of(table, [{"op": "c", "position": 1, "seq": 0, "after": {"id": 1, name: "v"}}])
    assert json.loads(bytes(ndjson(batch)))["after"] == {"id": 1, name: "v"}

"""Typed views have exactly the announced schema, and never turn what does not fit into NULL."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.errors import ConfigError, DataError
from tailrace.model.net import net
from tailrace.model.views import (
    NAMES,
    conform,
    envelope_schema,
    net_view,
    net_view_schema,
    table_view,
    table_view_schema,
)
from tests.model.changes import batch_of, table_of

TABLE = table_of({"id": "long", "name": "string"})
AT = dt.datetime(2024, 1, 2, tzinfo=dt.UTC)


def change(op: str, seq: int, before: Any = None, after: Any = None, **more: Any) -> dict[str, Any]:
    return {"op": op, "position": 4, "seq": seq, "ts": AT, "before": before, "after": after, **more}


def row(i: int, name: str | None = "x") -> dict[str, Any]:
    return {"id": i, "name": name}


def shape(record: pa.RecordBatch) -> list[tuple[Any, ...]]:
    return [
        (r["_change_type"], r["_commit_seq"], r["id"], r["name"], r["_absent"]) for r in record.to_pylist()
    ]


def test_every_kind_of_change_has_its_rows_in_order() -> None:
    batch = batch_of(
        TABLE,
        [
            change("s", 0),
            change("r", 1, None, row(1)),
            change("c", 2, None, row(2)),
            change("u", 3, row(2), row(2, "y")),
            change("u", 4, None, row(2, None), after_absent=["name"]),
            change("d", 5, row(2, "y"), before_absent=[]),
            change("t", 6),
        ],
    )
    view = table_view(batch)
    assert view.schema.equals(table_view_schema(TABLE), check_metadata=True)
    view.validate(full=True)
    assert shape(view) == [
        ("snapshot", 0, None, None, None),
        ("insert", 1, 1, "x", None),
        ("insert", 2, 2, "x", None),
        ("update_preimage", 3, 2, "x", None),
        ("update_postimage", 3, 2, "y", None),
        ("update_postimage", 4, 2, None, ["name"]),
        ("delete", 5, 2, "y", None),
        ("truncate", 6, None, None, None),
    ]
    assert set(view.column("_commit_version").to_pylist()) == {4}
    assert set(view.column("_commit_timestamp").to_pylist()) == {AT}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("cudrts"), st.booleans()), max_size=12))
def test_views_of_any_mix_equal_a_naive_expansion(kinds: list[tuple[str, bool]]) -> None:
    changes, expected = [], []
    for seq, (op, full) in enumerate(kinds):
        before = row(seq, "old") if op == "d" or (op == "u" and full) else None
        after = row(seq, "new") if op in "cur" else None
        changes.append(change(op, seq, before, after))
        names = {"c": "insert", "r": "insert", "d": "delete", "t": "truncate", "s": "snapshot"}
        if op == "u":
            expected += [("update_preimage", seq, seq, "old", None)] if full else []
            expected.append(("update_postimage", seq, seq, "new", None))
        else:
            image = before or after or {"id": None, "name": None}
            expected.append((names[op], seq, image["id"], image["name"], None))
    assert shape(table_view(batch_of(TABLE, changes))) == expected


def test_tagged_values_become_text_in_a_string_column() -> None:
    changes = [
        change("c", i, None, row(i, None), after_exact={"name": tag})
        for i, tag in enumerate(["i:12", "r:1.5", "v:z"])
    ]
    changes.append(change("u", 3, row(1, None), row(1, "plain"), before_exact={"name": "t:before"}))
    view = table_view(batch_of(TABLE, changes))
    assert view.column("name").to_pylist() == ["12", "1.5", "z", "before", "plain"]


def test_what_does_not_fit_is_an_error_with_the_line_that_mends_it() -> None:
    changes = [change("c", i, None, row(1), after_exact={"id": "t:secret-value"}) for i in range(3)]
    with pytest.raises(DataError) as caught:
        table_view(batch_of(TABLE, changes))
    assert caught.value.remedy == 'types = { "orders.id" = "string" } in [source]'
    assert "3 values of column id" in caught.value.message
    assert "secret-value" not in str(caught.value)


@pytest.mark.parametrize("tag", ["b:AAE=", "x:/w=="])
def test_bytes_in_a_string_column_do_not_fit(tag: str) -> None:
    with pytest.raises(DataError, match="column name"):
        table_view(batch_of(TABLE, [change("c", 0, None, row(1, None), after_exact={"name": tag})]))


def test_a_net_view_has_a_reset_first_then_deletes_and_upserts() -> None:
    changes = [
        change("c", 0, None, row(9)),
        change("t", 1),
        change("c", 2, None, row(1)),
        change("c", 3, None, row(2, None), after_exact={"name": "i:5"}),
        change("d", 4, row(3)),
        change("u", 5, None, row(4, None), after_absent=["name"]),
    ]
    view = net_view(net([batch_of(TABLE, changes)]))
    assert view.schema.equals(net_view_schema(TABLE), check_metadata=True)
    assert shape(view) == [
        ("truncate", 1, None, None, None),
        ("delete", 4, 3, None, None),
        ("upsert", 2, 1, "x", None),
        ("upsert", 3, 2, "5", None),
        ("upsert", 5, 4, None, ["name"]),
    ]


def test_views_of_nothing_keep_their_schema() -> None:
    assert table_view(batch_of(TABLE, [])).schema == table_view_schema(TABLE)
    view = net_view(net([batch_of(TABLE, [])]))
    assert view.num_rows == 0
    assert view.schema == net_view_schema(TABLE)


@pytest.mark.parametrize("name", ["_change_type", "_Change_Type"])
def test_a_column_named_like_one_of_the_views_own_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        table_view_schema(table_of({"id": "long", name: "string"}))


def test_the_schemas_are_those_spark_makes_of_them() -> None:
    """Spark compares a source's record batches with its own Arrow schema, order and nullability included."""
    types = pytest.importorskip("pyspark.sql.pandas.types", reason="unavailable: pyspark")
    kinds = "short integer long float double string binary boolean date timestamp timestamp_ntz decimal(20,3)"
    table = table_of({"id": "long"} | {f"c {kind}": kind for kind in kinds.split()})
    for schema in (table_view_schema(table), net_view_schema(table), envelope_schema()):
        spark = types.from_arrow_schema(schema, prefer_timestamp_ntz=True)
        assert types.to_arrow_schema(spark, timezone="UTC") == schema


@pytest.mark.parametrize(
    ("value", "was", "now", "expected"),
    [
        (5, pa.int32(), pa.int64(), 5),
        (5, pa.int64(), pa.int32(), 5),
        (2**40, pa.int64(), pa.int32(), None),
        (5, pa.int32(), pa.decimal128(10, 2), Decimal("5.00")),
        (Decimal("1.25"), pa.decimal128(10, 2), pa.decimal128(10, 1), None),
        (Decimal("1.25"), pa.decimal128(10, 2), pa.float64(), 1.25),
        (Decimal("12345678901234567890.12"), pa.decimal128(22, 2), pa.float64(), None),
        (0.1, pa.float64(), pa.float32(), None),
        (dt.datetime(2020, 1, 1, 12), pa.timestamp("us"), pa.date32(), None),
        (dt.date(2020, 1, 1), pa.date32(), pa.timestamp("us"), dt.datetime(2020, 1, 1)),
        (dt.datetime(2020, 1, 1), pa.timestamp("us"), pa.timestamp("us", tz="UTC"), None),
        (dt.date(2020, 1, 1), pa.date32(), pa.int32(), None),
        (5, pa.int32(), pa.timestamp("us"), None),
        (1, pa.int32(), pa.bool_(), None),
        (1, pa.int32(), pa.string(), "1"),
        ("1", pa.string(), pa.int32(), 1),
        ("x", pa.string(), pa.int32(), None),
        (b"\xff", pa.binary(), pa.string(), None),
        (None, pa.binary(), pa.int32(), None),
    ],
)
def test_a_value_of_another_type_means_the_same_or_is_an_error(
    value: object, was: pa.DataType, now: pa.DataType, expected: object
) -> None:
    view = pa.RecordBatch.from_arrays([pa.array([value], was)], names=["x"])
    if value is not None and expected is None:
        with pytest.raises(DataError, match="column x"):
            conform(view, pa.schema([("x", now)]))
    else:
        assert conform(view, pa.schema([("x", now)])).to_pylist() == [{"x": expected}]


def test_a_view_conforms_to_the_columns_a_query_was_started_with() -> None:
    old = pa.RecordBatch.from_pydict({"id": [1], "gone": ["x"], "n": [5]})
    schema = pa.schema(
        [("id", pa.int64()), ("n", pa.string()), ("new", pa.string()), ("_absent", pa.list_(pa.string()))]
    )
    view = old.append_column("_absent", pa.array([["gone"]], pa.list_(pa.string())))
    assert conform(view, schema).to_pylist() == [{"id": 1, "n": "5", "new": None, "_absent": ["gone", "new"]}]
    nothing = view.set_column(view.schema.get_field_index("_absent"), "_absent", pa.nulls(1, NAMES))
    assert conform(nothing, schema).column("_absent").to_pylist() == [["new"]]
    assert conform(view, None) is view
    with pytest.raises(DataError, match="column gone"):
        conform(view, pa.schema([("gone", pa.int64())]))

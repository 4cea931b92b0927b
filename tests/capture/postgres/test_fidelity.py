"""A value is the same by plain SQL, by snapshot, and by the text that the log carries: any type.

The log carries what a type's output function writes; that text is taken here from a plain query, byte for
byte. The values themselves are compared with what psycopg makes of the server's binary format, which shares
nothing with our way.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tailrace.capture.postgres import snapshot
from tailrace.capture.postgres.client import connect
from tailrace.capture.postgres.config import PostgresConfig
from tailrace.capture.postgres.types import CANONICAL, from_text
from tailrace.model.table import TableSchema, quote
from tests.capture.postgres.reading import batches, described, read_all
from tests.capture.postgres.streaming import Source
from tests.capture.postgres.values import SETUP, TYPES
from tests.support.postgres import Database

pytestmark = pytest.mark.timeout(120)
# A failure is shown as it was found: to shrink it would take minutes of a real server.
QUICK = settings(
    max_examples=20,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
NAMES = {f"c{place}": kind for place, kind in enumerate(TYPES)}
# What psycopg can hold of a type's values, and Spark too.
_FITS = {
    "date": "isfinite({0}) AND {0} BETWEEN '0001-01-01' AND '9999-12-31'",
    "timestamp_ntz": "isfinite({0}) AND {0} >= '0001-01-01' AND {0} < '10000-01-01'",
    "timestamp": "isfinite({0}) AND {0} >= '0001-01-01 00:00+00' AND {0} < '10000-01-01 00:00+00'",
    "decimal": "{0} <> 'NaN'",
}
values = st.fixed_dictionaries({name: st.none() | TYPES[kind] for name, kind in NAMES.items()})


@pytest.fixture
def config(database: Database) -> PostgresConfig:
    database.sql(*SETUP)
    columns = ", ".join(f"{name} {kind}" for name, kind in NAMES.items())
    database.app.execute(f"DROP TABLE every; CREATE TABLE every (id int PRIMARY KEY, {columns})")
    return PostgresConfig.from_url(database.url())


@pytest.fixture
def plain(config: PostgresConfig) -> Iterator[psycopg.Connection[Any]]:
    """A session with the settings of ours, for plain queries."""
    connection = connect(config)
    yield connection
    connection.close()


def insert(database: Database, table: str, kinds: dict[str, str], found: list[dict[str, str | None]]) -> None:
    marks = ", ".join(f"CAST(%s AS {kind})" for kind in kinds.values())
    with database.app.cursor() as cursor:
        cursor.execute(f"TRUNCATE {table}")
        for row_id, row in enumerate(found):
            cursor.execute(
                f"INSERT INTO {table} VALUES ({row_id}, {marks})", [row[name] for name in kinds], prepare=True
            )


@QUICK
@given(found=st.lists(values, min_size=1, max_size=6))
def test_every_type_is_the_same_by_sql_by_snapshot_and_by_the_logs_text(
    found: list[dict[str, str | None]],
    database: Database,
    config: PostgresConfig,
    plain: psycopg.Connection[Any],
) -> None:
    insert(database, "every", NAMES, found)
    check_equal(config, plain, "every")


@pytest.fixture
def source(database: Database, config: PostgresConfig) -> Source:
    """The table of every type, published, with a slot."""
    return Source(database, tables=("every",))


@settings(QUICK, max_examples=4)
@given(found=st.lists(values, min_size=5, max_size=15))
def test_every_type_is_the_same_by_stream_and_by_snapshot(
    found: list[dict[str, str | None]], database: Database, config: PostgresConfig, source: Source
) -> None:
    start = source.head()
    insert(database, "every", NAMES, found)
    streamed = [change.after for change in source.changes(start) if change.op == "c"]
    (images,) = read_all(config, "every")
    assert len(streamed) == len(found)
    for left, right in zip(streamed, sorted(images, key=lambda image: int(image["id"])), strict=True):
        assert left is not None
        assert list(left) == list(right)
        for name in left:
            assert bits(left[name]) == bits(right[name]), NAMES.get(name)


def check_equal(config: PostgresConfig, plain: psycopg.Connection[Any], name: str) -> None:
    table = described(config, name)
    (chunk,) = snapshot.plan(config, table.ref, 10**6)
    read = pa.Table.from_batches([batch.data for batch in batches(config, table, chunk)]).sort_by("seq")
    order = sorted(range(read.num_rows), key=lambda row: read.column("after")[row]["id"].as_py())
    images = read.column("after").combine_chunks().take(pa.array(order))
    exact = {}
    if "after_exact" in read.schema.names:
        tags = read.column("after_exact").combine_chunks().take(pa.array(order))
        exact = {field.name: tags.field(field.name) for field in tags.type}
    wire, own = texts_and_values(plain, table)
    for place, column in enumerate(table.columns):
        snapshotted, tagged = images.field(column.name), exact.get(column.name)
        streamed, stream_tags = from_text(pa.array(wire[place], pa.binary()), column.type)
        assert same(streamed.to_pylist(), snapshotted.to_pylist()), column
        nothing = [None] * len(order)
        assert (stream_tags.to_pylist() if stream_tags is not None else nothing) == (
            tagged.to_pylist() if tagged is not None else nothing
        ), column
        assert same(snapshotted.to_pylist(), own[place]), column
        for value, tag, text in zip(snapshotted.to_pylist(), tagged or nothing, wire[place], strict=True):
            if value is None and text is not None:
                assert tag is not None
                assert (tag if tag is None or isinstance(tag, str) else tag.as_py()) == "v:" + text.decode()


def texts_and_values(
    plain: psycopg.Connection[Any], table: TableSchema
) -> tuple[list[list[bytes | None]], list[list[Any]]]:
    """Each column as the output functions write it, and as psycopg reads it from the binary format."""
    names = [quote(column.name) for column in table.columns]
    source = f"FROM {quote(table.ref.schema)}.{quote(table.ref.name)} ORDER BY id"
    result = plain.execute(f"SELECT {', '.join(names)} {source}").pgresult
    assert result is not None
    wire = [[result.get_value(row, place) for row in range(result.ntuples)] for place in range(len(names))]
    asked = []
    for column, name in zip(table.columns, names, strict=True):
        family = column.type.name.partition("(")[0]
        if family == "string":
            # Text of text types is the value itself; of the others, the output function's text is the value.
            asked.append(name if column.native == "text" else "NULL::text")
        elif family in _FITS:
            asked.append(f"CASE WHEN {_FITS[family].format(name)} THEN {name} END")
        else:
            asked.append(name)
    with plain.cursor(binary=True) as cursor:
        fetched = cursor.execute(f"SELECT {', '.join(asked)} {source}").fetchall()
    own: list[list[Any]] = [list(values) for values in zip(*fetched, strict=True)]
    for place, column in enumerate(table.columns):
        if column.type.name == "string" and column.native != "text":
            own[place] = [None if text is None else bytes(text).decode() for text in wire[place]]
    return wire, own


def same(left: list[Any], right: list[Any]) -> bool:
    return [bits(value) for value in left] == [bits(value) for value in right]


def bits(value: Any) -> Any:
    """A value that equals another one only where they are the same to the last bit."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("d", value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value


@QUICK
@given(found=st.lists(values, min_size=1, max_size=4))
def test_the_text_of_a_type_that_spark_lacks_is_read_back_by_the_server_as_the_same_value(
    found: list[dict[str, str | None]],
    database: Database,
    config: PostgresConfig,
    plain: psycopg.Connection[Any],
) -> None:
    insert(database, "every", NAMES, found)
    texts = {name: kind for name, kind in NAMES.items() if kind not in ("json", "xml")}
    (images,) = read_all(config, "every")
    for image in images:
        row = plain.execute("SELECT FROM every WHERE id = %s", (image["id"],)).fetchone()
        assert row is not None
        strings = {n: k for n, k in texts.items() if isinstance(image[n], str)}
        if not strings:
            continue
        checks = ", ".join(
            f"{name}::text IS NOT DISTINCT FROM CAST(%s AS {kind})::text" for name, kind in strings.items()
        )
        given_back = [
            str(image[name]).removeprefix("v:") if not plainly(kind) else image[name]
            for name, kind in strings.items()
        ]
        answer = plain.execute(
            f"SELECT {checks} FROM every WHERE id = %s", (*given_back, image["id"])
        ).fetchone()
        assert answer is not None
        assert all(answer), [name for name, ok in zip(strings.items(), answer, strict=True) if not ok]


def plainly(kind: str) -> bool:
    return kind in ("text", "varchar(20)", "char(5)", "ext.citext", "name", '"char"', "label")


@pytest.mark.parametrize("width", [60, 200])
def test_a_wide_table_is_read_whole(
    width: int, database: Database, config: PostgresConfig, plain: psycopg.Connection[Any]
) -> None:
    kinds = list(TYPES)
    wide = {f"col {place} %": kinds[place % len(kinds)] for place in range(width)}
    columns = ", ".join(f"{quote(name)} {kind}" for name, kind in wide.items())
    database.app.execute(f"CREATE TABLE wide (id int PRIMARY KEY, {columns})")
    example: dict[str, str | None] = {name: simplest(kind) for name, kind in wide.items()}
    insert(database, "wide", wide, [example, dict.fromkeys(wide), example])
    check_equal(config, plain, "wide")
    assert len(read_all(config, "wide")[0][0]) == width + 1


def simplest(kind: str) -> str:
    return {"boolean": "t", "json": "{}", "jsonb": "[]"}.get(kind) or _ONE[kind]


_ONE = {
    **dict.fromkeys(TYPES, "1"),
    "uuid": "00000000-0000-0000-0000-000000000001",
    "mood": "sad",
    "date": "2024-02-29",
    **dict.fromkeys(("timestamp", "timestamp(3)", "timestamptz"), "2024-02-29 12:34:56.123"),
    **dict.fromkeys(("time", "timetz"), "12:34:56"),
    **dict.fromkeys([kind for kind in TYPES if kind.endswith("[]")], "{}"),
    **dict.fromkeys(("int4range", "numrange"), "[1,5)"),
    "numeric(3,5)": "0.00123",
    "numeric(38,38)": "0.5",
    "interval": "1 day",
    "bytea": "\\x00ff",
    "inet": "::1",
    "cidr": "10.0.0.0/8",
    "macaddr": "08:00:2b:01:02:03",
    "xml": "<a/>",
    "bit(5)": "10101",
    "int4multirange": "{[1,5)}",
    "pair": "(1,x)",
    "point": "(1,2)",
    "pg_lsn": "0/1",
}


def test_every_session_has_the_settings_that_make_text_canonical(
    database: Database, config: PostgresConfig, plain: psycopg.Connection[Any]
) -> None:
    with database.admin() as admin:
        admin.execute(
            "ALTER ROLE tailrace SET DateStyle = 'German'; ALTER ROLE tailrace SET bytea_output = escape"
        )
        admin.execute(
            "ALTER ROLE tailrace SET TimeZone = 'Asia/Kolkata';ALTER ROLE tailrace SET extra_float_digits = 0"
        )
        try:
            connection = connect(config)
            for name, value in CANONICAL.items():
                row = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
                assert row is not None
                assert row[0].split(",")[0] == value, name
            connection.close()
        finally:
            admin.execute("ALTER ROLE tailrace RESET ALL")

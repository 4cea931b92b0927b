"""Random rows of every type, written by SQL: the same by SQL's text, by snapshot and by stream.

The expectation is read here by plain Python from the text that the server writes under fixed settings, so it
shares nothing with the product's way. It holds whatever settings the role and the database have.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tailrace.capture.postgres.config import PostgresConfig
from tests.capture.postgres.more_values import MORE, SETUP
from tests.capture.postgres.reading import described, read_all
from tests.capture.postgres.streaming import Source
from tests.capture.postgres.values import TYPES
from tests.support.postgres import Database, Server

pytestmark = pytest.mark.timeout(170)
EVERY = {
    kind: st.one_of(*(found[kind] for found in (TYPES, MORE) if kind in found)) for kind in {**TYPES, **MORE}
}
NAMES = {f"c{place}": kind for place, kind in enumerate(EVERY)}
# The settings under which text is one for one with the value.
FIXED = (
    "SET DateStyle = 'ISO'; SET IntervalStyle = 'postgres'; SET TimeZone = 'UTC'; SET extra_float_digits = 1;"
    "SET bytea_output = 'hex'; SET lc_monetary = 'C'; SET xmlbinary = 'base64'; SET client_encoding = 'UTF8';"
    "SET quote_all_identifiers = off"
)
ODD = {
    "DateStyle": "'German, DMY'",
    "IntervalStyle": "'iso_8601'",
    "TimeZone": "'America/St_Johns'",
    "extra_float_digits": "-15",
    "bytea_output": "'escape'",
    "xmlbinary": "'hex'",
    "client_encoding": "'LATIN1'",
    "quote_all_identifiers": "on",
    "standard_conforming_strings": "off",
    "array_nulls": "off",
    "default_transaction_isolation": "'serializable'",
    "default_transaction_read_only": "on",
    "search_path": "'nowhere'",
    "statement_timeout": "'20s'",
}


def drawn(kind: str, count: int) -> list[str]:
    """Values of a type, as many as there are up to `count`."""
    found: list[str] = []

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(EVERY[kind])
    def keep(value: str) -> None:
        found.append(value)

    keep()
    return found


def rows(count: int) -> list[dict[str, str | None]]:
    """Rows with values of every type, a NULL in each column too.

    Types are drawn one by one: rows of so many columns would be more than one example may have.
    """
    columns = {name: [*drawn(kind, count), None] for name, kind in NAMES.items()}
    most = max(map(len, columns.values()))
    return [{name: found[row % len(found)] for name, found in columns.items()} for row in range(most)]


@pytest.fixture(scope="module")
def some() -> list[dict[str, str | None]]:
    return rows(15)


@pytest.fixture(scope="module", params=["plain", "odd"])
def source(request: pytest.FixtureRequest, postgres: Server) -> Iterator[Source]:
    """The table of every type, published, with a slot; once with settings that no capture would choose."""
    made = postgres.database()
    made.sql(*SETUP)
    columns = ", ".join(f"{name} {kind}" for name, kind in NAMES.items())
    made.sql(f"DROP TABLE every; CREATE TABLE every (id int PRIMARY KEY, {columns})")
    if request.param == "odd":
        with made.admin() as admin:
            for place, (name, value) in enumerate(ODD.items()):
                owner = f"ROLE tailrace IN DATABASE {made.name}" if place % 2 else f"DATABASE {made.name}"
                admin.execute(f"ALTER {owner} SET {name} = {value}".encode())
    yield Source(made, tables=("public.every",))
    made.drop()


# What no table's column has, or nobody writes: statistics, trees, summaries of indexes.
_INTERNAL = ("pg_node_tree", "pg_ndistinct", "pg_dependencies", "pg_mcv_list", "gtsvector")
_MISSING = """
SELECT t.typname FROM pg_catalog.pg_type t
WHERE t.typnamespace = 'pg_catalog'::regnamespace AND t.typtype IN ('b', 'r', 'm') AND t.typelem = 0
AND t.typname <> ALL (%s) AND t.typname NOT LIKE 'pg\\_brin%%'
AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute a
                WHERE a.attrelid = 'public.every'::regclass AND a.atttypid = t.oid)
ORDER BY 1
"""


def test_the_table_of_every_type_has_every_type_of_the_server(source: Source) -> None:
    with source.database.admin() as admin:
        missing = admin.execute(_MISSING, (list(_INTERNAL),)).fetchall()
    assert missing == []


def insert(database: Database, found: list[dict[str, str | None]]) -> None:
    marks = ", ".join(f"CAST(%s AS {kind})" for kind in NAMES.values())
    with database.app.transaction(), database.app.cursor() as cursor:
        cursor.execute("TRUNCATE public.every")
        cursor.executemany(
            f"INSERT INTO public.every VALUES (%s, {marks})",
            [(number, *row.values()) for number, row in enumerate(found)],
        )


def by_sql(database: Database, config: PostgresConfig) -> list[dict[str, Any]]:
    """The rows by the server's text, and plain Python."""
    table = described(config, "every")
    with psycopg.connect(
        host=str(database.server.directory), port=database.server.port, user="tailrace", dbname=database.name
    ) as reader:
        reader.execute(FIXED)
        result = reader.execute("SELECT * FROM public.every ORDER BY id").pgresult
    assert result is not None
    return [
        {
            column.name: value(result.get_value(row, place), column.type.name)
            for place, column in enumerate(table.columns)
        }
        for row in range(result.ntuples)
    ]


_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)(\+00)?")


def value(raw: bytes | None, kind: str) -> Any:
    """What a column of this type has for the server's text."""
    if raw is None:
        return None
    text = bytes(raw).decode()
    if kind in ("short", "integer", "long"):
        return int(text)
    if kind == "float":
        return float(np.float32(text))
    if kind == "double":
        return float(text)
    if kind == "boolean":
        return {"t": True, "f": False}[text]
    if kind == "binary":
        return bytes.fromhex(text.removeprefix("\\x"))
    if kind == "date":
        return date.fromisoformat(text) if _DAY.fullmatch(text) else "v:" + text
    if kind.startswith("timestamp"):
        found = _MOMENT.fullmatch(text)
        zone = UTC if kind == "timestamp" else None
        return datetime.fromisoformat(found[1]).replace(tzinfo=zone) if found else "v:" + text
    if kind.startswith("decimal"):
        return Decimal(text) if Decimal(text).is_finite() else "v:" + text
    assert kind == "string"
    return text


def bits(found: Any) -> Any:
    """A value that equals another one only where they are the same to the last bit."""
    if isinstance(found, float):
        return "nan" if math.isnan(found) else struct.pack("d", found)
    if isinstance(found, datetime):
        return found.isoformat() if found.tzinfo is None else found.astimezone(UTC).isoformat()
    return type(found), found


def check(found: list[dict[str, str | None]], source: Source) -> None:
    database, config = source.database, PostgresConfig.from_url(source.database.url())
    start = source.head()
    insert(database, found)
    expected = by_sql(database, config)
    (images,) = read_all(config, "every")
    images.sort(key=lambda image: int(image["id"]))
    streamed = [change.after for change in source.changes(start) if change.op == "c"]
    assert len(expected) == len(images) == len(streamed) == len(found)
    for right, snapshot, change in zip(expected, images, streamed, strict=True):
        assert change is not None
        assert list(right) == list(snapshot) == list(change)
        for name, wanted in right.items():
            assert bits(snapshot[name]) == bits(wanted), (NAMES.get(name), "by snapshot")
            assert bits(change[name]) == bits(wanted), (NAMES.get(name), "by stream")


def test_random_rows_of_every_type_are_the_same_by_sql_by_snapshot_and_by_stream(
    some: list[dict[str, str | None]], source: Source
) -> None:
    check(some, source)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_many_random_rows_of_every_type_are_the_same_by_sql_by_snapshot_and_by_stream(source: Source) -> None:
    for _ in range(2):
        check(rows(80), source)

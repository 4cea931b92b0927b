"""A value is the same in a document whichever engine builds it: PostgreSQL, SQLite, or Spark over either."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.documents.plan import (
    Aggregate,
    Comparison,
    Constant,
    Expression,
    Geo,
    Group,
    IndexPlan,
    Member,
    Raw,
    Scalar,
    Transform,
)
from tailrace.documents.render import build_query
from tailrace.model.errors import ConfigError
from tests.documents.rendering import (
    Documents,
    PostgresSource,
    Source,
    SparkEngine,
    SqliteSource,
    place,
    root,
)
from tests.support.postgres import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Build = Callable[[Source, IndexPlan], Documents]
Case = tuple[str, Any, list[Any], list[Any]]


LONG = [pytest.mark.spark, pytest.mark.long]


@pytest.fixture(scope="module", params=["source", pytest.param("spark", marks=pytest.mark.spark)])
def engine(request: pytest.FixtureRequest) -> Build:
    """As `build`; what it is asked for costs Spark one query only."""
    return _build(request)


@pytest.fixture(scope="module", params=["source", pytest.param("spark", marks=LONG)])
def build(request: pytest.FixtureRequest) -> Build:
    """The documents of a plan: by the source itself, and by Spark over its tables."""
    return _build(request)


def _build(request: pytest.FixtureRequest) -> Build:
    if request.param == "source":
        return lambda source, plan: source.documents(plan)
    spark: SparkSession = request.getfixturevalue("spark")
    return lambda source, plan: SparkEngine(spark, source).documents(plan)


@pytest.fixture(scope="module")
def source(postgres: Server) -> Iterator[PostgresSource]:
    """One database for all: each test makes its tables anew."""
    database = postgres.database()
    yield PostgresSource(database)
    database.drop()


def column(
    source: Source, build: Build, type_name: str, kind: Any, values: list[Any], **more: Any
) -> list[Any]:
    """How a column's values are shown."""
    source.sql("DROP TABLE IF EXISTS t", f"CREATE TABLE t (id int PRIMARY KEY, v {type_name})")
    source.insert("t", *enumerate(values))
    plan = root(source.table("t"), Member("v", Scalar("v", kind, **more)))
    found = build(source, plan)
    assert set(found) == {str(at) for at in range(len(values))}
    return [found[str(at)]["v"] for at in range(len(values))]


def columns(source: Source, build: Build, cases: list[Case]) -> list[list[Any]]:
    """How the values of many columns are shown, each a column of one wide table."""
    types = ", ".join(f"v{at} {type_name}" for at, (type_name, _, _, _) in enumerate(cases))
    source.sql("DROP TABLE IF EXISTS wide", f"CREATE TABLE wide (id int PRIMARY KEY, {types})")
    most = max(len(values) for _, _, values, _ in cases)
    source.insert(
        "wide",
        *(
            (row, *(values[row] if row < len(values) else None for _, _, values, _ in cases))
            for row in range(most)
        ),
    )
    members = [Member(f"v{at}", Scalar(f"v{at}", kind)) for at, (_, kind, _, _) in enumerate(cases)]
    found = build(source, root(source.table("wide"), *members))
    return [
        [found[str(row)][f"v{at}"] for row in range(len(values))]
        for at, (_, _, values, _) in enumerate(cases)
    ]


POSTGRES: list[Case] = [
    ("boolean", "boolean", [True, False, None], [True, False, None]),
    ("int", "boolean", [1, 0, None], [True, False, None]),
    ("text", "boolean", ["T", "no", "perhaps"], [True, False, None]),
    ("smallint", "short", [-32768, 32767], [-32768, 32767]),
    ("bigint", "long", [-(2**63), 2**63 - 1, None], [-(2**63), 2**63 - 1, None]),
    ("real", "float", [0.1, "NaN", "Infinity", 2.5], [Decimal("0.1"), None, None, Decimal("2.5")]),
    (
        "float8",
        "double",
        [0.1, 1e300, "-Infinity", -0.5],
        [Decimal("0.1"), Decimal("1e300"), None, Decimal("-0.5")],
    ),
    (
        "numeric(38,10)",
        "decimal",
        [Decimal("1234567890123456789012345678.0123456789"), "NaN", Decimal("-0.0000000001")],
        [Decimal("1234567890123456789012345678.0123456789"), None, Decimal("-0.0000000001")],
    ),
    (
        "numeric",
        "decimal",
        [Decimal("9" * 60 + ".5"), "NaN", "Infinity", Decimal("1.500"), 7],
        [Decimal("9" * 60 + ".5"), None, None, Decimal("1.5"), 7],
    ),
    ("money", "decimal", ["1234.50", "-3"], [Decimal("1234.5"), -3]),
    (
        "date",
        "date",
        ["2024-02-29", "0001-01-01", "infinity", "10000-01-01", "0044-03-15 BC"],
        ["2024-02-29", "0001-01-01", None, None, None],
    ),
    (
        "timestamp",
        "timestamp",
        [
            "2024-01-02 03:04:05",
            "2024-01-02 03:04:05.120000",
            "9999-12-31 23:59:59.999999",
            "infinity",
            "10000-01-01",
        ],
        ["2024-01-02T03:04:05", "2024-01-02T03:04:05.12", "9999-12-31T23:59:59.999999", None, None],
    ),
    (
        "timestamptz",
        "timestamp",
        [
            "2024-01-02 03:04:05+02",
            "2024-07-02 00:30:00.5+05:30",
            "-infinity",
            "10000-01-01 00:00:00+00",
            "0001-01-01 00:00:00+00",
        ],
        ["2024-01-02T01:04:05Z", "2024-07-01T19:00:00.5Z", None, None, "0001-01-01T00:00:00Z"],
    ),
    ("timestamptz", "date", ["2024-01-02 00:30:00+02"], ["2024-01-01"]),
    ("date", "timestamp", ["2024-01-02"], ["2024-01-02T00:00:00"]),
    ("time", "timestamp", ["10:20:30"], ["10:20:30"]),
    ("bytea", "binary", [b"", b"\0\xff" * 50, None], ["", base64.b64encode(b"\0\xff" * 50).decode(), None]),
    ("uuid", "uuid", ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"], ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    ("text", "uuid", ["A0EE"], ["a0ee"]),
    (
        "json",
        "json",
        ['{"b":\n 1.50, "a": [12345678901234567890123]}', "null", '"\\u0001"'],
        [{"b": Decimal("1.5"), "a": [12345678901234567890123]}, None, "\x01"],
    ),
    ("jsonb", "json", ['{"b": [null, true]}', None], [{"b": [None, True]}, None]),
    ("jsonb", "map", ['{"en": "x", "it": "y"}'], [{"en": "x", "it": "y"}]),
    ("char(5)", "keyword", ["ab", "a b"], ["ab", "a b"]),
    ("varchar(9)", "identifier", ["C-01"], ["C-01"]),
    ("int", "keyword", [7], ["7"]),
    ("numeric", "keyword", [Decimal("1.50")], ["1.5"]),
    ("inet", "keyword", ["10.0.0.1"], ["10.0.0.1"]),
    ("text", "integer", ["12", " 7 ", "x", "1e3", "\n7\t"], [12, 7, None, Decimal("1e3"), 7]),
    ("jsonb", "custom", ['{"a": 1}'], [{"a": 1}]),
    ("int", "custom", [3], [3]),
    ("text", "custom", ["3"], ["3"]),
    ("float8", "json", ["NaN", 0.5], [None, Decimal("0.5")]),
    ("bytea", "json", [b"\0\xff"], ["AP8="]),
    ("date", "json", ["infinity", "2024-01-02"], [None, "2024-01-02"]),
    ("numeric(8,2)", "keyword", ["NaN", Decimal("1.50")], [None, "1.5"]),
    ("numeric", "keyword", ["NaN", Decimal("100")], [None, "100"]),
]


@pytest.fixture(scope="module")
def of_postgres(source: PostgresSource, engine: Build) -> list[list[Any]]:
    return columns(source, engine, POSTGRES)


@pytest.mark.parametrize("at", range(len(POSTGRES)), ids=lambda at: f"{POSTGRES[at][0]}-{POSTGRES[at][1]}")
def test_shows_a_column_of_postgresql_as_its_kind(of_postgres: list[list[Any]], at: int) -> None:
    assert of_postgres[at] == POSTGRES[at][3]


SQLITE: list[Case] = [
    ("BOOLEAN", "boolean", [1, 0, None], [True, False, None]),
    ("TEXT", "boolean", ["true", "OFF", "?"], [True, False, None]),
    ("INTEGER", "long", [-(2**63), 2**63 - 1, None], [-(2**63), 2**63 - 1, None]),
    (
        "REAL",
        "double",
        [0.1, 1e300, float("inf"), 1 / 3, 1e-7],
        [Decimal("0.1"), Decimal("1e300"), None, Decimal("0.3333333333333333"), Decimal("1e-7")],
    ),
    ("DECIMAL(10,2)", "decimal", [1.5, 3, "4.25", None], [Decimal("1.5"), 3, Decimal("4.25"), None]),
    (
        "TEXT",
        "decimal",
        ["12345678901234567890.123", "x", " 7 ", "\n7\t", "007"],
        [Decimal("12345678901234567890.123"), None, 7, 7, None],
    ),
    (
        "DATE",
        "date",
        ["2024-02-29", "2024-02-30", "2024-01-02 03:04:05", "soon", None],
        ["2024-02-29", None, "2024-01-02", None, None],
    ),
    (
        "DATETIME",
        "timestamp",
        [
            "2024-01-02 03:04:05",
            "2024-01-02T03:04:05.1200",
            "2024-01-02 03:04:05+02:00",
            "2024-01-02T03:04:05.5Z",
            "2024-01-02 03:04:05-0130",
            "2024-01-02 03:04+05",
            "2024-01-02",
            "2024-01-02 03:04",
            "2024-02-30 00:00:00",
            "soon",
            None,
        ],
        [
            "2024-01-02T03:04:05",
            "2024-01-02T03:04:05.12",
            "2024-01-02T01:04:05Z",
            "2024-01-02T03:04:05.5Z",
            "2024-01-02T04:34:05Z",
            "2024-01-01T22:04:00Z",
            "2024-01-02T00:00:00",
            "2024-01-02T03:04:00",
            None,
            None,
            None,
        ],
    ),
    ("INTEGER", "timestamp", [0, 1704164645], ["1970-01-01T00:00:00Z", "2024-01-02T03:04:05Z"]),
    ("REAL", "timestamp", [2440587.5, 2460311.75], ["1970-01-01T00:00:00Z", "2024-01-02T06:00:00Z"]),
    ("INTEGER", "date", [1704164645], ["2024-01-02"]),
    ("BLOB", "binary", [b"", b"\0\xff", None], ["", "AP8=", None]),
    ("TEXT", "uuid", ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"], ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    (
        "BLOB",
        "uuid",
        [bytes.fromhex("A0EEBC999C0B4EF8BB6D6BB9BD380A11")],
        ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    ),
    (
        "JSON",
        "json",
        ['{"b":\n 1.50, "a": [12345678901234567890123]}', "null", "{", None],
        [{"b": Decimal("1.5"), "a": [12345678901234567890123]}, None, None, None],
    ),
    ("INTEGER", "keyword", [7], ["7"]),
    ("TEXT", "custom", ["3"], ["3"]),
    ("DECIMAL(12,6)", "keyword", [0.000001, 3, 1.5], ["0.000001", "3", "1.5"]),
    ("DATE", "date", ["0000-05-05", "0001-01-01"], [None, "0001-01-01"]),
    ("DATETIME", "timestamp", ["0000-01-01 00:00:00"], [None]),
    ("TEXT", "text", [b"\xff\xfe", "x"], [None, "x"]),
]


@pytest.fixture(scope="module")
def of_sqlite(engine: Build) -> list[list[Any]]:
    return columns(SqliteSource(), engine, SQLITE)


@pytest.mark.parametrize("at", range(len(SQLITE)), ids=lambda at: f"{SQLITE[at][0]}-{SQLITE[at][1]}")
def test_shows_a_column_of_sqlite_as_its_kind(of_sqlite: list[list[Any]], at: int) -> None:
    assert of_sqlite[at] == SQLITE[at][3]


@pytest.fixture(scope="module", params=["postgres", "sqlite"])
def either(request: pytest.FixtureRequest) -> Source:
    return SqliteSource() if request.param == "sqlite" else request.getfixturevalue("source")


def test_escapes_every_character_that_a_string_may_have(either: Source, build: Build) -> None:
    texts = [
        "".join(map(chr, range(1, 0x80))),
        "é ß 漢 𝄞 \u2028 \ufeff",
        '\\"\\',
        "%s %% {} :x ?1 ${env:HOME} ''",
        "",
    ]
    assert column(either, build, "text", "text", texts) == texts


def test_transforms_a_text_alike_everywhere(either: Source, build: Build) -> None:
    steps = (Transform("trim"), Transform("lowercase"), Transform("truncate", 4))
    assert column(either, build, "text", "keyword", [" \t\n ÀÉß𝄞X\r\n", "ABC", None], transforms=steps) == [
        "àéß𝄞",
        "abc",
        None,
    ]


def test_hashes_the_text_of_a_value(either: Source, build: Build) -> None:
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    seven = "7902699be42c8a8e46fbbb4501726517e86b22c56a189f7625a6da49081b2451"
    assert column(either, build, "int", "integer", [7], transforms=(Transform("hash"),)) == [seven]
    assert column(either, build, "text", "text", ["", None], transforms=(Transform("hash"),)) == [empty, None]
    assert column(either, build, "text", "text", ["é\nß"], transforms=(Transform("uppercase"),)) == ["É\nSS"]


def test_puts_the_default_for_null_only(either: Source, build: Build) -> None:
    default = {"a": [Decimal("1.50"), "it's \\ 100% ${x}", None, True]}
    made = column(either, build, "text", "keyword", ["x", None, ""], default=default, defaulted=True)
    assert made == ["x", default, ""]


def test_shows_points_groups_constants_and_expressions(either: Source, build: Build) -> None:
    number = "double precision"
    either.sql(
        "DROP TABLE IF EXISTS t",
        f"CREATE TABLE t (id int PRIMARY KEY, lat {number}, lon {number}, point text, price int)",
    )
    either.insert(
        "t",
        (1, 1.5, 2, "1.5, 2.25", 10),
        (2, 3.5, None, '{"lat": 1, "lon": 2}', None),
        (3, None, None, "[4.5, 5]", 1),
    )
    table = either.table("t")
    plan = root(
        table,
        Member("two", Geo("lat", "lon")),
        Member("one", Geo(column="point")) if either.dialect == "sqlite" else Member("one", Constant(None)),
        Member("all", Group((Member("id", Scalar("id", "long")), Member("none", Group(()))))),
        Member("fixed", Constant({"it's": ["\\", "%", 1.5]})),
        Member(
            "net", Expression("price * 2 + CASE WHEN point LIKE '%5%' THEN 1 ELSE 0 END -- twice", "long")
        ),
        Member("much", Expression("price > 5", "boolean")),
        Member("third", Expression("(price + 1) / 3", "integer")),
    )
    found = build(either, plan)
    shown = {"fixed": {"it's": ["\\", "%", Decimal("1.5")]}}
    points: list[Any] = [
        {"lat": Decimal("1.5"), "lon": Decimal("2.25")},
        {"lat": 1, "lon": 2},
        {"lat": 5, "lon": Decimal("4.5")},
    ]
    if either.dialect != "sqlite":
        points = [None, None, None]
    assert found == {
        "1": {
            "two": {"lat": Decimal("1.5"), "lon": 2},
            "one": points[0],
            "all": {"id": 1, "none": {}},
            **shown,
            "net": 21,
            "much": True,
            "third": 3,
        },
        "2": {
            "two": None,
            "one": points[1],
            "all": {"id": 2, "none": {}},
            **shown,
            "net": None,
            "much": None,
            "third": None,
        },
        "3": {
            "two": None,
            "one": points[2],
            "all": {"id": 3, "none": {}},
            **shown,
            "net": 3,
            "much": False,
            "third": 0,
        },
    }


def test_shows_an_expression_as_its_kind_whatever_its_type(either: Source, build: Build) -> None:
    local, zoned = ("timestamp", "timestamptz") if either.dialect == "postgres" else ("text", "text")
    either.sql("DROP TABLE IF EXISTS t", f"CREATE TABLE t (id int PRIMARY KEY, l {local}, z {zoned})")
    either.insert("t", (1, "2024-01-02 03:04:05.50", "2024-01-02 03:04:05+02:00"), (2, None, None))
    asked: list[tuple[str, Any, Any]] = [
        ("l", "timestamp", "2024-01-02T03:04:05.5"),
        ("z", "timestamp", "2024-01-02T01:04:05Z"),
        ("l", "date", "2024-01-02"),
        ("id = 1", "boolean", True),
        ("id * 1.5", "double", Decimal("1.5")),
        ("id * 1.5", "decimal", Decimal("1.5")),
        ("CASE WHEN id = 1 THEN 'x${env:HOME}' END", "keyword", "x${env:HOME}"),
        ("id", "keyword", "1"),
    ]
    members = [Member(f"e{at}", Expression(sql, kind)) for at, (sql, kind, _) in enumerate(asked)]
    found = build(either, root(either.table("t"), *members))
    assert list(found["1"].values()) == [shown for _, _, shown in asked]
    assert list(found["2"].values())[:3] == [None, None, None]


POINTS: list[tuple[str, list[Any]]] = [
    ("jsonb", ['{"lat": 1.5, "lon": 2}', "[4.5, 5]", '{"lat": 1}', "7"]),
    ("json", ['{"lat": 1.5, "lon": 2}', " [4.5, 5]", '{"lat": null, "lon": 1}', None]),
    ("text", ["1.5,2", "5, 4.5", "x", None]),
    ("point", ["(2,1.5)", "(4.5,5)", None, None]),
]


def test_reads_a_point_from_one_column(source: PostgresSource, build: Build) -> None:
    types = ", ".join(f"v{at} {type_name}" for at, (type_name, _) in enumerate(POINTS))
    source.sql("DROP TABLE IF EXISTS t", f"CREATE TABLE t (id int PRIMARY KEY, {types})")
    source.insert("t", *((row, *(values[row] for _, values in POINTS)) for row in range(4)))
    members = [Member(f"v{at}", Geo(column=f"v{at}")) for at in range(len(POINTS))]
    found = build(source, root(source.table("t"), *members))
    for row, point in enumerate(
        ({"lat": Decimal("1.5"), "lon": 2}, {"lat": 5, "lon": Decimal("4.5")}, None, None)
    ):
        assert found[str(row)] == {f"v{at}": point for at in range(len(POINTS))}


TEXT_POINTS: list[tuple[str | None, Any]] = [
    ("1.5,2", (Decimal("1.5"), 2)),
    (" 5 , 4.5 ", (5, Decimal("4.5"))),
    ('{"lat":60,"lon":5}', (60, 5)),
    ("[10.7,59.9]", (Decimal("59.9"), Decimal("10.7"))),
    ('\t{ "at": "a, {b}", "lon" : "2", "ok": true, "lat" : -1.5e1 }\n', (Decimal("-15"), 2)),
    (' [ 4.5 , "5", 9 ] ', (5, Decimal("4.5"))),
    ('{"lat":1.5,"lon":2,"lat":7}', (Decimal("1.5"), 2)),
    ('{"a":"lat","lat":"lon","lon":2}', None),
    ('{"lat":null,"lon":2}', None),
    ('{"lat":1}', None),
    ("{}", None),
    ("[1]", None),
    ("[]", None),
    ("{'lat':1,'lon':2}", None),
    ('{"lat":1,"lon":2', None),
    ('{"lat":1,"lon":2} x', None),
    ('{"lat":1,"lon":2,}', None),
    ('{"lat":01,"lon":2}', None),
    ("[1,2", None),
    ("[1,2] x", None),
    ('{"lat":1,"lon":2} }', None),
    ("9;10", None),
    ("1,2,3", None),
    ("", None),
    (None, None),
]


def test_reads_a_point_from_a_text_alike_everywhere(either: Source, build: Build) -> None:
    either.sql("DROP TABLE IF EXISTS t", "CREATE TABLE t (id int PRIMARY KEY, v varchar(99), c char(99))")
    either.insert("t", *((row, text, text) for row, (text, _) in enumerate(TEXT_POINTS)))
    plan = root(either.table("t"), Member("v", Geo(column="v")), Member("c", Geo(column="c")))
    found = build(either, plan)
    for row, (text, point) in enumerate(TEXT_POINTS):
        shown = point and dict(zip(("lat", "lon"), point, strict=True))
        assert found[str(row)] == {"v": shown, "c": shown}, text


def test_sums_and_compares_numbers_only(build: Build) -> None:
    source = SqliteSource()
    source.sql("CREATE TABLE t (id int PRIMARY KEY, p int, r real, d decimal(10,2))")
    source.insert("t", (1, 1, 1.5, 0.1), (2, 1, float("inf"), "x"), (3, 1, 2, 0.2), (4, 1, None, None))
    table = source.table("t")
    asked: list[tuple[Any, str, Any]] = [
        ("sum", "r", Decimal("3.5")),
        ("avg", "r", Decimal("1.75")),
        ("max", "r", 2),
        ("sum", "d", Decimal("0.30")),
        ("avg", "d", Decimal("0.15")),
        ("max", "d", Decimal("0.2")),
    ]
    members = [
        Member(
            f"v{at}", Aggregate(place("v", "has_many", table, parent="id", own="p"), function, name, "double")
        )
        for at, (function, name, _) in enumerate(asked)
    ]
    found = build(source, root(table, *members))["1"]
    assert list(found.values()) == [shown for _, _, shown in asked]


def test_sums_rows_without_a_key(source: PostgresSource, build: Build) -> None:
    source.sql(
        "DROP TABLE IF EXISTS t",
        "DROP TABLE IF EXISTS keyless",
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE TABLE keyless (p int, f float8)",
        "INSERT INTO t VALUES (1)",
        "INSERT INTO keyless VALUES (1, 0.3), (1, 0.1), (1, 0.2), (1, 'NaN')",
    )
    child = place("v", "has_many", source.table("keyless"), parent="id", own="p")
    plan = root(source.table("t"), Member("v", Aggregate(child, "sum", "f", "double")))
    assert build(source, plan) == {"1": {"v": Decimal(str(0.1 + 0.2 + 0.3))}}


def test_filters_a_boolean_as_documents_show_it(build: Build) -> None:
    source = SqliteSource()
    source.sql("CREATE TABLE t (id int PRIMARY KEY, b boolean)")
    source.insert("t", (1, 1), (2, 0), (3, None))
    for value, ids in ((True, {"1"}), ("yes", {"1"}), (0, {"2"})):
        plan = root(source.table("t"), filters=(Comparison("b", "eq", value),))
        assert set(build(source, plan)) == ids
    # It may keep it as a word.
    source.sql("UPDATE t SET b = 'yes' WHERE id = 3")
    assert set(source.documents(root(source.table("t"), filters=(Comparison("b", "eq", True),)))) == {
        "1",
        "3",
    }


@pytest.mark.parametrize("sql", ["id IN (SELECT id FROM other)", "(select max(id) from t)"])
def test_an_expression_that_reads_other_rows_is_refused(sql: str) -> None:
    source = SqliteSource()
    source.sql("CREATE TABLE t (id int PRIMARY KEY)")
    with pytest.raises(ConfigError, match="other rows"):
        build_query(root(source.table("t"), Member("v", Expression(sql, "long"))), "sqlite")
    with pytest.raises(ConfigError, match="other rows"):
        build_query(root(source.table("t"), filters=(Raw(sql),)), "sqlite")


def test_a_text_that_is_not_utf8_spoils_no_document() -> None:
    source = SqliteSource()
    source.sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, CAST(x'41ff42' AS TEXT))"
    )
    assert source.documents(root(source.table("t"), Member("v", Scalar("v", "text")))) == {
        "1": {"v": "A\ufffdB"}
    }

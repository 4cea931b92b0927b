"""More values than `values.py` has: the types that a table rarely has, and the far ends of the usual ones."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.capture.postgres import values
from tests.capture.postgres.values import TYPES, texts

SETUP = (
    *values.SETUP[:-2],
    *(f"CREATE EXTENSION {name} SCHEMA ext" for name in ("hstore", "ltree", "cube", "isn")),
    "CREATE DOMAIN prices AS price[]",
    "CREATE DOMAIN dearest AS price CHECK (value IS NULL OR value <> 1)",
    "CREATE DOMAIN moment AS timestamptz(3)",
    "CREATE DOMAIN feeling AS mood",
    "CREATE DOMAIN couple AS pair",
    "CREATE TYPE nested AS (p pair, words text[], cost price, at timestamptz, raw bytea, none int)",
    "CREATE TYPE floatrange AS RANGE (subtype = float8)",
    "CREATE TABLE every ()",
    "CREATE TABLE ext.hidden ()",
)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _array(elements: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(st.none() | elements, max_size=4).map(
        lambda found: "{" + ",".join("NULL" if item is None else _quoted(item) for item in found) + "}"
    )


def _points(least: int, most: int) -> st.SearchStrategy[str]:
    number = st.floats(-1e6, 1e6) | st.sampled_from([-0.0, 0.1, 1e-300, 5e-324])
    return st.lists(st.tuples(number, number), min_size=least, max_size=most).map(
        lambda found: ",".join(f"({x!r},{y!r})" for x, y in found)
    )


def _range(elements: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    shapes = st.sampled_from(["[{0},{0}]", "[{0},)", "(,{0}]", "(,)", "empty"])
    return st.tuples(elements, shapes).map(lambda found: found[1].format(_quoted(found[0])))


def _row(*fields: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*(st.none() | field for field in fields)).map(
        lambda found: "(" + ",".join("" if item is None else _quoted(item) for item in found) + ")"
    )


# Every control character, the borders of UTF-8's lengths, what is no character, and blanks at either end.
_CODES = (*range(1, 33), *range(127, 160), 0x7FF, 0x800, 0xFFFD, 0xFFFE, 0xFFFF, 0x10000, 0x10FFFF)
_odd = st.lists(
    st.sampled_from([*map(chr, _CODES), "\u202e", "\u0301", "\\N", "\\.", "NULL", '"', "é"]), max_size=8
).map("".join)
_hstore = st.dictionaries(texts, st.none() | texts, max_size=4).map(
    lambda found: ",".join(
        f"{_quoted(key)}=>{'NULL' if item is None else _quoted(item)}" for key, item in found.items()
    )
)
_days = TYPES["date"].filter(lambda day: "infinity" not in day)
_long = st.tuples(st.integers(1, 10**18), st.integers(1, 1500), st.integers(0, 1500)).map(
    lambda found: f"-{str(found[0]) * (found[1] // 18 + 1)}.{'7' * found[2]}1"
)

MORE: dict[str, st.SearchStrategy[str]] = {
    "text": _odd,
    "varchar": _odd,
    "bpchar": _odd,
    "char(12)": _odd.map(lambda text: text[:12]),
    "char(1)": st.sampled_from(["", " ", "é", "\\", "\t"]),
    "float4": st.sampled_from(["1e-45", "-1e-45", "3.4028235e38", "1.17549435e-38", "-0", "16777217"]),
    "float8": st.sampled_from(["5e-324", "2.2250738585072011e-308", "1.7976931348623157e308", "-0", "1e22"]),
    "numeric": _long
    | st.sampled_from(["NaN", "Infinity", "-Infinity", "0.000", "-0.10", "1e-16383", "1e131071"]),
    "numeric(38,37)": st.sampled_from(["NaN", "9." + "9" * 37, "-9." + "9" * 37, "0", "1e-37"]),
    "numeric(39,0)": st.sampled_from(["NaN", "9" * 39]),
    "numeric(1000,1000)": st.sampled_from(["0." + "1234567890" * 100, "NaN"]),
    "numeric(2,-3)": st.sampled_from(["99000", "-1499", "NaN"]),
    "numeric(1,0)": st.sampled_from(["9", "-9", "0", "NaN"]),
    "timestamp(0)": TYPES["timestamp"],
    "timestamptz(2)": TYPES["timestamptz"],
    "timestamp": st.sampled_from(
        [
            *("4714-11-24 00:00:00 BC", "294276-12-31 23:59:59.999999", "0001-01-01 00:00:00", "infinity"),
            *("9999-12-31 23:59:59.999999", "10000-01-01 00:00:00", "0001-12-31 23:59:59.999999 BC"),
            *("1969-12-31 23:59:59.999999", "1582-10-10 12:00:00", "2016-12-31 23:59:60", "1970-01-01"),
        ]
    ),
    "date": st.sampled_from(["4714-11-24 BC", "5874897-12-31", "0001-01-01", "0001-12-31 BC", "1582-10-10"]),
    "time(0)": TYPES["time"],
    "timetz(3)": TYPES["timetz"],
    "interval(0)": TYPES["interval"],
    "interval year to month": st.integers(-99999, 99999).map(lambda months: f"{months} months"),
    "interval": st.sampled_from(
        ["-1 mons +1 day -00:00:01", "0", "178000000 years", "-2147483648 days", "2562047788:00:54.775807"]
    ),
    "macaddr8": st.sampled_from(["08:00:2b:01:02:03:04:05", "ff:ff:ff:ff:ff:ff:ff:ff"]),
    "lseg": _points(2, 2).map(lambda found: f"[{found}]"),
    "box": _points(2, 2),
    "path": st.tuples(_points(1, 4), st.sampled_from(["[{}]", "({})"])).map(lambda p: p[1].format(p[0])),
    "polygon": _points(1, 4).map(lambda found: f"({found})"),
    "circle": _points(1, 1).map(lambda found: f"<{found},2.5>"),
    "line": st.sampled_from(["{1,2,3}", "{-0.1,1e-300,0}"]),
    "ext.hstore": _hstore,
    "ext.ltree": st.sampled_from(["a.b.c", ""]),
    "ext.lquery": st.just("a.*{1,2}.b|c"),
    "ext.cube": st.sampled_from(["(1, 2),(3, 4.5)", "(0.1)"]),
    "ext.isbn": st.just("978-0-393-04002-9"),
    "jsonpath": st.just('$."a"[*] ? (@ > 1)'),
    "tsquery": st.just("'fat' & ( 'rat':AB | !'cat' )"),
    "xid": st.sampled_from(["0", "4294967295"]),
    "xid8": st.sampled_from(["0", "18446744073709551615"]),
    "tid": st.just("(4294967295,65535)"),
    "pg_snapshot": st.just("10:20:10,14,15"),
    "refcursor": texts,
    "regtype": st.sampled_from(["int4", "mood", "timestamptz", "pair[]"]),
    "regproc": st.just("pg_catalog.now"),
    "regprocedure": st.just("pg_catalog.lower(text)"),
    "regoper": st.just("pg_catalog.||/"),
    "regoperator": st.just("pg_catalog.+(integer,integer)"),
    "regcollation": st.just('"C"'),
    "regconfig": st.just("simple"),
    "regdictionary": st.just("simple"),
    "regnamespace": st.sampled_from(["public", "ext"]),
    "regrole": st.just("app"),
    "aclitem": st.just("app=r*w/app"),
    "cid": st.just("7"),
    "txid_snapshot": st.just("10:20:10,14,15"),
    "oidvector": st.just("1 2 4294967295"),
    "int2vector": st.just("1 -2 3"),
    "bit(1)": st.sampled_from(["0", "1"]),
    "bit(77)": st.text(st.sampled_from("01"), min_size=77, max_size=77),
    "money[]": _array(TYPES["money"]),
    "float4[]": _array(TYPES["float4"]),
    "float8[]": _array(TYPES["float8"]),
    "boolean[]": _array(TYPES["boolean"]),
    "date[]": _array(TYPES["date"]),
    "timestamp[]": _array(TYPES["timestamp"]),
    "interval[]": _array(TYPES["interval"]),
    "mood[]": _array(TYPES["mood"]),
    "uuid[]": _array(TYPES["uuid"]),
    "jsonb[]": _array(TYPES["jsonb"]),
    "ext.citext[]": _array(TYPES["ext.citext"]),
    "pair[]": _array(TYPES["pair"]),
    "int4range[]": _array(TYPES["int4range"]),
    "int8range": TYPES["int4range"],
    "daterange": _range(_days.filter(lambda day: not day.startswith("5874897"))),
    "tsrange": _range(TYPES["timestamp"]),
    "tstzrange": _range(TYPES["timestamptz"]),
    "floatrange": _range(TYPES["float8"].filter(lambda text: text not in ("NaN", "nan"))),
    "nummultirange": _range(TYPES["price"].filter(lambda text: text != "NaN")).map("{{{}}}".format),
    "datemultirange": _range(_days.filter(lambda day: not day.startswith("5874897"))).map("{{{}}}".format),
    "int8multirange": TYPES["int4multirange"],
    "tsmultirange": _range(TYPES["timestamp"]).map("{{{}}}".format),
    "tstzmultirange": _range(TYPES["timestamptz"]).map("{{{}}}".format),
    "floatmultirange": _range(TYPES["float8"].filter(lambda text: text not in ("NaN", "nan"))).map(
        "{{{}}}".format
    ),
    "nested": _row(TYPES["pair"], _array(texts), TYPES["price"], TYPES["timestamptz"], TYPES["bytea"]).map(
        lambda row: row[:-1] + ",)"
    ),
    "prices": _array(TYPES["price"]),
    "dearest": TYPES["price"].filter(lambda text: float(text) != 1),
    "moment": TYPES["timestamptz"],
    "feeling": TYPES["mood"],
    "couple": TYPES["pair"],
}

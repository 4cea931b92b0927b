"""Values of every type, as texts that the server takes: the odd ones often, the usual ones too."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime

from hypothesis import strategies as st

SETUP = (
    "CREATE SCHEMA ext",
    "CREATE EXTENSION citext SCHEMA ext",
    "CREATE TYPE mood AS ENUM ('sad', 'so-so', 'it''s \"fine\", really')",
    "CREATE DOMAIN price AS numeric(12, 2)",
    "CREATE DOMAIN label AS text CHECK (value <> 'never')",
    "CREATE TYPE pair AS (a int, b text)",
    "GRANT USAGE ON SCHEMA ext TO tailrace",
    "CREATE TABLE every ()",
    "CREATE TABLE ext.hidden ()",
)

_characters = st.sampled_from(list("\\\t\n\r\b\f\vNtx.\"'{},()%é€😀\ufeff a")) | st.characters(
    exclude_characters="\0", exclude_categories=["Cs"]
)
texts = st.text(_characters, max_size=12)
_short = st.text(_characters, max_size=5)


def _integers(bits: int) -> st.SearchStrategy[str]:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    return (st.sampled_from([low, high, 0, -1]) | st.integers(low, high)).map(str)


def _floats(width: int) -> st.SearchStrategy[str]:
    odd = st.sampled_from(["NaN", "Infinity", "-Infinity", "-0", "0.1"])
    numbers = st.floats(width=32) if width == 32 else st.floats()
    return odd | numbers.map(repr).map(lambda text: text.replace("inf", "Infinity"))


def _numeric(precision: int, scale: int, *odd: str) -> st.SearchStrategy[str]:
    most = 10**precision - 1
    plain = (st.sampled_from([most, -most, 0, 1]) | st.integers(-most, most)).map(
        lambda units: (
            f"{units // 10**scale if units >= 0 else -(-units // 10**scale)}"
            if scale == 0
            else f"{'-' if units < 0 else ''}{abs(units) // 10**scale}.{abs(units) % 10**scale:0{scale}d}"
        )
    )
    return plain | st.sampled_from(odd) if odd else plain


_days = st.dates(min_value=date(1, 1, 1)).map(str) | st.sampled_from(
    ["infinity", "-infinity", "0044-03-15 BC", "4713-01-01 BC", "10000-01-01", "5874897-12-31", "0001-01-01"]
)
_moments = st.datetimes(min_value=datetime(1, 1, 2)).map(str) | st.sampled_from(
    [
        "infinity",
        "-infinity",
        "0044-03-15 12:00:00.5 BC",
        "294276-12-31 23:59:59.25",
        "9999-12-31 23:59:59",
    ]
)
_zoned = (
    st.datetimes(min_value=datetime(1, 1, 2), timezones=st.just(UTC)).map(str)
    | st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2100, 1, 1)).map(
        lambda moment: f"{moment} Asia/Kolkata"
    )
    | st.sampled_from(["infinity", "-infinity", "0044-03-15 12:00:00+00 BC", "294276-12-31 23:59:59+00"])
)
_times = st.times().map(str) | st.just("24:00:00")
_blobs = st.binary(max_size=20).map(lambda blob: "\\x" + blob.hex())
_bits = st.text(st.sampled_from("01"), min_size=5, max_size=5)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _arrays(elements: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    items = st.none() | elements
    return st.lists(items, max_size=4).map(
        lambda found: "{" + ",".join("NULL" if item is None else _quoted(item) for item in found) + "}"
    )


def _ranges(elements: st.SearchStrategy[int]) -> st.SearchStrategy[str]:
    return st.tuples(
        elements, elements, st.sampled_from(["[{},{})", "({},{}]", "[{},]", "(,{})", "empty"])
    ).map(lambda found: found[2].format(min(found[:2]), max(found[:2])))


_ZONES = st.sampled_from(["+00", "-15:59", "+05:30", "+15:59:59"])
TYPES: dict[str, st.SearchStrategy[str]] = {
    "boolean": st.sampled_from(["t", "f"]),
    "int2": _integers(16),
    "int4": _integers(32),
    "int8": _integers(64),
    "float4": _floats(32),
    "float8": _floats(64),
    "numeric": _numeric(60, 30, "NaN", "Infinity", "-Infinity", "1e1000", "1e-1000"),
    "numeric(38,10)": _numeric(38, 10, "NaN"),
    "numeric(38,0)": _numeric(38, 0, "NaN"),
    "numeric(38,38)": _numeric(38, 38, "NaN"),
    "numeric(5,2)": _numeric(5, 2, "NaN"),
    "numeric(5,-2)": _numeric(6, 0),
    "numeric(3,5)": st.integers(0, 999).map(lambda units: f"0.00{units:03d}"),
    "text": texts,
    "varchar(20)": texts,
    "char(5)": _short,
    "ext.citext": texts,
    "name": _short,
    '"char"': st.characters(min_codepoint=1, max_codepoint=126),
    "uuid": st.uuids().map(str),
    "json": texts.map(lambda text: '{ "a" : ' + json.dumps(text) + ' , "a": 1e400 }'),
    "jsonb": texts.map(lambda text: "[null, 1.10, " + json.dumps(text) + "]"),
    "mood": st.sampled_from(["sad", "so-so", 'it\'s "fine", really']),
    "price": _numeric(12, 2, "NaN"),
    "label": texts.filter(lambda text: text != "never"),
    "date": _days,
    "timestamp": _moments,
    "timestamp(3)": _moments,
    "timestamptz": _zoned,
    "time": _times,
    "timetz": st.tuples(_times, _ZONES).map("".join),
    "interval": st.tuples(st.integers(-9999, 9999), st.integers(-99999, 99999), st.floats(-1e6, 1e6)).map(
        lambda parts: f"{parts[0]} months {parts[1]} days {parts[2]:.6f} seconds"
    ),
    "bytea": _blobs,
    "inet": st.ip_addresses().map(str) | st.sampled_from(["10.1.2.3/8", "::1/64"]),
    "cidr": st.sampled_from(["10.0.0.0/8", "::/0", "192.168.1.0/24"]),
    "macaddr": st.just("08:00:2b:01:02:03"),
    "money": st.sampled_from(["0", "-92233720368547758.08", "92233720368547758.07", "1.05"]),
    "xml": st.sampled_from(["<a>1</a>", "", "<a b='&lt;'>é\n</a>"]),
    "bit(5)": _bits,
    "varbit": st.text(st.sampled_from("01"), max_size=70),
    "int4[]": _arrays(_integers(32)),
    "text[]": _arrays(texts),
    "numeric[]": _arrays(_numeric(30, 5, "NaN")),
    "timestamptz[]": _arrays(_zoned),
    "bytea[]": _arrays(_blobs),
    "int4[][]": st.sampled_from(["{{1,2},{3,NULL}}", "[0:1]={7,8}"]),
    "int4range": _ranges(st.integers(-(10**6), 10**6)),
    "numrange": _ranges(st.integers(-(10**6), 10**6)),
    "int4multirange": st.sampled_from(["{}", "{[1,3),[7,9)}"]),
    "pair": st.tuples(_integers(32), texts).map(lambda found: f"({found[0]},{_quoted(found[1])})"),
    "point": st.tuples(st.floats(allow_nan=False), st.floats(allow_nan=False)).map(
        lambda p: f"({p[0]!r},{p[1]!r})".replace("inf", "Infinity")
    ),
    "pg_lsn": st.just("16/B374D848"),
    "regclass": st.sampled_from(["pg_class", "public.every", "ext.hidden", "0"]),
    "oid": st.sampled_from(["0", "4294967295"]),
    "tsvector": st.just("'a':1A 'it''s':2"),
}

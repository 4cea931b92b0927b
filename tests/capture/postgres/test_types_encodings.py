"""Text of databases in other encodings: the same by SQL, by snapshot and by stream, also what is no UTF-8."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tailrace.capture.postgres.config import PostgresConfig
from tests.capture.postgres.reading import read_all
from tests.capture.postgres.streaming import CONSUMER, Source
from tests.support.postgres import Server

pytestmark = pytest.mark.timeout(120)
QUICK = settings(
    max_examples=5,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
# The bytes of text that such a database takes, and what is to be read of them.
ANY_BYTES = st.binary(max_size=12).map(lambda found: found.replace(b"\0", b""))
ENCODINGS = {
    "SQL_ASCII": ANY_BYTES | st.text(st.characters(exclude_characters="\0", codec="utf-8")).map(str.encode),
    "LATIN1": ANY_BYTES,
    "WIN1252": st.text(st.characters(exclude_characters="\0", codec="cp1252")).map(
        lambda text: text.encode("cp1252")
    ),
    "EUC_JP": st.text(st.sampled_from("a日本語テスト\\\t\n"), max_size=8).map(
        lambda text: text.encode("euc_jp")
    ),
}
PYTHON = {"LATIN1": "latin-1", "WIN1252": "cp1252", "EUC_JP": "euc_jp"}


def meant(found: bytes, encoding: str) -> str:
    if encoding in PYTHON:
        return found.decode(PYTHON[encoding])
    try:
        return found.decode()
    except UnicodeDecodeError:
        return "x:" + base64.b64encode(found).decode()


@pytest.fixture(params=ENCODINGS)
def encoded(request: pytest.FixtureRequest, postgres: Server) -> Iterator[tuple[str, Source]]:
    """A table in a database of each encoding."""
    made = postgres.database(f"ENCODING '{request.param}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    yield (
        request.param,
        Source(made, "CREATE TABLE t (id int PRIMARY KEY, a text, b varchar(9999), c text[], d json)"),
    )
    made.drop()


@QUICK
@given(data=st.data())
def test_text_of_any_encoding_is_the_same_by_sql_by_snapshot_and_by_stream(
    data: st.DataObject, encoded: tuple[str, Source]
) -> None:
    encoding, source = encoded
    start = source.head()
    source.sql("TRUNCATE t")
    found = data.draw(st.lists(ENCODINGS[encoding], min_size=1, max_size=12))
    for row, text in enumerate(found):
        # As bytes, that nothing converts on the way.
        take = f"convert_from('\\x{text.hex()}', getdatabaseencoding())"
        source.sql(f"INSERT INTO t VALUES ({row}, {take}, {take})")
    expected = [
        {"id": row, "a": meant(text, encoding), "b": meant(text, encoding), "c": None, "d": None}
        for row, text in enumerate(found)
    ]
    (images,) = read_all(PostgresConfig.from_url(source.database.url()), "t")
    assert sorted(images, key=lambda image: int(image["id"])) == expected
    assert [change.after for change in source.changes(start) if change.op == "c"] == expected


def test_a_process_without_a_stream_can_look_into_a_slot_whose_texts_are_no_utf_8(postgres: Server) -> None:
    made = postgres.database("ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    source = Source(made, "CREATE TABLE t (id int PRIMARY KEY, a text)")
    idle = made.connect()
    idle.execute("BEGIN; INSERT INTO t VALUES (99)")
    source.sql("INSERT INTO t VALUES (1, E'\\xff')")
    later = source.open()
    later.register(CONSUMER)
    # The transaction that runs is none of those that the slot would send.
    later.wait_visible(source.head(), 10)
    idle.close()
    made.drop()

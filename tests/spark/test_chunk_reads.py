"""A chunk whose reading breaks off is read again, as long as nothing of it was handed on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tailrace.capture.contract import Chunk
from tailrace.capture.postgres import PostgresCapture, PostgresConfig
from tailrace.model.errors import Transient
from tailrace.model.table import TableRef
from tailrace.spark import read
from tailrace.spark.partitions import ChunkRead
from tests.support.postgres import Database, database, postgres
from tests.support.proxy import Proxy, proxy_to

__all__ = ["database", "postgres"]
ROWS, WIDTH = 4000, 500
ITEMS = TableRef("public", "items")
# Some batches of the chunk, which has about two million bytes.
CUT = 1_000_000


@pytest.fixture
def items(database: Database) -> Database:
    database.sql(
        "CREATE TABLE items (id int PRIMARY KEY, pad text)",
        f"INSERT INTO items SELECT i, repeat('x', {WIDTH}) FROM generate_series(1, {ROWS}) i",
    )
    database.publish("items")
    return database


@pytest.fixture
def proxy(items: Database) -> Iterator[Proxy]:
    with proxy_to(items.server.port) as made:
        yield made


@pytest.fixture
def capture(items: Database, proxy: Proxy) -> Iterator[PostgresCapture]:
    """One that hands over a chunk in many batches, and reaches its server by the proxy."""
    made = PostgresCapture(PostgresConfig.from_url(items.url(port=proxy.port), {"batch_bytes": 100_000}))
    made.setup([ITEMS])
    yield made
    made.close()


def chunk_of(capture: PostgresCapture) -> ChunkRead:
    head = capture.register("reader")
    chunk = Chunk(ITEMS, 0, {"from": None, "below": None}, ROWS)
    return ChunkRead(capture.describe(ITEMS).to_json(), chunk, head.version, head.source)


def test_a_reset_after_the_first_batches_of_a_chunk_is_no_matter(
    capture: PostgresCapture, proxy: Proxy
) -> None:
    chunk = chunk_of(capture)
    proxy.cut_after(CUT)
    found = list(read.read_chunk(chunk, capture))
    assert proxy.cuts
    ops = [op for batch in found for op in batch.data.column("op").to_pylist()]
    assert ops == ["s", *["r"] * ROWS]
    ids = [image["id"] for batch in found[1:] for image in batch.data.column("after").to_pylist()]
    assert sorted(ids) == list(range(1, ROWS + 1))
    seqs = [seq for batch in found[1:] for seq in batch.data.column("seq").to_pylist()]
    assert seqs == list(range(chunk.seq, chunk.seq + ROWS))


def test_a_reset_in_a_batch_read_is_no_matter_either(capture: PostgresCapture, proxy: Proxy) -> None:
    chunk = chunk_of(capture)
    proxy.cut_after(CUT)
    table = capture.describe(ITEMS)
    found = read.patient_rows(lambda: capture.snapshot(table, chunk.chunk, position=0, seq=0))
    rows = [read.typed_rows(batch) for batch in found]
    assert proxy.cuts
    assert sorted(i for batch in rows for i in batch.column("id").to_pylist()) == list(range(1, ROWS + 1))


def test_a_chunk_beyond_the_bound_is_handed_on_as_it_comes_and_its_fault_is_told(
    capture: PostgresCapture, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "HELD_BYTES", 200_000)
    chunk = chunk_of(capture)
    proxy.cut_after(CUT)
    given = 0
    with pytest.raises(Transient):  # noqa: PT012
        for batch in read.read_chunk(chunk, capture):
            given += len(batch)
    assert 0 < given < ROWS

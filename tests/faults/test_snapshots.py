"""Rows 2, 3, 13, 24 and 29 once more: what strikes a snapshot, and everything that can happen in one batch.

Kills at random moments, races with commits that nobody sees, and tables churned meanwhile are in
tests/snapshots.
"""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from tests.faults import oracles
from tests.faults.databases import Postgres
from tests.faults.marks import databases
from tests.faults.oracles import changes_of
from tests.faults.rig import Rig
from tests.snapshots.reads import every_chunk, noted, read_again
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until

Make = Callable[..., Rig]
CHUNKS: dict[str, Any] = {"rows": 1000, "chunkRows": 100, "maxRowsPerTrigger": 200}


def postgres_of(rig: Rig) -> Postgres:
    assert isinstance(rig.ledger, Postgres)
    return rig.ledger


@databases(long="sqlite")
def test_kills_inside_a_chunk_and_at_the_hand_over_repeat_no_finished_chunk_and_skip_none(rig: Make) -> None:
    r = rig(**CHUNKS)
    r.write()
    strikes: tuple[tuple[str, dict[str, Any]], ...] = (
        ("read", {"kind": "chunk", "chunk": 5}),
        ("apply.after", {"snapshot": True, "done": 10}),
    )
    for point, facts in strikes:
        r.points.arm(point, "kill", **facts)
        r.start().died()
    r.start()
    r.settle()
    assert every_chunk(r, noted(r))
    assert not read_again(r, noted(r))


def unread(port: int) -> int:
    """How many bytes wait for whoever has this local port."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(int(line[4].split(":")[1], 16) for line in lines if int(line[1].split(":")[1], 16) == port)


class Resetting(Proxy):
    """A proxy whose cuts are resets, as of a host that has lost its connections: no end, an error.

    A reset takes away what the client has not read yet, so it waits for the client to have read what was
    passed on: only then is the cut where the test wants it.
    """

    def cut(self) -> None:
        with self._lock:
            pairs, self._pairs = self._pairs, []
        self.cuts += len(pairs)
        ports = []
        for client, _ in pairs:
            with contextlib.suppress(OSError):
                ports.append(client.getpeername()[1])
        wait_until(lambda: not any(map(unread, ports)), interval=0.002, what="the client's reading")
        for end in (end for pair in pairs for end in pair):
            # To dissolve a connection resets it at once; to close it may be an orderly end.
            ctypes.CDLL(None).connect(end.fileno(), struct.pack("H14x", socket.AF_UNSPEC), 16)
            end.close()


@contextlib.contextmanager
def resetting(rig: Rig) -> Iterator[Proxy]:
    """The pipeline, and nobody else, reaches its server by such a proxy."""
    ledger = postgres_of(rig)
    with closing(Resetting(ledger.server.port)) as proxy:
        rig.settings["url"] = ledger.url_of(proxy.port)
        yield proxy


@databases("postgres")
def test_a_connection_reset_inside_a_chunk_is_made_again_and_every_row_comes_once(rig: Make) -> None:
    r = rig(chunkRows=1000, maxRowsPerTrigger=1000, numPartitions=1, capture={"batch_bytes": 40_000})
    r.insert(1_000_000, 6000, note=":" + "y" * 300)
    with resetting(r) as proxy:
        # A chunk is 300 kB. In the first batch of a chunk, in a later one, and in its last.
        for chunk, place in ((1, 20_000), (2, 150_000), (3, 290_000)):
            r.points.arm("resolved", "block", done=chunk + 1)
            if chunk == 1:
                r.start()
            r.struck("resolved")
            cuts = proxy.cuts
            proxy.cut_after(place)
            r.points.arm("written", "note", batch=chunk)
            r.points.go("resolved")
            r.struck("written")
            assert proxy.cuts > cuts, "nothing was cut"
        r.settle()
        assert r.pipe.process.poll() is None, "it was the same process all the time"
    told = [line["change"]["after"]["key"] for line in changes_of(r.feed) if line["change"]["op"] == "r"]
    assert sorted(told) == list(range(1_000_000, 1_006_000))


@databases("postgres")
def test_a_finished_snapshot_is_not_read_again_though_nobody_may_read_the_table(rig: Make) -> None:
    r = rig(**CHUNKS)
    r.start()
    r.settle()
    assert r.pipe.terminate()["error"] is None
    held = len(noted(r))
    postgres_of(r).admin("REVOKE SELECT ON ledger FROM tailrace")
    r.insert(2_000_000, 20)
    r.run("UPDATE ledger SET number = 2 WHERE key < 1000100 AND key > 0")
    r.start()
    r.settle()
    assert len(noted(r)) == held


@databases("postgres")
def test_a_snapshot_that_may_not_be_read_on_prints_the_grant_and_goes_on_after_it(rig: Make) -> None:
    r = rig(**CHUNKS)
    r.points.arm("read", "kill", kind="chunk", chunk=5)
    r.start().died()
    postgres_of(r).admin("REVOKE SELECT ON ledger FROM tailrace")
    outcome = r.start().ended()
    assert outcome["error"] == "NeedsOperator", outcome
    grant = 'GRANT SELECT ON "public"."ledger" TO "tailrace"'
    assert grant in outcome["message"]
    postgres_of(r).admin(grant)
    r.start()
    r.settle()
    assert every_chunk(r, noted(r))
    assert not read_again(r, noted(r))


FAMILY = (
    "CREATE TABLE parent (id bigint PRIMARY KEY, name text)",
    "CREATE TABLE child (id int PRIMARY KEY, parent bigint REFERENCES parent ON DELETE CASCADE, name text)",
    "INSERT INTO parent VALUES (1, 'one'), (2, 'two'), (3, 'three')",
    "INSERT INTO child VALUES (11, 1, 'a'), (12, 1, 'b'), (21, 2, 'c'), (31, 3, 'd')",
)
# Each line a transaction.
MIXED = (
    (
        "INSERT INTO ledger VALUES (3000001, 1, ':a')",
        "DELETE FROM ledger WHERE key = 3000001",
        "INSERT INTO ledger VALUES (3000001, 3, ':b')",
    ),
    ("DELETE FROM ledger WHERE key = 1000001",),
    ("INSERT INTO ledger VALUES (1000001, 2, ':again')",),
    ("UPDATE ledger SET key = 3000002, number = 2 WHERE key = 1000002",),
    (
        "UPDATE ledger SET key = 3000003, number = 3 WHERE key = 3000002",
        "UPDATE ledger SET note = ':x' WHERE key = 3000003",
    ),
    # A key that another row has left: by a delete, by a change, and there and back.
    ("DELETE FROM ledger WHERE key = 1000004", "UPDATE ledger SET key = 1000004 WHERE key = 1000005"),
    ("UPDATE ledger SET key = 1000005 WHERE key = 1000006",),
    (
        "UPDATE ledger SET key = 3000007 WHERE key = 1000007",
        "UPDATE ledger SET key = 1000007 WHERE key = 3000007",
    ),
    ("INSERT INTO ledger VALUES (3000008, 1, ':short')",),
    ("UPDATE ledger SET number = 2 WHERE key = 3000008", "DELETE FROM ledger WHERE key = 3000008"),
    # A child leaves the parent that is deleted, and its siblings with it.
    ("UPDATE child SET parent = 2 WHERE id = 11", "DELETE FROM parent WHERE id = 1"),
    ("INSERT INTO parent VALUES (1, 'again')", "UPDATE child SET parent = 1, name = 'e' WHERE id = 21"),
    ("UPDATE child SET id = 32, parent = 1 WHERE id = 31", "DELETE FROM parent WHERE id = 3"),
)
EMPTIED = {
    "postgres": ("TRUNCATE ledger", "TRUNCATE parent, child"),
    "sqlite": ("DELETE FROM ledger", "DELETE FROM child", "DELETE FROM parent"),
}


def in_one_batch(r: Rig, transactions: tuple[tuple[str, ...], ...]) -> None:
    """Everything that these change comes in one micro-batch, and then all is as in the source."""
    # The sentinels' own batches are over.
    r.arrived(r.sentinel())
    r.caught_up()
    r.points.arm("latest", "block")
    r.struck("latest")
    told = len(changes_of(r.feed))
    with closing(r.connect()) as connection:
        if r.ledger.kind == "sqlite":
            connection.execute("PRAGMA foreign_keys = ON")
        for statements in transactions:
            connection.execute("BEGIN")
            for statement in statements:
                connection.execute(statement)
            connection.execute("COMMIT")
    last = r.sentinel()
    r.points.tell("captured", str(r.ledger.mark))
    r.points.go("latest")
    r.arrived(last)
    r.caught_up()
    assert len({line["batch"]["end"] for line in changes_of(r.feed)[told:]}) == 1, "it was not one batch"
    oracles.final_state(r.ledger, r.lake, r.feed)
    r.sampler.check()
    for table, columns in (("parent", ["id", "name"]), ("child", ["id", "parent", "name"])):
        with closing(r.connect()) as connection:
            wanted = sorted(connection.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall())
        mirror = DeltaTable(str(r.lake.parent / table)).to_pyarrow_table(columns=columns)
        assert sorted(zip(*(mirror[name].to_pylist() for name in columns), strict=True)) == wanted


def test_all_that_can_happen_to_rows_and_their_parents_in_one_batch_leaves_the_right_rows(rig: Make) -> None:
    r = rig(rows=100, tables=("parent", "child"))
    r.run(*FAMILY)
    if isinstance(r.ledger, Postgres):
        r.ledger.admin("ALTER PUBLICATION tailrace ADD TABLE parent, child")
    r.start()
    in_one_batch(r, MIXED)
    emptied = EMPTIED[r.ledger.kind]
    in_one_batch(
        r,
        (
            ("INSERT INTO ledger VALUES (3000010, 1, ':before')", "DELETE FROM ledger WHERE key = 1000010"),
            ("INSERT INTO ledger VALUES (3000011, 1, ':before')", *emptied),
            ("INSERT INTO ledger VALUES (1000010, 5, ':after'), (3000011, 5, ':after')", *FAMILY[2:]),
            ("UPDATE ledger SET key = 3000012 WHERE key = 3000011", "DELETE FROM parent WHERE id = 2"),
        ),
    )
    in_one_batch(r, (("INSERT INTO ledger VALUES (3000013, 1, ':x')", *emptied),))

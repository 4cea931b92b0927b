"""The data: one table of eight columns, and what is written to it. Each workload has a database."""

from __future__ import annotations

import time
from dataclasses import dataclass

from bench.postgres_server import Server

PUBLICATION, PEER_PUBLICATION = "tailrace", "peer"
PER_TRANSACTION = 10
_TABLE = """
CREATE TABLE orders (
    id bigint PRIMARY KEY, customer integer NOT NULL, price numeric(12,2), weight double precision,
    paid boolean, placed timestamptz, city text, note text
)
"""
_ROW = """
    i, i % 997, (i % 1000000) * 0.37, i / 7.0::float8, i % 3 = 0,
    timestamptz '2026-01-01 10:00+00' + i * interval '1.000137 seconds',
    'city number ' || lpad((i % 31337)::text, 8, '0'), md5(i::text) || ', a note of some 60 characters'
"""
_INSERTS = f"""
DO $$ BEGIN
    FOR n IN 1..{{rows}} BY {{per}} LOOP
        INSERT INTO orders SELECT {_ROW} FROM generate_series(n, least(n + {{per}} - 1, {{rows}})) i;
        COMMIT;
    END LOOP;
END $$
"""
# The first half of the rows is updated and the second deleted, in turns.
_CHANGES = """
DO $$ BEGIN
    FOR n IN 1..{half} BY {per} LOOP
        UPDATE orders SET price = price + 1, paid = NOT paid
            WHERE id BETWEEN n AND least(n + {per} - 1, {half});
        COMMIT;
        DELETE FROM orders WHERE id BETWEEN {half} + n AND least({half} + n + {per} - 1, 2 * {half});
        COMMIT;
    END LOOP;
END $$
"""


@dataclass(frozen=True)
class Workload:
    """`rows` changes, written by `write` after every contestant has a slot. Each round has a database."""

    name: str
    title: str
    rows: int
    write: str
    before: str | None = None
    round: int = 0

    @property
    def database(self) -> str:
        """The database of this round."""
        return f"{self.name}_{self.round}"


def workloads(rows: int) -> tuple[Workload, ...]:
    """The three, and one before them that nobody measures: it warms every contestant."""
    half, per = rows // 2, PER_TRANSACTION
    return (
        Workload("warm", "warm-up", rows, inserts(rows, per)),
        Workload("small", f"{rows:,} rows in transactions of {per}", rows, inserts(rows, per)),
        Workload("big", f"one transaction of {2 * rows:,} rows", 2 * rows, inserts(2 * rows, 2 * rows)),
        Workload(
            "changes",
            f"{half:,} updates and {half:,} deletes in transactions of {per}",
            2 * half,
            _CHANGES.format(half=half, per=per),
            before=inserts(2 * half, 2 * half),
        ),
    )


def inserts(rows: int, per: int) -> str:
    """The statement that writes so many rows, in transactions of so many."""
    return _INSERTS.format(rows=rows, per=per)


def make(server: Server, workload: Workload) -> None:
    """The workload's database, with everything in it that is there before the slots."""
    with server.connect() as connection:
        connection.execute(f"CREATE DATABASE {workload.database}")
    with server.connect(workload.database) as connection:
        connection.execute(_TABLE)
        for name in (PUBLICATION, PEER_PUBLICATION):
            connection.execute(
                f"CREATE PUBLICATION {name} FOR TABLE orders WITH (publish_via_partition_root = true)"
            )
        if workload.before:
            connection.execute(workload.before)


def write(server: Server, workload: Workload) -> None:
    """What the contestants will read."""
    with server.connect(workload.database) as connection:
        connection.execute("SET synchronous_commit = off")
        connection.execute(workload.write)
        connection.execute("CHECKPOINT")


def drop(server: Server, workload: Workload) -> None:
    """Remove the database and every slot of it, so that its log is not kept."""
    mine = "FROM pg_replication_slots WHERE database = %s"
    with server.connect() as connection:
        deadline = time.monotonic() + 30
        while connection.execute(f"SELECT slot_name {mine}", (workload.database,)).fetchone():
            if time.monotonic() > deadline:
                raise RuntimeError(f"a slot of the database {workload.database} is still being read")
            connection.execute(f"SELECT pg_terminate_backend(active_pid) {mine}", (workload.database,))
            connection.execute(
                f"SELECT pg_drop_replication_slot(slot_name) {mine} AND NOT active", (workload.database,)
            )
            time.sleep(0.05)
        connection.execute(f"DROP DATABASE {workload.database} WITH (FORCE)")

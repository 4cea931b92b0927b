"""Snapshots of a running query, on real sources: with a condition, paused, resumed, stopped."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tailrace.app.control import Control
from tailrace.capture.contract import Capture, Chunk
from tailrace.model.errors import ConfigError, NeedsOperator, SchemaDrift, TailraceError
from tailrace.model.table import TableRef, TableSchema
from tailrace.spark.driver import StreamDriver
from tailrace.spark.offsets import Cursor, Offset
from tailrace.spark.options import SourceOptions
from tailrace.spark.pace import Pace, measured
from tailrace.spark.plans import Plan
from tailrace.spark.read import read_slice
from tailrace.spark.source import open_capture
from tests.support.postgres import PASSWORD, Server, postgres
from tests.support.shop import Shop
from tests.support.waiting import wait_until

__all__ = ["postgres"]

ROWS = 8
# SQLite lets nobody alter a table under its triggers (set up anew it has another generation), and knows its
# rows by a number that stays.
on_postgres = pytest.mark.parametrize("source", ["postgres"], indirect=True)


class Source:
    """A table of orders, whatever holds it."""

    def __init__(self, url: str, run: Callable[[str], None], rows: Callable[[], list[Any]], **options: str):
        self.url, self.run, self.rows, self.options = url, run, rows, options

    def table(self) -> dict[int, float]:
        return {row[0]: row[2] for row in self.rows()}


@pytest.fixture(params=["sqlite", "postgres"])
def source(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Source]:
    values = ", ".join(f"({i}, 'Oslo', {i})" for i in range(ROWS))
    if request.param == "sqlite":
        shop = Shop(tmp_path)
        shop.run(f"INSERT INTO orders VALUES {values}")
        yield Source(shop.url, shop.run, shop.rows)
        return
    server: Server = request.getfixturevalue("postgres")
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    database = server.database()
    try:
        database.sql("CREATE TABLE orders (id int PRIMARY KEY, city text, price float8)")
        database.sql(f"INSERT INTO orders VALUES {values}")
        with database.admin() as admin:
            admin.execute("CREATE PUBLICATION tailrace FOR TABLE orders WITH (publish_via_partition_root)")
        url = f"postgresql://tailrace@127.0.0.1:{server.port}/{database.name}"
        everything = "SELECT * FROM orders ORDER BY 1"
        yield Source(url, database.sql, lambda: database.rows(everything), setup="manual")
    finally:
        database.drop()


class Query:
    """What Spark does with a driver, one chunk a batch, and a consumer that keeps the table."""

    def __init__(self, source: Source, state: Path, offset: Offset | None = None) -> None:
        given = {"url": source.url, "tables": "orders", "stateDir": str(state), **source.options}
        self._source, self._state = source, state
        self.options = SourceOptions.parse({**given, "chunkRows": "1", "numPartitions": "1"})
        self.driver = StreamDriver(self.options, open_capture)
        self.offset = offset or self.driver.initial()
        self.ops: list[str] = []
        self.kept: dict[int, float] = {}

    @property
    def control(self) -> Control:
        @contextlib.contextmanager
        def opened() -> Iterator[Capture]:
            capture = open_capture(self.options)
            yield capture
            capture.close()

        return Control(opened, lambda capture: capture.resolve(["orders"]), str(self._state))

    @property
    def cursor(self) -> Cursor | None:
        return next(iter(self.offset.snapshots.values()), None)

    def next(self, max_rows: int = 1) -> Offset:
        """The end of the next batch, through Spark's log."""
        self.driver._looked = 0.0
        end = self.driver.latest(self.offset, max_rows=max_rows, max_bytes=None)
        return Offset.from_json(json.loads(json.dumps(end.to_json())))

    def read(self, end: Offset) -> list[tuple[str, int | None]]:
        """The rows of the batch that ends there, taken by the consumer."""
        told: list[tuple[str, int | None]] = []
        with contextlib.closing(open_capture(self.options)) as capture:
            for part in self.driver.partitions(self.offset, end, single=False):
                for batch in read_slice(part, "envelope", f"{self._state}/changelog", capture):
                    told += [self._take(row) for row in batch.to_pylist()]
        self.offset = end
        return told

    def _take(self, row: dict[str, Any]) -> tuple[str, int | None]:
        after, before = (json.loads(row[image]) if row[image] else {} for image in ("after", "before"))
        key = after.get("id", before.get("id"))
        self.ops.append(row["op"])
        if row["op"] == "s":
            self.kept.clear()
        elif row["op"] == "d":
            self.kept.pop(key, None)
        else:
            self.kept[key] = after["price"]
        return row["op"], key

    def step(self) -> list[tuple[str, int | None]]:
        return self.read(end) if (end := self.next()) != self.offset else []

    def until(self, reached: Callable[[Query], bool]) -> None:
        def there() -> bool:
            if not reached(self):
                self.step()
            return reached(self)

        wait_until(there, timeout=60)

    def whole(self) -> None:
        """Go on until the consumer has what the source has, and no snapshot is running."""
        self.until(
            lambda q: (
                q.cursor is not None
                and q.cursor.over
                and not q.control.waiting()
                and q.kept == self._source.table()
            )
        )

    def again(self, offset: Offset | None = None) -> Query:
        """After a crash: the same state, from the logged offset."""
        self.driver.close()
        other = Query(self._source, self._state, offset or self.offset)
        other.kept, other.ops = dict(self.kept), []
        return other


@pytest.fixture
def query(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Query]:
    monkeypatch.setattr("tailrace.spark.driver.LONG_POLL", 0.05)
    made = [Query(source, tmp_path / "state")]
    restart = Query.again

    def again(self: Query, offset: Offset | None = None) -> Query:
        made.append(restart(self, offset))
        return made[-1]

    monkeypatch.setattr(Query, "again", again)
    yield made[0]
    made[-1].driver.close()


def chunks_done(query: Query) -> int:
    return query.cursor.next if query.cursor is not None else 0


def test_a_condition_brings_its_rows_and_leaves_the_others_as_they_are(source: Source, query: Query) -> None:
    query.whole()
    query.kept = dict.fromkeys(query.kept, -1.0)
    query.ops.clear()
    query.control.snapshot("orders", where="price > 4")
    query.until(lambda q: "r" in q.ops and not q.control.waiting() and q.cursor is not None and q.cursor.over)
    assert set(query.ops) == {"r"}
    assert query.kept == {key: value if value > 4 else -1.0 for key, value in source.table().items()}


def test_a_condition_survives_a_restart_between_its_chunks(query: Query) -> None:
    query.whole()
    query.ops.clear()
    query.control.snapshot("orders", where="price > 2")
    query.until(lambda q: "r" in q.ops)
    assert query.cursor is not None
    assert not query.cursor.over
    seen = query.ops.count("r")
    again = query.again()
    again.until(lambda q: q.cursor is not None and q.cursor.over)
    assert set(again.ops) == {"r"}
    assert seen + again.ops.count("r") == ROWS - 3


@pytest.mark.parametrize("first", ["whole", "condition"])
def test_a_request_with_a_condition_and_one_without_are_both_served(query: Query, first: str) -> None:
    query.whole()
    query.kept.clear()
    query.ops.clear()
    wishes = [None, "price > 4"] if first == "whole" else ["price > 4", None]
    for where in wishes:
        query.control.snapshot("orders", where=where)
    assert len(query.control.waiting()) == 2
    query.until(lambda q: not q.control.waiting() and q.cursor is not None and q.cursor.over)
    assert query.ops.count("s") == 1
    assert query.ops.count("r") == ROWS + 3
    query.whole()


def test_a_condition_waits_for_the_snapshot_that_runs_and_a_fresh_one_for_the_condition(query: Query) -> None:
    query.until(lambda q: chunks_done(q) == 2)
    query.control.snapshot("orders", where="id = 5")
    query.whole()
    assert query.ops.count("s") == 1
    assert query.ops.count("r") == ROWS + 1
    query.ops.clear()
    query.control.snapshot("orders", where="id < 4")
    query.until(lambda q: "r" in q.ops)
    query.control.snapshot("orders")
    query.until(lambda q: not q.control.waiting() and q.cursor is not None and q.cursor.over)
    assert (query.ops.count("s"), query.ops.count("r")) == (1, 4 + ROWS)


def test_a_pause_holds_chunks_while_changes_flow_and_outlives_the_process(
    source: Source, query: Query
) -> None:
    query.until(lambda q: chunks_done(q) == 3)
    assert query.control.pause() == ["orders"]
    source.run("INSERT INTO orders VALUES (100, 'Bergen', 100)")
    query.until(lambda q: 100 in q.kept)
    assert chunks_done(query) == 3
    again = query.again()
    source.run("INSERT INTO orders VALUES (101, 'Bergen', 101)")
    again.until(lambda q: 101 in q.kept)
    assert chunks_done(again) == 3
    (told,) = (again.driver.report() or {})["snapshots"]
    assert (told["state"], told["chunks_done"], told["rate"]) == ("paused", 3, None)
    assert again.control.resume("orders") == ["orders"]
    again.whole()
    assert "s" not in again.ops


def test_a_stop_ends_the_snapshot_and_a_replay_of_its_batch_reads_the_same(
    source: Source, query: Query
) -> None:
    query.until(lambda q: chunks_done(q) == 3)
    start = query.offset
    assert query.control.stop("orders") == ["orders"]
    source.run("INSERT INTO orders VALUES (100, 'Bergen', 100)")
    query.until(lambda q: 100 in q.kept)
    (running,) = start.snapshots.values()
    assert query.cursor == replace(running, stopped=True, short=True)
    stopped, told = query.offset, sorted(query.kept)

    replayed = query.again(start)
    replayed.kept = {key: 0.0 for key in told if key < 100}
    replayed.read(stopped)
    assert sorted(replayed.kept) == told
    again = replayed.again()
    source.run("INSERT INTO orders VALUES (101, 'Bergen', 101)")
    again.until(lambda q: 101 in q.kept)
    assert chunks_done(again) == 3
    assert set(again.kept) == {*told, 101}
    again.control.snapshot("orders")
    again.whole()
    assert again.cursor is not None
    assert again.cursor.complete


def test_a_stop_before_the_first_chunk_leaves_a_table_that_has_begun(query: Query) -> None:
    query.control.stop("orders")
    query.until(lambda q: q.cursor is not None)
    assert query.cursor is not None
    assert (query.cursor.next, query.cursor.over, query.cursor.complete) == (1, True, False)
    assert query.ops[0] == "s"


def test_a_stop_does_not_reach_a_snapshot_that_was_asked_for_after_it(query: Query) -> None:
    query.until(lambda q: chunks_done(q) == 3)
    query.control.stop("orders")
    query.control.snapshot("orders")
    query.whole()
    assert query.cursor is not None
    assert query.cursor.complete
    assert query.ops.count("s") == 2


def test_a_stop_withdraws_what_waits_and_leaves_what_was_there(query: Query) -> None:
    query.whole()
    before = dict(query.kept)
    query.control.pause("orders")
    query.control.snapshot("orders")
    query.control.snapshot("orders", where="id = 1")
    query.ops.clear()
    query.step()
    assert query.control.stop("orders") == ["orders"]
    assert query.control.waiting() == []
    for _ in range(3):
        query.step()
    assert query.ops == []
    assert query.kept == before
    assert query.cursor is not None
    assert query.cursor.over
    # Whoever asked may have known of rows that are missing.
    assert not query.cursor.complete


def test_a_request_that_is_withdrawn_while_its_table_is_cut_never_begins(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    query.whole()
    before = query.cursor
    plans = query.driver._snapshots._plans
    asked = plans.request(TableRef(*str(before and next(iter(query.offset.snapshots))).split(".")), "id = 1")
    original = query.driver._snapshots._capture.plan

    def cut(*given: Any, **named: Any) -> list[Chunk]:
        plans.served(asked)
        return original(*given, **named)

    monkeypatch.setattr(query.driver._snapshots._capture, "plan", cut)
    for _ in range(3):
        query.step()
    assert query.cursor == before


def test_rows_are_still_missing_after_a_condition_that_followed_a_stop(query: Query) -> None:
    query.until(lambda q: chunks_done(q) == 3)
    query.control.stop("orders")
    query.until(lambda q: q.cursor is not None and q.cursor.over)
    query.control.snapshot("orders", where="id = 7")
    query.until(lambda q: 7 in q.kept and q.cursor is not None and q.cursor.over)
    assert query.cursor is not None
    assert not query.cursor.complete
    query.control.snapshot("orders")
    query.whole()
    assert query.cursor.complete


def test_a_condition_that_is_none_is_refused_and_leaves_no_request(query: Query) -> None:
    query.whole()
    for where in (
        "pric > 10",
        "price >",
        "price > 1) OR (1 = 1",
        "price > 1; DROP TABLE orders",
        "price > 1 ORDER BY price",
        "price > 1 --",
        " ",
    ):
        with pytest.raises(ConfigError):
            query.control.snapshot("orders", where=where)
    assert query.control.waiting() == []
    assert query._source.table()


def test_a_refused_condition_names_the_place(query: Query) -> None:
    query.whole()
    with pytest.raises(ConfigError, match="pric") as refused:
        query.control.snapshot("orders", where="id = 1 AND pric > 10")
    place = "where, character 12" if query._source.url.startswith("postgres") else "where"
    assert refused.value.place == place


def test_a_condition_that_fails_on_a_row_is_got_rid_of_by_a_stop(source: Source, query: Query) -> None:
    if source.url.startswith("sqlite"):
        source.run("UPDATE orders SET city = 'no JSON' WHERE id = 5")
        where = "json_extract('{\"a\":1}', '$.a') = 1 AND (id <> 5 OR json_extract(city, '$.a') = 1)"
    else:
        where = "1 / (id - 5) <= 1"
    query.whole()
    query.control.snapshot("orders", where=where)
    ends: list[Offset] = []

    def fails() -> bool:
        ends.append(query.next())
        query.read(ends[-1])
        return False

    with pytest.raises(Exception, match=r"division by zero|malformed JSON") as failed:
        wait_until(fails, timeout=60)
    assert isinstance(failed.value, NeedsOperator)
    assert failed.value.remedy == "tailrace snapshot --stop --table orders"
    query.control.stop("orders")
    again = query.again()
    assert again.read(ends[-1]) == []
    source.run("INSERT INTO orders VALUES (100, 'Bergen', 100)")
    again.whole()


def test_progress_counts_what_is_committed_by_the_plan(query: Query) -> None:
    query.until(lambda q: chunks_done(q) == 4)
    query.next()
    (told,) = (query.driver.report() or {})["snapshots"]
    assert (told["chunks_done"], told["chunks"]) == (4, ROWS)
    assert (told["rows_done"], told["rows"]) == (4, ROWS)
    assert told["rate"] > 0
    assert told["seconds_left"] > 0
    query.whole()
    query.next()
    assert (query.driver.report() or {})["snapshots"] == []


def test_a_rate_is_that_of_the_last_minute() -> None:
    assert measured([], 10) == (None, None)
    assert measured([(0.0, 0), (2.0, 100)], 300) == (50.0, 4.0)
    ref = TableRef("main", "orders")
    plan = Plan("p", TableSchema(ref, (), ()), tuple(Chunk(ref, index, {}, 100) for index in range(10)))
    pace = Pace()
    for second in range(7):
        pace.note(plan, second, 100.0 * second)
    # The pace of long ago counts no more, and the pace of another plan never.
    assert pace.of(plan) == (1.0, 400.0)
    assert pace.of(replace(plan, id="q")) == (None, None)


@on_postgres
@pytest.mark.parametrize("first", [True, False])
def test_a_table_that_was_altered_during_its_snapshot_goes_on_with_the_remedy(
    source: Source, query: Query, first: bool
) -> None:
    """Of the first chunk the request is still there, and has begun."""
    query.whole()
    query.control.snapshot("orders")
    query.ops.clear()
    if not first:
        query.until(lambda q: "r" in q.ops)
    end = query.next()
    assert end != query.offset
    source.run("ALTER TABLE orders DROP COLUMN city")
    with pytest.raises(TailraceError) as error:
        query.read(end)
    assert "tailrace snapshot --table" in str(error.value.remedy)
    again = query.again()
    with pytest.raises(SchemaDrift):
        again.read(end)
    again.control.snapshot("orders")
    mended = again.again()
    assert "r" not in {op for op, _ in mended.read(end)}
    mended.until(lambda q: not q.control.waiting() and q.cursor is not None and q.cursor.over)
    assert (mended.ops.count("s"), mended.ops.count("r")) == (1, ROWS)
    assert mended.cursor is not None
    assert mended.cursor.complete


@on_postgres
@pytest.mark.parametrize("remedy", ["stop", "whole"])
def test_a_condition_on_a_table_that_was_altered_meanwhile_is_got_rid_of(
    source: Source, query: Query, remedy: str
) -> None:
    query.whole()
    query.control.snapshot("orders", where="id < 6")
    query.ops.clear()
    query.until(lambda q: "r" in q.ops)
    end = query.next()
    source.run("ALTER TABLE orders DROP COLUMN city")
    with pytest.raises(NeedsOperator) as error:
        query.read(end)
    assert error.value.remedy == "tailrace snapshot --stop --table orders"
    if remedy == "stop":
        query.control.stop("orders")
    else:
        query.control.snapshot("orders")
    again = query.again()
    assert "r" not in {op for op, _ in again.read(end)}
    again.until(lambda q: not q.control.waiting() and q.cursor is not None and q.cursor.over)
    assert again.ops.count("r") == (0 if remedy == "stop" else ROWS)
    assert again.cursor is not None
    assert again.cursor.complete


@on_postgres
def test_a_table_without_a_key_that_was_rewritten_during_its_snapshot_goes_on_with_the_remedy(
    source: Source, query: Query
) -> None:
    source.run("ALTER TABLE orders DROP CONSTRAINT orders_pkey")
    source.run("ALTER TABLE orders REPLICA IDENTITY FULL")
    source.run("INSERT INTO orders SELECT 100 + i, repeat('x', 500), i FROM generate_series(1, 100) i")
    rows = ROWS + 100
    query.until(lambda q: chunks_done(q) == 2)
    end = query.next()
    source.run("VACUUM FULL orders")
    with pytest.raises(NeedsOperator, match="rewritten") as error:
        query.read(end)
    assert "tailrace snapshot --table" in str(error.value.remedy)
    query.control.snapshot("orders")
    again = query.again()
    assert "r" not in {op for op, _ in again.read(end)}
    again.until(lambda q: not q.control.waiting() and q.cursor is not None and q.cursor.over)
    assert (again.ops.count("s"), again.ops.count("r")) == (1, rows)


def test_a_condition_whose_last_chunk_was_left_out_by_a_stop_counts_as_stopped(
    source: Source, query: Query
) -> None:
    query.whole()
    query.control.snapshot("orders", where="id >= 0")
    query.until(lambda q: q.cursor is not None and not q.cursor.over and chunks_done(q) == ROWS - 1)
    end = query.next()
    assert chunks_of(end) == ROWS
    query.control.stop("orders")
    again = query.again()
    assert again.read(end) == []
    again.until(lambda q: q.cursor is not None and q.cursor.stopped)
    assert again.cursor is not None
    assert again.cursor.complete, "of what was there nothing is missing"
    source.run("INSERT INTO orders VALUES (100, 'Bergen', 100)")
    again.until(lambda q: 100 in q.kept)
    again.step()
    assert not list((again._state / "control").glob("stop-*"))


def chunks_of(offset: Offset) -> int:
    return next(iter(offset.snapshots.values())).next

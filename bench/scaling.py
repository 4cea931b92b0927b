"""How Tailrace grows: rows and columns of a table, tables of a stream, rows of a transaction, cores of Spark.

One server. Everything goes into the no-op sink, in sessions of Spark's that were warmed. Rates count from
`load()` to the end, so the start of a query is in them, and is most of the time where there are few rows;
`start` is what the same costs without rows. Beside it: `COPY` to nowhere for snapshots, and for changes a
client that only counts.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.markup import escape

from bench import postgres_data, scaling_data
from bench.contestant import Answer, Contestant, Failed
from bench.measure import Figure, Outcome
from bench.postgres_data import Workload
from bench.postgres_server import Server, running
from bench.snapshot import cpu
from bench.usage import Machine, Sampler, Watch

ROWS, QUICK_ROWS = (10_000, 100_000, 1_000_000, 10_000_000), (10_000, 100_000)
COLUMNS, QUICK_COLUMNS = (1, 3, 10, 30, 100), (1, 10, 100)
TABLES, QUICK_TABLES = (1, 10, 100, 1_000), (1, 10, 100)
# Rows of a transaction, and how many are written in all.
TRANSACTIONS = {1: 200_000, 10: 500_000, 1_000: 1_000_000, 1_000_000: 1_000_000}
QUICK_TRANSACTIONS = {1: 10_000, 10: 20_000, 1_000: 50_000, 50_000: 50_000}
# Rows of each wide table; rows of all tables together, and changes of them; rows that are read by some cores.
WIDE, IN_ALL, CHANGES, BY_CORES = 200_000, 200_000, 100_000, 2_000_000
QUICK = 20
GROUPS = ("rows", "columns", "tables", "transactions", "cores")
COPY, COUNT = "copy", "count"
BATCH, STREAM, CHANGED = "tailrace-batch", "tailrace-stream", "tailrace-changes"
PARTS = 2
# What the largest is compared with; elsewhere the smallest.
REFERENCE = {"rows": 1_000_000, "columns": 10, "transactions": 10}
# So often a table of at most so many rows is read: what takes a moment is measured more often.
ROUNDS = {200_000: 7, 1_000_000: 3}


@dataclass(frozen=True)
class Step:
    """What is measured; `size` is what grows, `empty` the seconds of the same without rows."""

    group: str
    contestant: str
    size: int
    rows: int
    empty: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Result(Step):
    """What one contestant did once.

    CPU seconds are of all its processes, `server` those of the server's. `peak_mb` is the largest of its
    processes, `tree_peak_mb` the sum of all. `others` is the share of the machine that was not free for it.
    """

    seconds: float
    cpu_seconds: float
    server_cpu_seconds: float
    peak_mb: float
    tree_peak_mb: float
    others: float

    @property
    def rate(self) -> float:
        """Rows a second from start to end."""
        return self.rows / self.seconds

    @property
    def sustained(self) -> float:
        """Rows a second without the start, of which at least a tenth of the time is left."""
        return self.rows / max(self.seconds - self.empty, self.seconds / 10)


class Run:
    """One run: a server, the contestants, results and what went wrong."""

    def __init__(self, console: Console, options: argparse.Namespace, server: Server, home: Path) -> None:
        self._console, self._options, self._server, self._home = console, options, server, home
        self._number = 0
        self.results: list[Result] = []
        self.problems: list[str] = []

    def all(self) -> None:
        """Every group that is wanted."""
        options, wanted = self._options, self._options.groups
        scaling_data.create_database(self._server)
        sizes = set(options.rows if "rows" in wanted else ())
        self._tell("writing tables")
        scaling_data.make_rows(self._server, sorted(sizes | {options.rows[0], options.by_cores}))
        with self._started("tailrace", "bench.scaling_spark") as two:
            self._warm(two)
            if "rows" in wanted:
                with self._started("copy", "bench.snapshot_copy") as copy:
                    for rows in options.rows:
                        self._snapshot("rows", rows, rows, two, copy)
            if "columns" in wanted:
                scaling_data.make_columns(self._server, options.columns, options.wide)
                with self._started("copy", "bench.snapshot_copy") as copy:
                    for columns in options.columns:
                        self._snapshot("columns", columns, options.wide, two, copy)
            if "tables" in wanted:
                for tables in options.tables:
                    self._tables(tables, two)
            if "transactions" in wanted:
                with self._started("count", "bench.postgres_count") as count:
                    for per, rows in options.transactions.items():
                        self._transactions("transactions", per, self._workload(rows, per), count, two)
            if "cores" in wanted:
                self._cores(2, two)
        if "cores" in wanted:
            with self._started("tailrace", "bench.scaling_one") as one:
                self._warm(one)
                self._cores(1, one)

    def _warm(self, spark: Contestant) -> None:
        """The smallest table again and again: a JVM becomes faster with every read."""
        table = f"rows_{self._options.rows[0]}"
        for _ in range(4):
            self._ask(spark, "batch", tables=table, parts=PARTS)
        for _ in range(2):
            name = self._name()
            self._ask(spark, "stream", tables=table, parts=PARTS, name=name, view="table")
            self._ask(spark, "forget", name=name)

    def _snapshot(
        self, group: str, size: int, rows: int, spark: Contestant, copy: Contestant | None = None
    ) -> None:
        """One table, by a batch read, by a stream, and by COPY where that is asked for."""
        table = f"{group}_{size}" if group == "columns" else f"rows_{rows}"
        told = {"tables": table, "table": table, "rows": rows, "parts": PARTS}
        for _ in range(next((often for most, often in ROUNDS.items() if rows <= most), 1)):
            if copy is not None:
                with self._failing(f"{group} {size:,}, {COPY}"):
                    self._watched(Step(group, COPY, size, rows), copy, "drain", told)
            with self._failing(f"{group} {size:,}, {BATCH}"):
                empty = self._ask(spark, "batch", tables="nothing", parts=PARTS)["seconds"]
                self._watched(Step(group, BATCH, size, rows, empty), spark, "batch", told)
        # A stream starts once in its life; its rounds would be starts most of all.
        with self._failing(f"{group} {size:,}, {STREAM}"):
            told |= {"name": self._name(), "view": "table"}
            self._stream(Step(group, STREAM, size, rows), spark, told)
            self._ask(spark, "forget", **told)

    def _stream(self, step: Step, spark: Contestant, told: dict[str, Any]) -> float:
        """A snapshot by a new query, which then goes on with nothing to read: what that takes."""
        result = self._watched(step, spark, "stream", told)
        empty: float = self._ask(spark, "stream", **told)["seconds"]
        self.results[self.results.index(result)] = replace(result, empty=empty)
        return empty

    def _tables(self, tables: int, spark: Contestant) -> None:
        """As many rows in all, in more and more tables: their snapshot, then changes of them."""
        with self._failing(f"tables {tables:,}"):
            each, changes = self._options.in_all // tables, self._options.changes
            database = scaling_data.make_tables(self._server, tables, each)
            told = {"tables": "*", "parts": PARTS, "view": "envelope", "name": self._name()}
            told["database"] = database
            empty = self._stream(Step("tables", STREAM, tables, each * tables), spark, told)
            scaling_data.change_tables(self._server, database, tables, each, changes)
            self._watched(Step("tables", CHANGED, tables, changes, empty), spark, "stream", told)
            self._ask(spark, "forget", **told)

    def _transactions(self, group: str, size: int, workload: Workload, *contestants: Contestant) -> None:
        """A log of transactions of one size, read by one contestant after the other."""
        told = {"database": workload.database, "view": "envelope", "sink": "noop", "rows": workload.rows}
        with self._failing(workload.title):
            postgres_data.make(self._server, workload)
            for contestant in contestants:
                self._ask(contestant, "prepare", **told)
            postgres_data.write(self._server, workload)
            for contestant in contestants:
                name = COUNT if contestant.name == COUNT else CHANGED
                with self._failing(f"{workload.title}, {name}"):
                    self._watched(Step(group, name, size, workload.rows), contestant, "drain", told)
                    self._ask(contestant, "finish", **told)
            postgres_data.drop(self._server, workload)

    def _workload(self, rows: int, per: int) -> Workload:
        self._number += 1
        title = f"{rows:,} rows in transactions of {per:,}"
        return Workload("growing", title, rows, postgres_data.inserts(rows, per), round=self._number)

    def _cores(self, cores: int, spark: Contestant) -> None:
        """The same reads with so many cores; the server and the capture have processes of their own."""
        rows = self._options.by_cores
        self._snapshot("cores", cores, rows, spark)
        self._transactions("cores", cores, self._workload(rows // 4, 10), spark)

    def _watched(self, step: Step, contestant: Contestant, verb: str, told: dict[str, Any]) -> Result:
        """Do it, look at its processes meanwhile, and hold it to the number of rows."""
        whole = Watch(contestant.pid)
        machine, ours, theirs = Machine(), cpu(contestant.pid), cpu(self._server.pid)
        with Sampler(whole):
            answer = self._ask(contestant, verb, **told)
        # A worker that nobody waits for takes its seconds along when it ends; a short one is never looked at.
        ours = max(cpu(contestant.pid) - ours, whole.cpu)
        theirs = cpu(self._server.pid) - theirs
        # The snapshot of each table begins with a row that says so.
        markers = 0 if step.contestant != STREAM else step.size if step.group == "tables" else 1
        if answer["rows"] - markers != step.rows:
            raise Failed(f"{step.contestant} has {answer['rows'] - markers:,} rows instead of {step.rows:,}")
        result = Result(
            **{**asdict(step), "empty": answer.get("empty", step.empty)},
            seconds=answer["seconds"],
            cpu_seconds=ours,
            server_cpu_seconds=theirs,
            peak_mb=whole.peak / 1e6,
            tree_peak_mb=whole.peak_sum / 1e6,
            others=machine.others(ours + theirs),
        )
        self.results.append(result)
        told_rate = f"{result.rate:,.0f} rows/s, {result.seconds:.2f} s"
        self._tell(f"  {step.group} {step.size:,}, {step.contestant}: {told_rate}")
        return result

    def _ask(self, contestant: Contestant, verb: str, **told: Any) -> Answer:
        return contestant.ask(verb, **{"port": self._server.port, "database": scaling_data.DATABASE, **told})

    def _name(self) -> str:
        self._number += 1
        return f"scaling_{self._number}"

    @contextmanager
    def _started(self, name: str, module: str) -> Iterator[Contestant]:
        self._number += 1
        home = self._home / str(self._number)
        home.mkdir()
        contestant = Contestant(name, module, home)
        try:
            yield contestant
        finally:
            contestant.close()

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        try:
            yield
        except Failed as error:
            self.problems.append(f"{what}: {error}")
            self._tell(f"  [red]failed:[/] {escape(str(error))}")

    def _tell(self, text: str) -> None:
        self._console.print(text, highlight=False)


def run(console: Console, arguments: list[str]) -> Outcome:
    """Everything that grows."""
    options = _options(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-") as name, running() as server:
        made = Run(console, options, server, Path(name))
        made.all()
    return Outcome(
        _figures(made.results), [_json(one) for one in made.results], made.problems, bars=not options.no_bars
    )


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog='make bench BENCH="scaling …"', description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--groups", type=_list, default=list(GROUPS), help=f"what grows, by commas: {','.join(GROUPS)}"
    )
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    parser.add_argument("--no-bars", action="store_true", help="there are none")
    options = parser.parse_args(arguments)
    if unknown := set(options.groups) - set(GROUPS):
        parser.error(f"unknown group {', '.join(sorted(unknown))}")
    quick, less = options.quick, QUICK if options.quick else 1
    options.rows = QUICK_ROWS if quick else ROWS
    options.columns = QUICK_COLUMNS if quick else COLUMNS
    options.tables = QUICK_TABLES if quick else TABLES
    options.transactions = QUICK_TRANSACTIONS if quick else TRANSACTIONS
    options.wide, options.in_all, options.changes = WIDE // less, IN_ALL // less, CHANGES // less
    options.by_cores = BY_CORES // less
    return options


def _list(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _figures(results: list[Result]) -> list[Figure]:
    """How much of its speed is left where something has grown; what starts cost is left out."""
    found: dict[tuple[str, str], dict[int, list[Result]]] = {}
    for one in results:
        found.setdefault((one.group, one.contestant), {}).setdefault(one.size, []).append(one)
    figures: list[Figure] = []
    for (group, contestant), sizes in found.items():
        if contestant in (COPY, COUNT) or len(sizes) < 2:
            continue
        # Of a column's worth there is more in a wider table.
        weight = (lambda size: size) if group == "columns" else (lambda _: 1)
        unit = "values/s" if group == "columns" else "rows/s"
        first, last = REFERENCE.get(group, min(sizes)), max(sizes)
        if first not in sizes or first == last:
            first = sorted(sizes)[-2]
        ratio = weight(last) * _rate(sizes[last]) / (weight(first) * _rate(sizes[first]))
        figures.append(Figure(f"{group}: {contestant}, {unit} at {last:,} against {first:,}", ratio, "×"))
        if group in ("rows", "tables", "transactions"):
            memory = _memory(sizes[last]) / _memory(sizes[first])
            what = f"{group}: {contestant}, memory at {last:,} against {first:,}"
            figures.append(Figure(what, memory, "×", lower=True))
        if group == "transactions" and 1 in sizes and 10 in sizes:
            ratio = _rate(sizes[1]) / _rate(sizes[10])
            figures.append(Figure(f"{group}: {contestant}, {unit} at 1 against 10", ratio, "×"))
    for group, mine, other in (
        ("rows", BATCH, COPY),
        ("columns", BATCH, COPY),
        ("transactions", CHANGED, COUNT),
    ):
        ours, theirs = found.get((group, mine), {}), found.get((group, other), {})
        for size in sorted(ours.keys() & theirs.keys()):
            # Of fewer rows the start is most of it.
            if ours[size][0].rows >= 100_000:
                ratio = _rate(ours[size]) / _rate(theirs[size])
                figures.append(Figure(f"{group}: {mine} against {other} at {size:,}", ratio, "×"))
    return figures


def _rate(rounds: list[Result]) -> float:
    return median(one.sustained for one in rounds)


def _memory(rounds: list[Result]) -> float:
    return median(one.tree_peak_mb for one in rounds)


def _json(result: Result) -> dict[str, object]:
    return {
        **asdict(result),
        "rate": result.rate,
        "sustained_rate": result.sustained,
        "cpu_us_per_row": (result.cpu_seconds + result.server_cpu_seconds) / result.rows * 1e6,
    }

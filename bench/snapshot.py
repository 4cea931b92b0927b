"""Snapshots of PostgreSQL: Tailrace against `COPY` to nowhere, Spark's JDBC reader and Debezium, one table.

All read the same tables of one server, one after the other, each in processes of its own, after a smaller
table that warms them and is not measured; a session of Spark's is warmed by a read of nothing each time. Each
is measured several times and the median counts. Rates count from `load()`, the start of the engine or of the
client to the end; `sustained` leaves out what a start costs by itself: for what is in Spark the seconds of
the same read without rows, for Debezium the time to the first batch. Bars are on the narrow table. The one
against JDBC has the start in it. `tailrace-stream` is the view `table`, which has the same typed columns as
JDBC and five more; `tailrace-envelope` is the default view.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import psutil
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Shown

from bench import peers, snapshot_data
from bench.contestant import Contestant, Failed
from bench.measure import Figure, Outcome, at_least
from bench.postgres_server import Server, running
from bench.snapshot_data import Table
from bench.usage import Machine, Sampler, Watch

ROWS, QUICK_ROWS = 2_000_000, 200_000
COPY, JDBC, DEBEZIUM, LEAN = "copy", "jdbc", "debezium", "debezium-lean"
BATCH, STREAM, ENVELOPE = "tailrace-batch", "tailrace-stream", "tailrace-envelope"
NAMES = (COPY, JDBC, BATCH, STREAM, ENVELOPE, DEBEZIUM, LEAN)
MODULES = {
    "copy": "bench.snapshot_copy",
    "jdbc": "bench.snapshot_jdbc",
    "tailrace": "bench.snapshot_spark",
    "debezium": "bench.snapshot_debezium",
}
# What needs the packages that are installed for comparisons only.
PEERS = ("jdbc", "debezium")
IN_SPARK = ("jdbc", "tailrace")
# A snapshot of Debezium's takes as long as all others together, and is not measured in every round.
QUICK_KINDS = ("copy", *IN_SPARK)
# Rounds of the narrow table, which the bars are on; those of the wide ones, and of Debezium on any.
ROUNDS, FEWER = 5, 3
# How often the smaller table is read before anything is measured.
SPARK_WARM, OTHERS_WARM = 4, 2
# The share of the machine that others may take before the ratios mean little.
BUSY = 0.15
ALL_TABLES = ("orders", "wide60", "wide200")


@dataclass(frozen=True)
class Result:
    """What one contestant did with one table.

    CPU seconds are of all its processes, `server` those of the server's. `empty_seconds` is what the start
    costs, `empty_cpu_seconds` what it costs both. `peak_mb` is the largest of its processes, `tree_peak_mb`
    the sum of all. `others` is the share of the machine that was not free for it.
    """

    table: str
    title: str
    contestant: str
    turn: int
    rows: int
    columns: int
    seconds: float
    empty_seconds: float
    cpu_seconds: float
    server_cpu_seconds: float
    empty_cpu_seconds: float
    peak_mb: float
    tree_peak_mb: float
    others: float

    @property
    def rate(self) -> float:
        """Rows a second from start to end."""
        return self.rows / self.seconds

    @property
    def cost(self) -> float:
        """Microseconds of CPU a row, the server's too: it hardly depends on who else computes."""
        return (self.cpu_seconds + self.server_cpu_seconds) / self.rows * 1e6

    @property
    def steady_cost(self) -> float:
        """The same without the start, where that is known."""
        return self.cost - self.empty_cpu_seconds / self.rows * 1e6

    @property
    def sustained(self) -> float | None:
        """Rows a second without the start; None where the start was nearly all."""
        left = self.seconds - self.empty_seconds
        return None if left < self.seconds / 10 else self.rows / left


class Run:
    """One run: a server, a process for each kind of contestant, results and what went wrong."""

    def __init__(self, console: Console, options: argparse.Namespace, server: Server, home: Path) -> None:
        self._console, self._options, self._server = console, options, server
        self.results: list[Result] = []
        self.problems: list[str] = []
        kinds = dict.fromkeys(name.partition("-")[0] for name in NAMES if name in options.only)
        if not kinds.keys().isdisjoint(PEERS) and (missing := peers.install(self._tell)):
            self.problems.append(missing)
            kinds = {kind: None for kind in kinds if kind not in PEERS}
        self._contestants = {kind: Contestant(kind, MODULES[kind], home) for kind in kinds}

    def close(self) -> None:
        """End the contestants."""
        for contestant in self._contestants.values():
            contestant.close()

    def warm(self, table: Table) -> None:
        """What is not measured: more of it where a JVM still becomes faster with every read."""
        for turn in range(SPARK_WARM):
            self.table(table, turn, self._contestants if turn < OTHERS_WARM else IN_SPARK)

    def table(self, table: Table, turn: int, kinds: Collection[str] | None = None) -> None:
        """One contestant after the other, all or those of some kinds."""
        self._tell(f"[bold]{table.title}[/] ({table.name}), round {turn + 1}")
        for name in NAMES:
            kind = name.partition("-")[0]
            if name not in self._options.only or kind not in self._contestants:
                continue
            if kinds is not None and kind not in kinds:
                continue
            try:
                result = self._drain(table, turn, name, self._contestants[kind])
            except Failed as error:
                self.problems.append(f"{table.title}: {error}")
                self._tell(f"  [red]failed:[/] {escape(str(error))}")
                continue
            told = f"{result.seconds:.2f} s, {result.cost:.2f} µs/row"
            self._tell(f"  {name}: {result.rate:,.0f} rows/s, {told}")
            if table.name != "warm":
                self.results.append(result)

    def _drain(self, table: Table, turn: int, name: str, contestant: Contestant) -> Result:
        arguments = {
            "port": self._server.port,
            "database": snapshot_data.DATABASE,
            "table": table.name,
            "rows": table.rows,
            "parts": self._options.partitions,
            "sink": name.partition("-")[2],
            "turn": turn,
        }
        if contestant.name in IN_SPARK:
            contestant.ask("ready", **arguments)
        whole = Watch(contestant.pid)
        machine, ours, theirs = Machine(), cpu(contestant.pid), cpu(self._server.pid)
        with Sampler(whole):
            answer = contestant.ask("drain", **arguments)
        # A worker that nobody waits for takes its seconds along when it ends; a short one is never looked at.
        ours = max(cpu(contestant.pid) - ours, whole.cpu)
        theirs = cpu(self._server.pid) - theirs
        others = machine.others(ours + theirs)
        before = cpu(contestant.pid) + cpu(self._server.pid)
        start = contestant.ask("finish", **arguments)
        idle = cpu(contestant.pid) + cpu(self._server.pid) - before
        if answer["rows"] != table.rows:
            raise Failed(f"{name} has {answer['rows']} rows instead of {table.rows}")
        return Result(
            table=table.name,
            title=table.title,
            contestant=name,
            turn=turn,
            rows=answer["rows"],
            columns=table.columns,
            seconds=answer["seconds"],
            empty_seconds=start.get("empty", 0.0),
            cpu_seconds=ours,
            server_cpu_seconds=theirs,
            # Of the others it is the end of an engine, which has nothing to do with its start.
            empty_cpu_seconds=idle if contestant.name in IN_SPARK else 0.0,
            peak_mb=whole.peak / 1e6,
            tree_peak_mb=whole.peak_sum / 1e6,
            others=others,
        )

    def _tell(self, text: str) -> None:
        self._console.print(text, highlight=False)


def cpu(pid: int) -> float:
    """CPU seconds of a process, of all below it, and of those below it that have ended."""
    total = 0.0
    with contextlib.suppress(psutil.Error):
        top = psutil.Process(pid)
        for _ in range(50):
            tree, total = [top, *top.children(recursive=True)], 0.0
            for process in tree:
                with contextlib.suppress(psutil.Error):
                    times = process.cpu_times()
                    total += times.user + times.system + times.children_user + times.children_system
            # One that ended meanwhile may be in neither sum, its own or its parent's.
            if set(tree) == {top, *top.children(recursive=True)}:
                break
    return total


def run(console: Console, arguments: list[str]) -> Outcome:
    """All tables, all contestants."""
    options = _options(arguments)
    wanted = tuple(t for t in snapshot_data.tables(options.rows) if t.name in ("warm", *options.tables))
    with tempfile.TemporaryDirectory(prefix="bench-") as name, running() as server:
        snapshot_data.make(server, wanted)
        made = Run(console, options, server, Path(name))
        try:
            warm, *measured = wanted
            made.warm(warm)
            for table in measured:
                for turn, kinds in rounds(options.rounds, barred=table.name == "orders"):
                    made.table(table, turn, kinds)
        finally:
            made.close()
    results = _median(made.results)
    _show(console, results)
    if (taken := max((one.others for one in results), default=0.0)) > BUSY:
        console.print(
            f"[yellow]other processes took up to {taken:.0%} of this machine: do not trust the ratios[/]"
        )
    details = [_json(result) for result in made.results]
    return Outcome(_figures(made.results), details, made.problems, bars=not options.no_bars)


def rounds(wanted: int, *, barred: bool) -> list[tuple[int, Collection[str] | None]]:
    """Who reads a table in which round. The others' rounds are not torn apart by Debezium's minutes, in which
    a session of Spark's has nothing to do and becomes cold.
    """
    fewer = min(wanted, FEWER)
    others = [(turn, None if turn == 0 else QUICK_KINDS) for turn in range(wanted if barred else fewer)]
    return [*others, *((turn, (DEBEZIUM,)) for turn in range(1, fewer))]


def _median(results: list[Result]) -> list[Result]:
    """Of the rounds of each contestant and table the one in the middle."""
    rounds: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        rounds.setdefault((result.table, result.contestant), []).append(result)
    return [sorted(same, key=lambda one: one.seconds)[len(same) // 2] for same in rounds.values()]


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog='make bench BENCH="snapshot …"', description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--rows", type=int, default=ROWS, help=f"rows of the narrow table ({ROWS})")
    parser.add_argument("--quick", action="store_true", help=f"only {QUICK_ROWS} rows, one round")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"of the narrow table ({ROUNDS})")
    parser.add_argument("--partitions", type=int, default=2, help="tasks of a read in Spark (2)")
    parser.add_argument("--no-bars", action="store_true", help="end with 0 also when a bar was missed")
    parser.add_argument(
        "--only", type=_list, default=list(NAMES), help=f"contestants, by commas: {','.join(NAMES)}"
    )
    parser.add_argument(
        "--tables", type=_list, default=list(ALL_TABLES), help=f"by commas: {','.join(ALL_TABLES)}"
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.only) - set(NAMES):
        parser.error(f"unknown contestant {', '.join(sorted(unknown))}")
    if unknown := set(options.tables) - set(ALL_TABLES):
        parser.error(f"unknown table {', '.join(sorted(unknown))}")
    if options.quick:
        options.rows, options.rounds = QUICK_ROWS, 1
    if min(options.rounds, options.partitions) < 1 or options.rows < 1000:
        parser.error("--rounds and --partitions must be at least 1, --rows at least 1000")
    return options


def _list(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _show(console: Console, results: list[Result]) -> None:
    """A table for each table."""
    for title in dict.fromkeys(one.title for one in results):
        shown = Shown(title=title, title_justify="left", box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
        shown.add_column("", no_wrap=True)
        for column in ("s", "start", "rows/s", "sustained", "µs/row", "steady", "server", "MB", "all MB"):
            shown.add_column(column, justify="right", no_wrap=True)
        for one in results:
            if one.title == title:
                shown.add_row(
                    one.contestant,
                    f"{one.seconds:.2f}",
                    f"{one.empty_seconds:.2f}" if one.empty_seconds else "",
                    f"{one.rate:,.0f}",
                    f"{one.sustained:,.0f}" if one.sustained else "",
                    f"{one.cost:.2f}",
                    f"{one.steady_cost:.2f}",
                    f"{one.server_cpu_seconds / one.rows * 1e6:.2f}",
                    f"{one.peak_mb:,.0f}",
                    f"{one.tree_peak_mb:,.0f}",
                )
        console.print(shown)


def _figures(results: list[Result]) -> list[Figure]:
    """The ratios, and their bars: of each round, and of those the one in the middle.

    A machine that others use as well is faster now and slower then, for all of a round; Debezium's later
    rounds come after all others and share only the number with theirs.
    """
    found: dict[tuple[str, str], dict[int, Result]] = {}
    for result in results:
        found.setdefault((result.table, result.contestant), {})[result.turn] = result
    figures: list[Figure] = []
    for table in dict.fromkeys(one.table for one in results):
        barred = table == "orders"
        for mine, other, bar in (
            (BATCH, COPY, None),
            (BATCH, JDBC, 0.9),
            (BATCH, DEBEZIUM, 10.0),
            (BATCH, LEAN, None),
            (STREAM, BATCH, 0.6),
            (ENVELOPE, BATCH, None),
        ):
            ours, theirs = found.get((table, mine), {}), found.get((table, other), {})
            rounds = [(ours[turn], theirs[turn]) for turn in sorted(ours.keys() & theirs.keys())]
            if not rounds:
                continue
            what, whole = f"{table}: {mine} against {other}", median(a.rate / b.rate for a, b in rounds)
            steadily = [a.sustained / b.sustained for a, b in rounds if a.sustained and b.sustained]
            steady = median(steadily) if steadily else None
            # A stream starts once in its life, a batch read each time.
            judged = steady if mine != BATCH else whole
            if bar is not None and barred:
                # Where a start was nearly all of the time, nothing was seen to hold.
                figures.append(at_least(what, judged or 0.0, bar))
            elif judged is not None:
                figures.append(Figure(what, judged, "×"))
            if mine != BATCH:
                figures.append(Figure(f"{what}, start included", whole, "×"))
            elif steady is not None:
                figures.append(Figure(f"{what}, without the start", steady, "×"))
    return figures


def _json(result: Result) -> dict[str, object]:
    return {
        **asdict(result),
        "rate": result.rate,
        "sustained_rate": result.sustained,
        "cpu_us_per_row": result.cost,
        "steady_cpu_us_per_row": result.steady_cost,
    }

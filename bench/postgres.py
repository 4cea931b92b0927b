"""PostgreSQL → Spark against a client that only counts and against Debezium, on the same log of one server.

Every contestant has a slot from before the writes and reads the same log from there, one after the other,
each in a process of its own. Bars are ratios within one run, so a slow or busy machine changes both sides.
Each workload is written and read several times, and the round with the median rate counts.
Rates count from the start of the query, engine or client to its end; `sustained` leaves out what starting
costs by itself: for Tailrace the seconds of a query without rows, for the others the time to the first of the
rows of small transactions. (The first row of a large one comes after the server has gone through all of it.)
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench import peers, postgres_data
from bench.contestant import Contestant, Failed
from bench.measure import Figure, Outcome, at_least, at_most
from bench.postgres_data import Workload
from bench.postgres_server import Server, running
from bench.usage import Machine, Sampler, Watch

ROWS, QUICK_ROWS = 500_000, 50_000
COUNT, NOOP, PARQUET = "count", "tailrace-noop", "tailrace-parquet"
DEBEZIUM, LEAN = "debezium", "debezium-lean"
NAMES = (COUNT, NOOP, PARQUET, DEBEZIUM, LEAN)
MODULES = {"count": "bench.postgres_count", "tailrace": "bench.postgres_spark", "debezium": "bench.debezium"}
# The process of Spark that holds the capture.
CAPTURE = "python_streaming_source_runner"
MEMORY_BAR = 600
# The share of the machine that others may take before the ratios mean little.
BUSY = 0.15


@dataclass(frozen=True)
class Result:
    """What one contestant did with one workload.

    CPU seconds are of all its processes, `server` those of the walsender. `peak_mb` is the process that holds
    the capture, `tree_peak_mb` the sum of all. `empty_seconds` is a query without rows. `others` is the share
    of the machine that was not free for it.
    """

    workload: str
    title: str
    contestant: str
    rows: int
    seconds: float
    sustained_seconds: float
    empty_seconds: float | None
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
    def cost(self) -> float:
        """Microseconds of CPU a row, the server's too: it hardly depends on who else computes."""
        return (self.cpu_seconds + self.server_cpu_seconds) / self.rows * 1e6

    @property
    def sustained(self) -> float | None:
        """Rows a second without the start; None where the start was nearly all."""
        if self.sustained_seconds < self.seconds / 10:
            return None
        return self.rows / self.sustained_seconds


class Run:
    """One run: a server, a process for each kind of contestant, results and what went wrong."""

    def __init__(self, console: Console, options: argparse.Namespace, server: Server, home: Path) -> None:
        self._console, self._options, self._server = console, options, server
        self.results: list[Result] = []
        self.problems: list[str] = []
        # Both sinks of Tailrace share a process, which is its warm session.
        kinds = dict.fromkeys(name.partition("-")[0] for name in NAMES if name in options.only)
        if "debezium" in kinds and (missing := peers.install(self._tell)):
            self.problems.append(missing)
            del kinds["debezium"]
        self._contestants = {kind: Contestant(kind, MODULES[kind], home) for kind in kinds}

    def close(self) -> None:
        """End the contestants."""
        for contestant in self._contestants.values():
            contestant.close()

    def workload(self, workload: Workload) -> None:
        """Slots, writes, then one contestant after the other."""
        self._tell(f"[bold]{workload.title}[/], round {workload.round + 1}")
        common = {"port": self._server.port, "database": workload.database, "view": self._options.view}
        postgres_data.make(self._server, workload)
        for kind, contestant in list(self._contestants.items()):
            try:
                contestant.ask("prepare", **common)
            except Failed as error:
                # Without a slot it cannot take part in what follows either.
                self._failed(workload, error)
                self._contestants.pop(kind).close()
        self._tell("  slots are there, writing")
        postgres_data.write(self._server, workload)
        for name in NAMES:
            kind, _, sink = name.partition("-")
            if name not in self._options.only or kind not in self._contestants:
                continue
            try:
                result = self._drain(workload, self._contestants[kind], name, {**common, "sink": sink})
            except Failed as error:
                self._failed(workload, error)
                continue
            self._tell(f"  {name}: {result.rate:,.0f} rows/s, {result.seconds:.2f} s")
            if workload.name != "warm":
                self.results.append(result)
        postgres_data.drop(self._server, workload)

    def _failed(self, workload: Workload, error: Failed) -> None:
        self.problems.append(f"{workload.title}: {error}")
        self._tell(f"  [red]failed:[/] {escape(str(error))}")

    def _drain(
        self, workload: Workload, contestant: Contestant, name: str, arguments: dict[str, object]
    ) -> Result:
        whole, sender = Watch(contestant.pid), Watch(self._server.pid, "walsender")
        capture = Watch(contestant.pid, CAPTURE if contestant.name == "tailrace" else None)
        machine = Machine()
        with Sampler(whole, sender, capture):
            answer = contestant.ask("drain", rows=workload.rows, **arguments)
        others = machine.others(whole.cpu + sender.cpu)
        contestant.ask("finish", rows=workload.rows, **arguments)
        if answer["rows"] != workload.rows:
            raise Failed(f"{name} has {answer['rows']} rows instead of {workload.rows}")
        return Result(
            workload=workload.name,
            title=workload.title,
            contestant=name,
            rows=answer["rows"],
            seconds=answer["seconds"],
            sustained_seconds=answer["sustained"],
            empty_seconds=answer.get("empty"),
            cpu_seconds=whole.cpu,
            server_cpu_seconds=sender.cpu,
            peak_mb=capture.peak / 1e6,
            tree_peak_mb=whole.peak_sum / 1e6,
            others=others,
        )

    def _tell(self, text: str) -> None:
        self._console.print(text, highlight=False)


def run(console: Console, arguments: list[str]) -> Outcome:
    """All workloads, all contestants."""
    options = _options(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-") as name, running() as server:
        made = Run(console, options, server, Path(name))
        try:
            for workload in postgres_data.workloads(options.rows):
                if workload.name in ("warm", *options.workloads):
                    for turn in range(1 if workload.name == "warm" else options.rounds):
                        made.workload(replace(workload, round=turn))
        finally:
            made.close()
    started = _started(made.results)
    results = _median(started)
    _show(console, results)
    if (taken := max((one.others for one in results), default=0.0)) > BUSY:
        console.print(
            f"[yellow]other processes took up to {taken:.0%} of this machine: do not trust the ratios[/]"
        )
    details = [_json(result) for result in started]
    return Outcome(_figures(results), details, made.problems, bars=not options.no_bars)


def _started(results: list[Result]) -> list[Result]:
    """With the start of each contestant as the least that was seen of it in any round.

    Ours is a query without rows; of peers it is what comes before small transactions, whose first row is
    there at once.
    """
    starts: dict[str, list[float]] = {}
    for one in results:
        if one.empty_seconds is not None:
            starts.setdefault(one.contestant, []).append(one.empty_seconds)
        elif one.workload == "small":
            starts.setdefault(one.contestant, []).append(one.seconds - one.sustained_seconds)
    least = {name: min(found) for name, found in starts.items()}
    return [
        replace(one, sustained_seconds=one.seconds - least[one.contestant])
        if one.contestant in least
        else one
        for one in results
    ]


def _median(results: list[Result]) -> list[Result]:
    """Of the rounds of each contestant and workload the one in the middle."""
    rounds: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        rounds.setdefault((result.workload, result.contestant), []).append(result)
    return [sorted(same, key=lambda one: one.seconds)[len(same) // 2] for same in rounds.values()]


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog='make bench BENCH="postgres …"', description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--rows", type=int, default=ROWS, help=f"rows of the first workload ({ROWS})")
    parser.add_argument("--quick", action="store_true", help=f"only {QUICK_ROWS} rows")
    parser.add_argument("--rounds", type=int, default=3, help="how often each workload is measured (3)")
    parser.add_argument("--no-bars", action="store_true", help="end with 0 also when a bar was missed")
    parser.add_argument("--view", default="envelope", help="Tailrace's view (envelope, its default)")
    parser.add_argument(
        "--only", type=_list, default=list(NAMES), help=f"contestants, by commas: {','.join(NAMES)}"
    )
    parser.add_argument(
        "--workloads", type=_list, default=["small", "big", "changes"], help="by commas: small,big,changes"
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.only) - set(NAMES):
        parser.error(f"unknown contestant {', '.join(unknown)}")
    if options.quick:
        options.rows = QUICK_ROWS
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    if options.rows < postgres_data.PER_TRANSACTION * 2:
        parser.error("--rows is too small")
    return options


def _list(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _show(console: Console, results: list[Result]) -> None:
    """A table for each workload."""
    for title in dict.fromkeys(one.title for one in results):
        table = Table(title=title, title_justify="left", box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column("", no_wrap=True)
        for column in ("s", "rows/s", "sustained", "CPU s", "server", "µs/row", "MB", "all MB"):
            table.add_column(column, justify="right", no_wrap=True)
        for one in results:
            if one.title == title:
                table.add_row(
                    one.contestant,
                    f"{one.seconds:.2f}",
                    f"{one.rate:,.0f}",
                    f"{one.sustained:,.0f}" if one.sustained else "",
                    f"{one.cpu_seconds:.2f}",
                    f"{one.server_cpu_seconds:.2f}",
                    f"{one.cost:.1f}",
                    f"{one.peak_mb:,.0f}",
                    f"{one.tree_peak_mb:,.0f}",
                )
        console.print(table)


def _figures(results: list[Result]) -> list[Figure]:
    """The ratios, and their bars."""
    found = {(one.workload, one.contestant): one for one in results}
    figures: list[Figure] = []
    for workload in dict.fromkeys(one.workload for one in results):
        ours = found.get((workload, NOOP))
        for peer, bar in ((COUNT, 0.7), (DEBEZIUM, 3.0), (LEAN, None)):
            other = found.get((workload, peer))
            for sink, title in ((NOOP, "no-op"), (PARQUET, "Parquet")):
                mine = found.get((workload, sink))
                if other is None or mine is None:
                    continue
                what = f"{workload}: {title} against {peer}"
                held = bar if sink == NOOP else None
                if other.sustained and mine.sustained:
                    ratio = mine.sustained / other.sustained
                    figures.append(at_least(what, ratio, held) if held else Figure(what, ratio, "×"))
                elif held:
                    # A start was nearly all of the time: nothing was seen to hold.
                    figures.append(at_least(what, 0.0, held))
                figures.append(Figure(f"{what}, start included", mine.rate / other.rate, "×"))
        if workload == "big" and ours:
            figures.append(at_most("big: peak memory of the capture process", ours.peak_mb, MEMORY_BAR, "MB"))
    return figures


def _json(result: Result) -> dict[str, object]:
    return {
        **asdict(result),
        "rate": result.rate,
        "sustained_rate": result.sustained,
        "cpu_us_per_row": result.cost,
    }

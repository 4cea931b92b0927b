"""Documents from PostgreSQL: backfill and bursts of changes, against the source alone and a loop of queries.

One server, two databases, one of a tenth of the customers. A document is a customer with orders, their items
and the products of these, and five aggregates. Contestants are processes of their own and run one after the
other; ratios are those of each round, and the one in the middle counts. A backfill counts from the start of
the pipeline to its end, a burst from its first statement until the last of its documents is written.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench import documents_data as data
from bench.contestant import Contestant, Failed
from bench.measure import Figure, Outcome, at_least, at_most
from bench.postgres_server import Server, running
from bench.snapshot import BUSY, cpu
from bench.usage import Machine, Sampler, Watch

ROWS, QUICK_ROWS = 1_000_000, 20_000
CHANGES, QUICK_CHANGES = 10_000, 2_000
# Bursts of each time that a pipeline runs, after one that is not measured.
BURSTS = 3
SAMPLE, QUICK_SAMPLE = 2_000, 300
SMALLER = 10
WHOLE, HALVES, LOOP, PLAIN = "source-whole", "source-halves", "loop", "loop-plain"
COUNT, STORE = "tailrace-count", "tailrace-store"
NAMES = (WHOLE, HALVES, LOOP, PLAIN, COUNT, STORE)
SETTINGS = {
    # All tables of both databases fit: a larger one is compared with a smaller one, not a disk with memory.
    "shared_buffers": "1536MB",
    # A page's first change after a checkpoint would bring all of it into the log, and a larger table has more
    # pages: the writing is not what is measured.
    "full_page_writes": "off",
}
MODULES = {"source": "bench.documents_source", "tailrace": "bench.documents_spark"}


@dataclass(frozen=True)
class Step:
    """What is measured: a backfill or a burst, of whom, on how many customers, in which round."""

    what: str
    contestant: str
    customers: int
    turn: int


@dataclass(frozen=True)
class Result(Step):
    """What one contestant did once.

    `seconds` is from the start to the end, of a burst from its first statement. `documents` is how many were
    built. CPU seconds are of all its processes, `server` those of the server's, the writing of a burst too.
    `others` is the share of the machine that was not free for it.
    """

    documents: int
    changes: int
    seconds: float
    cpu_seconds: float
    server_cpu_seconds: float
    peak_mb: float
    tree_peak_mb: float
    others: float

    @property
    def rate(self) -> float:
        """Documents a second."""
        return self.documents / self.seconds

    @property
    def cost(self) -> float:
        """Microseconds of CPU a document, the server's too: it hardly depends on who else computes."""
        return (self.cpu_seconds + self.server_cpu_seconds) / self.documents * 1e6

    @property
    def server_cost(self) -> float:
        """The server's part of it."""
        return self.server_cpu_seconds / self.documents * 1e6


class Run:
    """One run: a server, the contestants' processes, results and what went wrong."""

    def __init__(self, console: Console, options: argparse.Namespace, server: Server, home: Path) -> None:
        self._console, self._options, self._server = console, options, server
        self.results: list[Result] = []
        self.problems: list[str] = []
        kinds = {"tailrace" if name.startswith("tailrace") else "source" for name in options.only}
        self._contestants = {kind: Contestant(kind, MODULES[kind], home) for kind in sorted(kinds)}
        # Pipelines that are filled, by their round, how many changes there were, and how many each has seen.
        self._filled: dict[tuple[int, str], int] = {}
        self._changes: dict[int, int] = {}
        self._seen: dict[tuple[int, str], int] = {}

    def close(self) -> None:
        """End the contestants."""
        for contestant in self._contestants.values():
            contestant.close()

    def backfill(self, customers: int, turn: int, names: Sequence[str]) -> None:
        """One contestant after the other builds every document, or a sample of them."""
        self._tell(f"[bold]{customers:,} documents[/], round {turn + 1}")
        sizes: dict[str, int] = {}
        for name in names:
            if name in self._options.only:
                with self._failing(f"{customers:,} documents"):
                    sizes[name] = self._backfill(name, customers, turn)
        sizes = {name: size for name, size in sizes.items() if name in (WHOLE, HALVES, COUNT, STORE)}
        if len(set(sizes.values())) > 1:
            self.problems.append(f"{customers:,} documents: unequal bytes of ids and documents, {sizes}")

    def _backfill(self, name: str, customers: int, turn: int) -> int:
        kind, _, way = name.partition("-")
        told = {"rows": customers, "turn": turn, "sample": self._options.sample}
        contestant = self._contestants["source" if kind == "loop" else kind]
        if kind == "tailrace":
            self._forget(customers, way)
            answer = self._measured(contestant, name, "fill", sink=way, **told)
            self._filled[customers, way] = turn
            self._seen[customers, way] = self._changes.get(customers, 0)
        elif kind == "source":
            answer = self._measured(contestant, name, "drain", way=way, **told)
        else:
            answer = self._measured(contestant, name, "loop", way=way, **told)
        wanted = min(self._options.sample, customers) if kind == "loop" else customers
        if answer["documents"] != wanted:
            raise Failed(f"{name} has {answer['documents']} documents instead of {wanted}")
        return int(answer["bytes"])

    def _forget(self, customers: int, way: str) -> None:
        if (customers, way) in self._filled:
            turn = self._filled.pop((customers, way))
            self._contestants["tailrace"].ask("forget", rows=customers, sink=way, turn=turn)

    def bursts(self, name: str, customers: int, turn: int) -> None:
        """A filled pipeline goes on, and meets bursts of changes."""
        way = name.partition("-")[2]
        if (customers, way) not in self._filled:
            return
        self._tell(f"[bold]bursts on {customers:,} documents[/], {name}, round {turn + 1}")
        contestant = self._contestants["tailrace"]
        told = {"rows": customers, "sink": way, "turn": self._filled[customers, way]}
        with self._failing(f"bursts on {customers:,} documents"):
            contestant.ask("live", **told)
            try:
                # What another met meanwhile.
                contestant.ask("reach", changes=self._changes.get(customers, 0) - self._seen[customers, way])
                for number in range(self._options.bursts + 1):
                    # The first finds Spark's workers and connections gone cold.
                    step = Step("burst" if number else "warm", name, customers, turn)
                    self._burst(contestant, step, way)
                self._seen[customers, way] = self._changes[customers]
            except Failed:
                contestant.ask("rest", **told)
                raise
            # Not where the benchmark is told to end: it would wait for the answer to what it asked before.
            contestant.ask("rest", **told)

    def _burst(self, contestant: Contestant, step: Step, way: str) -> None:
        changes, customers, before = (
            self._options.changes,
            step.customers,
            self._changes.get(step.customers, 0),
        )
        self._changes[customers] = before + changes
        behind = self._changes[customers] - self._seen[customers, way]
        with self._server.connect(data.database(customers)) as connection:
            connection.execute("SET synchronous_commit = off")

            def burst() -> dict[str, Any]:
                begun = perf_counter()
                data.burst(connection, customers, changes, before // changes)
                answer = contestant.ask("reach", changes=behind)
                return {**answer, "seconds": perf_counter() - begun, "changes": changes}

            self._watched(contestant, step, burst)

    def equal(self, customers: int) -> None:
        """After all bursts the store has what the source's own SQL gives."""
        if (customers, "store") not in self._filled or "source" not in self._contestants:
            return
        with self._failing("after the bursts"):
            told = {"port": self._server.port, "rows": customers}
            mine = self._contestants["tailrace"].ask(
                "rest", sink="store", turn=self._filled[customers, "store"], **told
            )
            theirs = self._contestants["source"].ask("drain", way="whole", **told)
            found = [{key: one[key] for key in ("documents", "bytes")} for one in (mine, theirs)]
            if found[0] != found[1]:
                raise Failed(f"the store has {found[0]}, and the source {found[1]}")

    def _measured(self, contestant: Contestant, name: str, verb: str, **told: Any) -> dict[str, Any]:
        def ask() -> dict[str, Any]:
            return {**contestant.ask(verb, port=self._server.port, **told), "changes": 0}

        return self._watched(contestant, Step("backfill", name, told["rows"], told["turn"]), ask)

    def _watched(
        self, contestant: Contestant, step: Step, act: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        whole = Watch(contestant.pid)
        machine, ours, theirs = Machine(), cpu(contestant.pid), cpu(self._server.pid)
        with Sampler(whole):
            answer = act()
        # A worker that nobody waits for takes its seconds along when it ends; a short one is never looked at.
        ours = max(cpu(contestant.pid) - ours, whole.cpu)
        theirs = cpu(self._server.pid) - theirs
        result = Result(
            **asdict(step),
            documents=answer["changes"] or answer["documents"],
            changes=answer["changes"],
            seconds=answer["seconds"],
            cpu_seconds=ours,
            server_cpu_seconds=theirs,
            peak_mb=whole.peak / 1e6,
            tree_peak_mb=whole.peak_sum / 1e6,
            others=machine.others(ours + theirs),
        )
        self._tell(
            f"  {step.contestant}: {result.rate:,.0f} /s, {result.seconds:.2f} s, {result.cost:.0f} µs"
        )
        if step.what != "warm":
            self.results.append(result)
        return answer

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
    """Both sizes, all contestants."""
    options = _options(arguments)
    small, large = options.rows // SMALLER, options.rows
    with tempfile.TemporaryDirectory(prefix="bench-") as name, running(**SETTINGS) as server:
        made = Run(console, options, server, Path(name))
        try:
            for customers in (small, large):
                console.print(f"writing {customers:,} customers", highlight=False)
                data.make(server, customers)
            # It warms everybody, and is what bursts on the smaller database begin with.
            made.backfill(small, 0, NAMES)
            for turn in range(options.rounds):
                # The store is filled once: its own work is most of that.
                made.backfill(large, turn, NAMES if turn == 0 else [one for one in NAMES if one != STORE])
            for turn in range(options.rounds):
                for contestant in (COUNT, STORE):
                    for customers in (small, large):
                        made.bursts(contestant, customers, turn)
            made.equal(large)
        finally:
            made.close()
    _show(console, made.results)
    if (taken := max((one.others for one in made.results), default=0.0)) > BUSY:
        console.print(
            f"[yellow]other processes took up to {taken:.0%} of this machine: do not trust the ratios[/]"
        )
    details = [_json(result) for result in made.results]
    figures = _figures(made.results, small, large)
    return Outcome(figures, details, made.problems, bars=not options.no_bars)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog='make bench BENCH="documents …"', description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--rows", type=int, default=ROWS, help=f"customers, one a document ({ROWS})")
    parser.add_argument("--changes", type=int, default=CHANGES, help=f"changes of a burst ({CHANGES})")
    parser.add_argument("--sample", type=int, default=SAMPLE, help=f"documents of the loops ({SAMPLE})")
    parser.add_argument("--rounds", type=int, default=3, help="how often everything is measured (3)")
    parser.add_argument("--bursts", type=int, default=BURSTS, help=f"bursts of a round ({BURSTS})")
    parser.add_argument("--quick", action="store_true", help=f"only {QUICK_ROWS} customers, one round")
    parser.add_argument("--no-bars", action="store_true", help="end with 0 also when a bar was missed")
    parser.add_argument(
        "--only", type=_list, default=list(NAMES), help=f"contestants, by commas: {','.join(NAMES)}"
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.only) - set(NAMES):
        parser.error(f"unknown contestant {', '.join(sorted(unknown))}")
    if options.quick:
        options.rows, options.changes, options.sample = QUICK_ROWS, QUICK_CHANGES, QUICK_SAMPLE
        options.rounds = 1
    if min(options.rounds, options.bursts, options.sample) < 1 or options.rows < 1000:
        parser.error("--rounds, --bursts and --sample must be at least 1, --rows at least 1000")
    if options.changes % data.PER_TRANSACTION or options.changes > options.rows // SMALLER:
        parser.error(f"--changes must be tens, and at most --rows / {SMALLER}")
    return options


def _list(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _show(console: Console, results: list[Result]) -> None:
    """A table for each size and kind, of the rounds in the middle."""
    groups: dict[tuple[str, int], dict[str, list[Result]]] = {}
    for one in results:
        groups.setdefault((one.what, one.customers), {}).setdefault(one.contestant, []).append(one)
    for (what, customers), found in groups.items():
        title = f"{what}, {customers:,} customers"
        table = Table(title=title, title_justify="left", box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column("", no_wrap=True)
        unit = "changes/s" if what == "burst" else "documents/s"
        for column in ("s", unit, "µs CPU", "server", "MB", "all MB"):
            table.add_column(column, justify="right", no_wrap=True)
        for contestant, same in found.items():
            one = sorted(same, key=lambda result: result.seconds)[len(same) // 2]
            table.add_row(
                contestant,
                f"{one.seconds:.2f}",
                f"{one.rate:,.0f}",
                f"{one.cost:.1f}",
                f"{one.server_cost:.1f}",
                f"{one.peak_mb:,.0f}",
                f"{one.tree_peak_mb:,.0f}",
            )
        console.print(table)


def _figures(results: list[Result], small: int, large: int) -> list[Figure]:
    """The ratios of each round, of those the one in the middle, and their bars."""
    found: dict[tuple[str, str, int], dict[int, list[Result]]] = {}
    for one in results:
        found.setdefault((one.what, one.contestant, one.customers), {}).setdefault(one.turn, []).append(one)
    figures: list[Figure] = []
    # What the server does at best, by itself: nobody who asks it for documents gets further from a loop.
    for one in (WHOLE, HALVES):
        ratio = _ratio(found, ("backfill", one, large), ("backfill", PLAIN, large))
        if ratio is not None:
            figures.append(Figure(f"backfill, {one} against {PLAIN}", ratio, "×", compared=False))
    for mine in (COUNT, STORE):
        for other, bar in ((WHOLE, 0.5), (HALVES, None), (LOOP, 20.0), (PLAIN, None)):
            ratio = _ratio(found, ("backfill", mine, large), ("backfill", other, large))
            if ratio is None:
                continue
            what = f"backfill, {mine} against {other}"
            held = bar if mine == COUNT else None
            figures.append(Figure(what, ratio, "×") if held is None else at_least(what, ratio, held))
            costs = [_cost(found["backfill", one, large]) for one in (other, mine)]
            figures.append(Figure(f"{what}, by CPU", costs[0] / costs[1], "×"))
    for mine in (COUNT, STORE):
        for other in (LOOP, PLAIN):
            ratio = _ratio(found, ("burst", mine, large), ("backfill", other, large))
            if ratio is not None:
                figures.append(Figure(f"burst, {mine} against {other}", ratio, "×"))
        growth = _ratio(found, ("burst", mine, small), ("burst", mine, large))
        if growth is not None:
            what = f"burst, {mine}: seconds a change, {large:,} against {small:,} customers"
            held = at_most(what, growth, 1.3) if mine == COUNT else Figure(what, growth, "×", lower=True)
            figures.append(held)
            costs = [_cost(found["burst", mine, customers]) for customers in (large, small)]
            figures.append(Figure(f"{what}, by CPU", costs[0] / costs[1], "×", lower=True))
    return figures


def _cost(rounds: dict[int, list[Result]]) -> float:
    return median(one.cost for same in rounds.values() for one in same)


def _ratio(
    found: dict[tuple[str, str, int], dict[int, list[Result]]],
    mine: tuple[str, str, int],
    other: tuple[str, str, int],
) -> float | None:
    """Of the rounds that both have the ratio of rates in the middle."""
    one, two = found.get(mine, {}), found.get(other, {})
    rounds = [
        median(result.rate for result in one[turn]) / median(result.rate for result in two[turn])
        for turn in sorted(one.keys() & two.keys())
    ]
    return median(rounds) if rounds else None


def _json(result: Result) -> dict[str, object]:
    return {**asdict(result), "rate": result.rate, "cpu_us_per_document": result.cost}

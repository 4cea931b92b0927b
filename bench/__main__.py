"""`make bench [BENCH=name]`: run the benchmarks, print a table, write JSON to bench/results/."""

from __future__ import annotations

import importlib
import json
import platform
import signal
import sys
import time
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.measure import Outcome

NAMES = ("sqlite", "postgres", "snapshot", "documents", "opensearch")
# These take options of their own.
WITH_OPTIONS = ("postgres", "snapshot", "documents", "opensearch")


def main(words: list[str]) -> int:
    """Run the named benchmarks, or all; the exit code is 1 if a bar was missed.

    What follows the first option belongs to the benchmark: `postgres --rows 50000`.
    """
    console = Console()
    cut = next((at for at, word in enumerate(words) if word.startswith("-")), len(words))
    names, arguments = words[:cut] or list(NAMES), words[cut:]
    known = set(WITH_OPTIONS if arguments else NAMES)
    if unknown := [name for name in names if name not in known]:
        told = "benchmark with options" if arguments else "benchmark"
        console.print(f"unknown {told} {', '.join(unknown)}; known: {', '.join(sorted(known))}")
        return 2
    failed = False
    for name in names:
        begun = time.monotonic()
        module = importlib.import_module(f"bench.{name}")
        if name in WITH_OPTIONS:
            outcome: Outcome = module.run(console, arguments)
        else:
            outcome = Outcome(module.run(console))
        show(console, name, outcome, time.monotonic() - begun)
        save(name, outcome)
        failed = failed or not outcome.ok
    return 1 if failed else 0


def show(console: Console, name: str, outcome: Outcome, seconds: float) -> None:
    """The table a person reads."""
    table = Table(title=f"bench {name} ({seconds:.0f} s)", title_justify="left")
    for column in ("what", "figure", "bar", ""):
        table.add_column(column, justify="right" if column in ("figure", "bar") else "left")
    for figure in outcome.figures:
        verdict = "" if figure.ok is None else "[green]held[/]" if figure.ok else "[red]missed[/]"
        table.add_row(figure.what, figure.shown, figure.bar or "", verdict)
    console.print(table)
    for problem in outcome.problems:
        console.print(f"[red]problem:[/] {escape(problem)}", highlight=False)


def save(name: str, outcome: Outcome) -> None:
    """The same for machines."""
    directory = Path(__file__).parent / "results"
    directory.mkdir(exist_ok=True)
    body = {
        "benchmark": name,
        "python": platform.python_version(),
        "versions": {package: version(package) for package in ("pyspark", "pyarrow", "deltalake")},
        "figures": [figure.to_json() for figure in outcome.figures],
        "details": outcome.details,
        "problems": outcome.problems,
    }
    (directory / f"{name}.json").write_text(json.dumps(body, indent=2) + "\n")


if __name__ == "__main__":
    # A benchmark that is told to end stops its servers, as at Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # What was started is stopped also when this process is told to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main([name for name in sys.argv[1:] if name]))

"""`make bench [BENCH=name]`: run the benchmarks, print a table, write JSON to bench/results/."""

from __future__ import annotations

import importlib
import json
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.measure import Figure

NAMES = ("sqlite",)


def main(names: list[str]) -> int:
    """Run the named benchmarks, or all; the exit code is 1 if a bar was missed."""
    console = Console()
    missed = 0
    for name in names or list(NAMES):
        if name not in NAMES:
            console.print(f"unknown benchmark {name}; known: {', '.join(NAMES)}")
            return 2
        begun = time.monotonic()
        figures: list[Figure] = importlib.import_module(f"bench.{name}").run(console)
        missed += sum(1 for figure in figures if figure.ok is False)
        show(console, name, figures, time.monotonic() - begun)
        save(name, figures)
    return 1 if missed else 0


def show(console: Console, name: str, figures: list[Figure], seconds: float) -> None:
    """The table a person reads."""
    table = Table(title=f"bench {name} ({seconds:.0f} s)", title_justify="left")
    for column in ("what", "figure", "bar", ""):
        table.add_column(column, justify="right" if column in ("figure", "bar") else "left")
    for figure in figures:
        verdict = "" if figure.ok is None else "[green]held[/]" if figure.ok else "[red]missed[/]"
        table.add_row(figure.what, figure.shown, figure.bar or "", verdict)
    console.print(table)


def save(name: str, figures: list[Figure]) -> None:
    """The same for machines."""
    directory = Path(__file__).parent / "results"
    directory.mkdir(exist_ok=True)
    body = {
        "benchmark": name,
        "python": platform.python_version(),
        "versions": {package: version(package) for package in ("pyspark", "pyarrow", "deltalake")},
        "figures": [figure.to_json() for figure in figures],
    }
    (directory / f"{name}.json").write_text(json.dumps(body, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main([name for name in sys.argv[1:] if name]))

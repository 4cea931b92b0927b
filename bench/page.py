"""docs/benchmarks.md: what was measured, between markers, and plots beside it; the rest is written by hand.

`bench/measured.json` holds the reports that the page shows, so that anybody can see whether it is current.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import plot
from bench.report import Report, first_lines, report
from bench.results import Result

ROOT = Path(__file__).parent.parent
MEASURED = ROOT / "bench" / "measured.json"
PAGE = ROOT / "docs" / "benchmarks.md"
PLOTS = ROOT / "docs" / "plots"
# The share of the machine that others may take before it is told.
BUSY = 0.15
_PART = re.compile(r"(<!-- generated: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def measured() -> dict[str, Report]:
    """The reports that the page shows, by the names of benchmarks."""
    found: dict[str, Report] = json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.exists() else {}
    return found


def write(results: Iterable[Result]) -> list[str]:
    """Take these results into the page; the files that are others than before."""
    reports = measured()
    for result in results:
        name = result["benchmark"]
        if result["details"]:
            reports[name] = report(result)
        elif name in reports:
            # The figures stay those of the run before, and the page says that this one had none.
            reports[name]["problems"] = first_lines(result["problems"])
    text = json.dumps(dict(sorted(reports.items())), indent=1, ensure_ascii=False) + "\n"
    wanted = {MEASURED: text, **files(reports, PAGE.read_text(encoding="utf-8"))}
    changed = [file for file, body in wanted.items() if not file.exists() or file.read_text("utf-8") != body]
    for file in changed:
        file.parent.mkdir(exist_ok=True)
        file.write_text(wanted[file], encoding="utf-8")
    return [str(file.relative_to(ROOT)) for file in changed]


def files(reports: Mapping[str, Report], page: str) -> dict[Path, str]:
    """The page and its plots as they must be; `page` is what is there, for its handwriting."""
    made = {PAGE: renewed(page, reports)}
    for one in reports.values():
        made |= {PLOTS / f"{chart['name']}.svg": plot.svg(chart) for chart in one["charts"]}
    return made


def renewed(page: str, reports: Mapping[str, Report]) -> str:
    """The page with its generated parts made anew."""
    missing = set(reports) - {match["name"] for match in _PART.finditer(page)}
    if missing:
        raise ValueError(f"docs/benchmarks.md has no part for {', '.join(sorted(missing))}")

    def part(match: re.Match[str]) -> str:
        shown = reports.get(match["name"])
        return f"{match[1]}\n{section(shown) if shown else 'Not measured yet.'}\n\n{match[3]}"

    return _PART.sub(part, page)


def section(shown: Report) -> str:
    """One benchmark: how it was measured, its plots, its bars, its tables."""
    with_bar = [figure for figure in shown["figures"] if figure["bar"]]
    others = [figure for figure in shown["figures"] if not figure["bar"] and figure["unit"] == "×"]
    versions = ", ".join(f"{name} {number}" for name, number in shown["versions"].items())
    parts = [f"`{shown['command']}`: {_time(shown['seconds'])} on {shown['machine']}. {versions}."]
    if shown.get("commit"):
        parts[0] += f" Commit {shown['commit']}."
    if shown["others"] > BUSY:
        parts.append(f"Other processes took up to {shown['others']:.0%} of the machine: ratios may be off.")
    parts += [f"Not measured: {problem}" for problem in shown["problems"]]
    parts += [f"![{chart['title']}](plots/{chart['name']}.svg)" for chart in shown["charts"]]
    if with_bar:
        rows = [
            [one["what"], _number(one), one["bar"], "held" if one["ok"] else "**missed**"] for one in with_bar
        ]
        parts.append(table(["bar", "figure", "", ""], rows))
    for one in shown["tables"]:
        parts.append(f"**{one['title']}**\n\n{table(one['head'], one['rows'])}")
    if others:
        rows = [[one["what"], _number(one)] for one in others]
        told = "Ratios without a bar"
        body = table(["", "figure"], rows)
        parts.append(f"<details><summary>{told}</summary>\n\n{body}\n\n</details>")
    return "\n\n".join(parts)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown; numbers to the right."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join([line(head), line(rule), *(line(row) for row in rows)])


def _number(figure: Mapping[str, Any]) -> str:
    return f"{figure['value']:,.2f} {figure['unit']}"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"

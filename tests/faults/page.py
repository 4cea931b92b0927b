"""The page of faults, made of the matrix and of what became of its tests in the last recorded run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tests.faults.bugs import BUGS
from tests.faults.matrix import TARGETS, TITLES, Bug, Row, function_of
from tests.faults.recording import ALONE, NOT_RUN, has_passed
from tests.faults.rows import ROWS

YES, NO, APART, OPEN = "✓", "✗", "–", "?"
LEGEND = (
    f"{YES} every test of it passed the last time it was recorded · {NO} one failed"
    f" · {APART} does not concern it · {OPEN} not proved"
    " · the reasons stand below, and which tests passed alone only, after a failure beside others"
)


def page(
    results: Mapping[str, str],
    rows: Iterable[Row] = ROWS,
    bugs: Iterable[Bug] = BUGS,
    *,
    run: Mapping[str, Any] | None = None,
) -> str:
    """The generated part of docs/faults.md; `run` is what is known of the run that the results are of."""
    rows, bugs = list(rows), list(bugs)
    head = ["#", "fault", "point", *(TITLES[target] for target in TARGETS)]
    cells = [
        [f"[{row.number}](#{anchor(row)})", row.fault, row.point]
        + [mark(row, target, results) for target in TARGETS]
        for row in rows
    ]
    return "\n\n".join(
        [
            "## The matrix",
            table(head, cells),
            LEGEND,
            *([recorded(run)] if run else ()),
            "## Seeded bugs",
            "Each is put into the pipeline under test, and must be caught by the oracle that is named.",
            table(
                ["bug", "what it does", "caught by", "result"],
                [[f"`{bug.name}`", bug.what, bug.oracle, told(of(bug.function, results))] for bug in bugs],
            ),
            "## Each row",
            *(detail(row, results) for row in rows),
        ]
    )


def recorded(run: Mapping[str, Any]) -> str:
    """Of which code the results are."""
    many = "All of it is of one run" if run["whole"] else "It is of several runs, the last"
    length = f": {run['tests']} tests in {run['seconds'] / 60:.0f} minutes" if "seconds" in run else ""
    return f"{many}, of commit {run['commit'] or 'unknown'}{length if run['whole'] else ''}."


def of(function: str, results: Mapping[str, str]) -> list[str]:
    """What became of every run of a test."""
    return [outcome for id_, outcome in results.items() if function_of(id_) == function]


def outcomes(row: Row, target: str, results: Mapping[str, str]) -> list[str]:
    """What became of every run that proves a row for a target; `not run` for a test without any."""
    found: list[str] = []
    for proof in row.proofs_of(target):
        runs = row.runs(proof, results, target)
        found += [results[id_] for id_ in runs] or [NOT_RUN]
    return found


def mark(row: Row, target: str, results: Mapping[str, str]) -> str:
    """The cell of a row and a target."""
    if target in row.apart:
        return APART
    if target in row.open:
        return OPEN
    found = outcomes(row, target, results)
    if "failed" in found:
        return NO
    return YES if found and all(map(has_passed, found)) else told(found)


def told(found: Iterable[str]) -> str:
    """Outcomes in words: 3 passed, 1 failed."""
    counted = Counter(outcome.partition(":")[0] for outcome in found)
    if set(counted) <= {NOT_RUN}:
        return NOT_RUN
    order = ("passed", ALONE, "failed", "skipped", NOT_RUN)
    return ", ".join(f"{counted[word]} {word}" for word in order if counted[word])


def detail(row: Row, results: Mapping[str, str]) -> str:
    """A row, its tests, and its reasons."""
    lines = []
    for proof in row.proofs:
        targets = [target for target in TARGETS if target in proof.targets]
        runs = {id_ for target in targets for id_ in row.runs(proof, results, target)}
        said = told([results[id_] for id_ in runs])
        path = proof.function.removeprefix("tests/").removeprefix("faults/")
        lines.append(f"- {', '.join(TITLES[target] for target in targets)}: {said}, `{path}`")
    for word, reasons in (("does not concern it", row.apart), ("not proved", row.open)):
        grouped: dict[str, list[str]] = {}
        for target in TARGETS:
            if target in reasons:
                grouped.setdefault(reasons[target], []).append(TITLES[target])
        lines += [f"- {', '.join(names)}: {word}: {reason}" for reason, names in grouped.items()]
    said = f"Point {row.point}. {row.outcome[0].upper()}{row.outcome[1:]}."
    return "\n\n".join([f"### {title(row)}", said, "\n".join(lines)])


def title(row: Row) -> str:
    return f"{row.number}. {row.fault}"


def anchor(row: Row) -> str:
    """Where the heading of a row leads, as GitHub makes it."""
    text = title(row).lower()
    return "".join(c for c in text if c.isalnum() or c in " -_").replace(" ", "-")


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)

"""`make bench`: run the benchmarks one after the other, print tables, write results, page and plots.

`python -m bench [NAME…] [OPTION…]` measures; what follows the first option belongs to the benchmarks, as in
`postgres --rows 50000` or, for all of them, `--quick`. What is measured without options goes to the page.
`page` makes the page of the last results, however they were measured; `baseline` saves their ratios, if they
were measured without options and no saved one is missing (`--force` saves them all the same); `check`
compares with the saved ones, and measures what has no results of the present code yet.
"""

from __future__ import annotations

import importlib
import signal
import sys
import time
import traceback
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench import baseline, page, results
from bench.measure import Outcome

NAMES = ("sqlite", "postgres", "latency", "snapshot", "documents", "opensearch", "pgsync", "scaling")
TOLD_TO_END = 128 + signal.SIGTERM


def main(words: list[str]) -> int:
    """Run the named benchmarks, or all; the exit code is 1 if a bar was missed."""
    console = Console()
    verbs = {"page": _page, "baseline": _baseline, "check": _check}
    if words and words[0] in verbs:
        return verbs[words[0]](console, words[1:])
    cut = next((at for at, word in enumerate(words) if word.startswith("-")), len(words))
    names, arguments = words[:cut] or list(NAMES), words[cut:]
    if not _known(console, names):
        return 2
    return 0 if measure(console, names, arguments) else 1


def measure(console: Console, names: Sequence[str], arguments: Sequence[str]) -> bool:
    """Run benchmarks, even after one that fails; whether everything was measured and every bar held."""
    held, begun = True, time.monotonic()
    for name in names:
        started, origin = time.monotonic(), results.origin()
        console.rule(name, align="left")
        outcome = _outcome(console, name, list(arguments))
        seconds = time.monotonic() - started
        show(console, name, outcome, seconds)
        made = results.save(name, arguments, outcome, seconds, origin)
        held = held and outcome.ok
        if not arguments:
            tell_written(console, page.write([made]))
    if len(names) > 1:
        console.print(f"{len(names)} benchmarks in {(time.monotonic() - begun) / 60:.0f} minutes")
    return held


def _outcome(console: Console, name: str, arguments: list[str]) -> Outcome:
    try:
        outcome: Outcome = importlib.import_module(f"bench.{name}").run(console, arguments)
    except (Exception, SystemExit) as error:
        # Who gives up says why; who was told to end, or asked for help, ends all of it.
        if isinstance(error, SystemExit) and not isinstance(error.code, str):
            raise
        traceback.print_exc()
        return Outcome([], problems=[f"{name}: {type(error).__name__}: {error}"])
    return outcome


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


def tell_written(console: Console, files: Sequence[str]) -> None:
    """Say which files are new."""
    console.print(f"written: {', '.join(files)}" if files else "the page is as it was", highlight=False)


def _page(console: Console, names: list[str]) -> int:
    if not _known(console, names):
        return 2
    found = [result for name in names or NAMES if (result := results.load(name)) is not None]
    tell_written(console, page.write(found))
    return 0


def _baseline(console: Console, names: list[str]) -> int:
    """Save the ratios of the last results."""
    force, names = "--force" in names, [name for name in names if name != "--force"]
    if not _known(console, names):
        return 2
    found = [result for name in names or NAMES if (result := results.load(name)) is not None]
    before, whole = baseline.saved(), []
    for result in found:
        against = _against(before, result)
        if result["problems"] or (against and not force):
            told = "something could not be measured" if result["problems"] else against
            console.print(f"not saved, {result['benchmark']}: {told}", highlight=False)
        else:
            whole.append(result)
    baseline.save(whole)
    console.print(f"saved: {', '.join(result['benchmark'] for result in whole) or 'nothing'}")
    return 0 if len(whole) == len(found) else 1


def _against(before: baseline.Saved, result: results.Result) -> str:
    """What speaks against saving it: it is not the benchmark as everybody runs it."""
    if result["arguments"]:
        return f"it was measured with {' '.join(result['arguments'])}"
    gone = baseline.lost(before, result)
    return f"it lacks {', '.join(gone)}" if gone else ""


def _check(console: Console, words: list[str]) -> int:
    """Compare; what is worse is measured once more before it counts, for a machine has its moments."""
    once = "--once" in words
    before = baseline.saved()
    if not before:
        console.print("no baseline is saved: make bench, then python -m bench baseline")
        return 2
    for name, one in before.items():
        if not baseline.comparable(before, results.load(name)):
            measure(console, [name], one["arguments"])
    found = _compared(before, list(before))
    if (worse := _worse(found)) and not once:
        console.print(f"worse than the baseline, measured once more: {', '.join(worse)}")
        for name in worse:
            measure(console, [name], before[name]["arguments"])
        again = {(one.benchmark, one.what): one for one in _compared(before, worse)}
        found = [_better(one, again.get((one.benchmark, one.what))) for one in found]
    table = Table(title="against bench/baseline.json", title_justify="left")
    for column in ("benchmark", "ratio", "saved", "now", "better by", ""):
        table.add_column(column, justify="left" if column in ("benchmark", "ratio", "") else "right")
    for one in found:
        now, change = ("", "") if one.now is None else (f"{one.now:.2f}", f"{one.change:+.0%}")
        table.add_row(one.benchmark, one.what, f"{one.before:.2f}", now, change, "worse" if one.worse else "")
    console.print(table)
    return 1 if any(one.worse for one in found) else 0


def _compared(before: baseline.Saved, names: Sequence[str]) -> list[baseline.Compared]:
    return baseline.compare(before, [result for name in names if (result := results.load(name)) is not None])


def _worse(found: Sequence[baseline.Compared]) -> list[str]:
    return list(dict.fromkeys(one.benchmark for one in found if one.worse))


def _better(first: baseline.Compared, second: baseline.Compared | None) -> baseline.Compared:
    return second if second is not None and first.worse else first


def _known(console: Console, names: Sequence[str]) -> bool:
    if unknown := [name for name in names if name not in NAMES]:
        console.print(f"unknown benchmark {', '.join(unknown)}; known: {', '.join(NAMES)}")
    return not unknown


if __name__ == "__main__":
    # What was started is stopped also when this process is told to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TOLD_TO_END))
    sys.exit(main([name for name in sys.argv[1:] if name]))

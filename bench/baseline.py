"""The saved ratios, and whether those of the last run are worse.

Ratios are figures of one run against others of the same run, so they travel from one machine to another much
better than rates do. They still move, some of them by a third from one whole run to the next; so the last
ones that were saved are kept, and the one in the middle is compared with.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.results import Result, code

BASELINE = Path(__file__).parent / "baseline.json"
# By how much a ratio may be worse than the saved one.
ALLOWED = 0.2
# Of how many saved runs the one in the middle counts.
KEPT = 3
Saved = dict[str, Any]


@dataclass(frozen=True)
class Compared:
    """One ratio beside the saved one; `now` is None where it was not measured."""

    benchmark: str
    what: str
    before: float
    now: float | None
    lower: bool

    @property
    def change(self) -> float | None:
        """By which share it is better (above zero) or worse."""
        if self.now is None:
            return None
        share = self.now / self.before - 1
        return -share if self.lower else share

    @property
    def worse(self) -> bool:
        """Whether it is worse by more than is allowed, or gone."""
        return self.change is None or self.change < -ALLOWED - 1e-9


def saved() -> Saved:
    """The baseline; empty where none was saved."""
    found: Saved = json.loads(BASELINE.read_text(encoding="utf-8")) if BASELINE.exists() else {}
    return found


def save(results: Iterable[Result]) -> Saved:
    """Add these results to the baseline of their benchmarks."""
    body = saved()
    for result in results:
        made, before = ratios(result), body.get(result["benchmark"], {})
        if before.get("arguments") == made["arguments"]:
            for what, one in made["ratios"].items():
                former = before["ratios"].get(what, {}).get("values", [])
                one["values"] = [*former, *one["values"]][-KEPT:]
        body[result["benchmark"]] = made
    BASELINE.write_text(
        json.dumps(dict(sorted(body.items())), indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    return body


def ratios(result: Result) -> Saved:
    """Of a benchmark's results the ratios alone, and how they were measured."""
    return {
        "arguments": result["arguments"],
        "ratios": {
            figure["what"]: {"values": [round(figure["value"], 3)], "better": figure["better"]}
            for figure in result["figures"]
            # Zero is told of what could not be seen: nothing to compare with.
            if figure["compared"] and figure["value"] > 0
        },
    }


def compare(before: Mapping[str, Saved], results: Iterable[Result]) -> list[Compared]:
    """Every saved ratio of the benchmarks that have results."""
    found: list[Compared] = []
    for result in results:
        name = result["benchmark"]
        now = ratios(result)["ratios"]
        for what, one in before.get(name, {}).get("ratios", {}).items():
            mine = statistics.median(now[what]["values"]) if what in now else None
            middle = statistics.median(one["values"])
            found.append(Compared(name, what, middle, mine, one["better"] == "lower"))
    return found


def comparable(before: Mapping[str, Saved], result: Result | None) -> bool:
    """Whether results are there, of the code that is here, and were measured as those of the baseline."""
    if result is None or result.get("code") != code():
        return False
    return bool(before[result["benchmark"]]["arguments"] == result["arguments"])


def lost(before: Mapping[str, Saved], result: Result) -> list[str]:
    """Saved ratios that these results do not have."""
    held = before.get(result["benchmark"], {}).get("ratios", {})
    return [what for what in held if what not in ratios(result)["ratios"]]

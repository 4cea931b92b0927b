"""Figures, and what makes them."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psutil


@dataclass(frozen=True)
class Figure:
    """One measured number, with its bar where it has one.

    `lower` is better for some. A ratio is `compared` with the saved one by `make bench-check`, unless it says
    nothing about Tailrace, or about how far rounds differ only.
    """

    what: str
    value: float
    unit: str
    bar: str | None = None
    ok: bool | None = None
    lower: bool = False
    compared: bool = True

    @property
    def shown(self) -> str:
        """The number as a person reads it."""
        if self.unit == "/s":
            return f"{self.value:,.0f} /s"
        return f"{self.value:,.2f} {self.unit}".strip()

    def to_json(self) -> dict[str, Any]:
        """The number for machines."""
        return {
            "what": self.what,
            "value": self.value,
            "unit": self.unit,
            "bar": self.bar,
            "ok": self.ok,
            "better": "lower" if self.lower else "higher",
            "compared": self.compared and self.unit == "×" and bool(self.what),
        }


@dataclass(frozen=True)
class Outcome:
    """What a benchmark found: figures, what they were made of, and what went wrong on the way.

    `versions` are those of what only this benchmark has.
    """

    figures: list[Figure]
    details: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    bars: bool = True
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether everything was measured and, where bars count, every bar held."""
        missed = any(figure.ok is False for figure in self.figures)
        return not self.problems and not (self.bars and missed)


def at_least(what: str, value: float, bar: float) -> Figure:
    """A ratio that must not be lower."""
    return Figure(what, value, "×", f"≥ {bar}", value >= bar)


def at_most(what: str, value: float, bar: float, unit: str = "×") -> Figure:
    """A figure that must not be higher. Zero holds no bar: it is what a process has that was not found."""
    return Figure(what, value, unit, f"≤ {bar}", 0 < value <= bar, lower=True)


def p50(values: list[float]) -> float:
    """The median."""
    return statistics.median(values)


def p90(values: list[float]) -> float:
    """The 90th percentile."""
    return statistics.quantiles(values, n=10)[-1]


def p99(values: list[float]) -> float:
    """The 99th percentile; of fewer than a hundred values the highest."""
    return statistics.quantiles(values, n=100)[-1] if len(values) >= 100 else max(values)


@contextmanager
def stopwatch() -> Iterator[list[float]]:
    """A list that holds the seconds once the block has ended."""
    seconds: list[float] = []
    begun = time.perf_counter()
    yield seconds
    seconds.append(time.perf_counter() - begun)


class PeakMemory:
    """The peak resident memory of child processes whose command line has a word in it, sampled."""

    def __init__(self, word: str, every: float = 0.05) -> None:
        self._word = word
        self._every = every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.peak = 0

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(self._every):
            for process in psutil.Process().children(recursive=True):
                try:
                    if any(self._word in part for part in process.cmdline()):
                        self.peak = max(self.peak, process.memory_info().rss)
                except psutil.Error:
                    continue

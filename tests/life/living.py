"""A life from its seed or its trace to its end, with everything that is kept of it.

Beside the trace: `resources.csv` and `resources.svg`, what was used all the time, `life.log`, what was done
when, and `facts.json`, what was done how often and what never.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.oracles import Violation
from tests.life import plot, resources, shrink, trace
from tests.life.actions import Fate, possible
from tests.life.model import Variant, done_of
from tests.life.resources import MEGA, Meter, Record, Verdict, size_of
from tests.life.trace import Action, Recorder, Trace
from tests.life.world import World

ROOT = Path(__file__).resolve().parents[2]
ARTIFACTS = ROOT / "artifacts" / "life"
# Shorter lives are warming up for the most part.
JUDGED_SECONDS = 900.0
# A life that is judged has chapters of at most so long, each of which begins with a part of storms; then
# nobody ends the run any more, so that what it leaks has time to show.
CHAPTER_SECONDS = 3600.0
STORMY = 0.2


class Failed(AssertionError):
    """A life went wrong; where its trace is."""

    def __init__(self, oracle: str, message: str, path: Path) -> None:
        super().__init__(f"{oracle}: {message}\n\nreplay: python -m tests.life replay {path}")
        self.oracle, self.path = oracle, path


@dataclass
class Outcome:
    """What a life was."""

    facts: dict[str, Any] = field(default_factory=dict)
    never: list[str] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    # Measures that were to be judged, and had too few idle points.
    unjudged: list[str] = field(default_factory=list)
    # How long it was; a life may end before its time, by the number of its actions.
    seconds: float = 0.0

    def __str__(self) -> str:
        never = f"never done: {', '.join(self.never) or 'nothing that can be'}"
        few = [f"{name}: not judged, for it has too few idle points" for name in self.unjudged]
        return "\n".join([json.dumps(self.facts), never, *map(str, self.verdicts), *few])


def live(variant: Variant, seed: int | str, seconds: float, place: Path, *, most: int = 10**9) -> Outcome:
    """Live from a seed until the time is over, at the next check; at most so many actions."""
    fate, weather = Fate(seed, variant), Weather(seconds)

    def drawn() -> Iterable[Action]:
        for number, one in enumerate(fate.actions()):
            yield one
            if one.do == "check":
                fate.steady = weather.look()
                if weather.over or number >= most:
                    return

    header = {**variant.header(), "seed": seed}
    return follow(variant, drawn(), place, header, weather=weather)


class Weather:
    """How far a life is: its chapter, and whether nobody ends the run now. It changes when looked at."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._began, self._seconds = clock, clock(), seconds
        self._length = seconds / max(1, math.ceil(seconds / CHAPTER_SECONDS))
        self.judged = seconds >= JUDGED_SECONDS
        self.chapter, self.steady, self.over = 0, False, False

    def look(self) -> bool:
        past = self._clock() - self._began
        self.over = past >= self._seconds
        if self.judged and not self.over:
            self.chapter = int(past / self._length)
            self.steady = past % self._length >= STORMY * self._length
        return self.steady


def replay(told: Trace, place: Path, *, engine: str | None = None) -> Outcome:
    """Live a trace again. What makes no sense in it is passed over."""
    variant = Variant.of({**told.header, **({"engine": engine} if engine else {})})
    return follow(variant, told.actions, place, {**told.header, **variant.header()}, strict=False)


def follow(
    variant: Variant,
    actions: Iterable[Action],
    place: Path,
    header: Mapping[str, Any],
    *,
    strict: bool = True,
    weather: Weather | None = None,
) -> Outcome:
    """Live actions, and keep what happened in `place`; Failed where something was wrong."""
    place.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="tailrace-life-"))
    recorder = Recorder(place / "trace.jsonl", header)
    record = Record(place / "resources.csv")
    outcome = Outcome()
    began = time.monotonic()
    try:
        with (place / "life.log").open("w") as log:

            def said(line: str) -> None:
                log.write(f"{time.monotonic() - began:8.1f} {line}\n")
                log.flush()

            try:
                world = World(directory, variant, strict=strict, said=said)
                meter = _meter(world, record, weather)
                world.idle = lambda: meter.sample(idle=True)
                try:
                    with world, meter:
                        for one in actions:
                            recorder.note(one)
                            world.do(one)
                finally:
                    outcome.facts = world.facts()
                    outcome.never = sorted(possible(variant) - set(world.counts))
                    kept = {**outcome.facts, "never": outcome.never}
                    (place / "facts.json").write_text(json.dumps(kept, indent=1) + "\n")
            except Exception as error:
                oracle = error.oracle if isinstance(error, Violation) else type(error).__name__
                recorder.failed(oracle, str(error))
                said(f"failed: {oracle}: {error}")
                _keep_logs(directory, place)
                raise Failed(oracle, str(error), recorder.path) from error
        outcome.seconds = time.monotonic() - began
        if weather is not None and weather.judged:
            outcome.verdicts = resources.judged(record.samples, variant.source)
            outcome.unjudged = resources.unjudged(record.samples, outcome.verdicts)
            if wrong := [str(verdict) for verdict in outcome.verdicts if not verdict.flat]:
                recorder.failed("O6", "; ".join(wrong))
                _keep_logs(directory, place)
                raise Failed("O6", "\n".join(wrong), recorder.path)
        return outcome
    finally:
        recorder.close()
        record.close()
        plot.write(place / "resources.svg", record.samples, f"{variant.name}, seed {header.get('seed')}")
        shutil.rmtree(directory, ignore_errors=True)


def _meter(world: World, record: Record, weather: Weather | None) -> Meter:
    home = world.home

    def documents() -> float:
        return sum(size_of(path) for path in home.directory.glob("docs-*")) / MEGA

    places: dict[str, Callable[[], float | None]] = {
        "state_mb": lambda: size_of(home.state, without=["spark.log"]) / MEGA,
        "spark_log_mb": lambda: size_of(home.state / "spark.log") / MEGA,
        "lake_mb": lambda: size_of(home.lake) / MEGA,
        "documents_mb": documents,
        "retained": world.ground.retained,
        "chapter": lambda: float(weather.chapter) if weather else 0.0,
        "steady": lambda: float(weather.steady) if weather else 0.0,
        "queries": lambda: float(world.queries),
    }
    return Meter(record, lambda: world.running, places)


def _keep_logs(directory: Path, place: Path) -> None:
    """What the last runs wrote, and the configuration they had."""
    home = directory / "home"
    kept = [*sorted(home.glob("run-*.log"))[-3:], *home.glob("*.toml"), *home.glob("*.yml")]
    for path in [*kept, home / ".tailrace" / "spark.log"]:
        if path.exists():
            (place / path.name).write_bytes(path.read_bytes()[-500_000:])


def shrunk(path: Path, place: Path, *, budget: float, engine: str | None = None) -> shrink.Shrunk[Action]:
    """Fewer actions that fail by the same oracle; if any did, `shrunk.jsonl` beside the trace has them."""
    told = trace.read(path)
    wanted = (told.failure or {}).get("failed")

    def fails(actions: list[Action]) -> bool:
        with tempfile.TemporaryDirectory(prefix="tailrace-shrink-") as kept:
            try:
                replay(Trace(told.header, actions), Path(kept), engine=engine)
            except Failed as error:
                return wanted is None or error.oracle == wanted
        return False

    def said(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    def sense(actions: list[Action]) -> list[bool]:
        return done_of(variant, actions)

    variant = Variant.of(told.header)
    found = shrink.shrink(told.actions, fails, budget=budget, sense=sense, said=said)
    if found.again:
        place.mkdir(parents=True, exist_ok=True)
        trace.write(place / "shrunk.jsonl", told.header, found.actions)
    return found

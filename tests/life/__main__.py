"""Lives by hand: `python -m tests.life run`, `replay TRACE`, `shrink TRACE`. docs/soak.md tells of them."""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
from dataclasses import replace
from pathlib import Path

from tests.life import trace
from tests.life.actions import STORM
from tests.life.grounds import Unavailable
from tests.life.living import ARTIFACTS, Failed, Outcome, live, replay, shrunk
from tests.life.model import Variant

VARIANTS = {
    "sqlite": Variant("sqlite", "sqlite"),
    "postgres": Variant("postgres", "sqlite"),
    "opensearch": Variant("postgres", "opensearch"),
}
# Seconds of a life after which something must have been killed, and every measure judged.
ENOUGH_TO_KILL, ENOUGH_TO_JUDGE = 300, 1200


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run(arguments: argparse.Namespace) -> int:
    """One life after the other, each with its part of the time and, where there are several, its seed."""
    names, seeds = arguments.variants.split(","), arguments.seed.split(",")
    seconds, failed, lived = arguments.seconds / len(names), 0, 0
    never: set[str] | None = None
    for number, name in enumerate(names):
        variant = replace(VARIANTS[name], engine=arguments.engine)
        seed = seeds[number % len(seeds)]
        place = arguments.place / f"{name}-{seed}"
        say(f"{name}: TAILRACE_SEED={seed}, {seconds:.0f} s, kept in {place}")
        try:
            outcome = live(variant, seed, seconds, place, most=arguments.actions)
            say(f"{name}: no difference\n{outcome}")
            lived += 1
            if little := proves_little(outcome):
                failed += 1
                say(f"{name}: FAILED\n{little}")
            missed = {*STORM, *outcome.never} - set(outcome.facts)
            never = missed if never is None else never & missed
        except Unavailable as error:
            say(f"{name}: left out, for want of {error}")
        except Failed as error:
            failed += 1
            say(f"{name}: FAILED\n{error}")
            if arguments.shrink > 0 and error.oracle != "O6":
                again(error.path, place, arguments.shrink)
    if never is not None and len(names) > 1:
        say(f"never done in any of them: {', '.join(sorted(never)) or 'nothing'}")
    if not lived and not failed:
        say("no life was lived: nothing is proved")
    return 1 if failed or not lived else 0


def proves_little(outcome: Outcome) -> str:
    """What a life of its length must have had, and this one had not."""
    if outcome.seconds >= ENOUGH_TO_KILL and not outcome.facts.get("killed_at_work", 0):
        return "nothing was killed at work"
    if outcome.seconds >= ENOUGH_TO_JUDGE and outcome.unjudged:
        return f"not judged: {', '.join(outcome.unjudged)}"
    return ""


def again(path: Path, place: Path, budget: float, engine: str | None = None) -> None:
    found = shrunk(path, place, budget=budget, engine=engine)
    if not found.again:
        say(f"it did not fail again in {found.tries} tries: nothing is known of what it needs")
        return
    word = "none can be left out" if found.minimal else "the time was over"
    say(f"{len(found.actions)} actions are left after {found.tries} tries ({word}): {place / 'shrunk.jsonl'}")


def main() -> int:
    """What the command line says."""
    # Whoever ends a life wants its servers to end too, also where it runs without a terminal.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    # What nohup ignores, its children ignore too, and a pipeline is told by it of a new configuration.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    parser = argparse.ArgumentParser(prog="python -m tests.life", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("run", help="live from a seed")
    one.add_argument("--seconds", type=float, default=float(os.environ.get("TAILRACE_LIFE", "3600")))
    one.add_argument("--hours", type=float, help="the same, in hours")
    one.add_argument("--variants", default=",".join(VARIANTS), help="some of them, with commas between")
    drawn = str(random.SystemRandom().randrange(10**9))
    seed = os.environ.get("TAILRACE_SEED", drawn)
    one.add_argument("--seed", default=seed, help="several with commas between, one for each variant")
    one.add_argument("--engine", choices=["spark", "loop"], default="spark", help="loop: Spark's stand-in")
    one.add_argument("--actions", type=int, default=10**9, help="at most so many")
    one.add_argument("--place", type=Path, default=ARTIFACTS, help="where traces and records are kept")
    one.add_argument("--shrink", type=float, default=0.0, help="seconds to shrink a failure in")
    for verb, text in (("replay", "live a trace again"), ("shrink", "find fewer actions that fail")):
        other = verbs.add_parser(verb, help=text)
        other.add_argument("trace", type=Path)
        other.add_argument("--engine", choices=["spark", "loop"], help="another engine than the trace's")
        other.add_argument("--place", type=Path, help="default: beside the trace")
        if verb == "shrink":
            other.add_argument("--budget", type=float, default=1800.0, help="seconds")
    arguments = parser.parse_args()
    if arguments.verb == "run":
        if arguments.hours is not None:
            arguments.seconds = 3600 * arguments.hours
        return run(arguments)
    if not arguments.trace.is_file():
        parser.error(f"there is no trace {arguments.trace}: `run` writes one, and says where")
    place = arguments.place or arguments.trace.parent
    if arguments.verb == "shrink":
        again(arguments.trace, place, arguments.budget, arguments.engine)
        return 0
    try:
        say(str(replay(trace.read(arguments.trace), place / "replay", engine=arguments.engine)))
    except Failed as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

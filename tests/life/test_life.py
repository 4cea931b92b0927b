"""Whatever happens, in any order, at every idle point everything is equal, and nothing grows.

TAILRACE_SEED repeats a life, but for the moments of its faults. TAILRACE_LIFE is how many seconds all long
ones together get, an hour by default; their traces are kept in artifacts/life, and shrunk where they failed,
for TAILRACE_SHRINK seconds each.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

from tests.life import trace
from tests.life.__main__ import VARIANTS, again, proves_little
from tests.life.grounds import Unavailable
from tests.life.living import ARTIFACTS, Failed, live, replay
from tests.life.model import Variant
from tests.life.trace import Trace

LIFE = float(os.environ.get("TAILRACE_LIFE", "3600"))
SHRINK = float(os.environ.get("TAILRACE_SHRINK", "900"))
SEED = os.environ.get("TAILRACE_SEED", str(random.SystemRandom().randrange(10**9)))
# Of the short life, so that it is the same one everywhere.
SHORT = 73


@pytest.mark.timeout(600)
def test_a_short_life_ends_equal_and_any_part_of_its_trace_can_be_lived_again(tmp_path: Path) -> None:
    outcome = live(Variant(engine="loop"), SHORT, 600, tmp_path, most=8)
    assert outcome.facts["check"] >= 2
    told = trace.read(tmp_path / "trace.jsonl")
    assert outcome.facts["changes"] > 0
    assert told.failure is None
    # Without the start, and with a kill that finds nobody.
    (kill,) = (one for one in told.actions if one.do == "kill")
    part = Trace(told.header, [told.actions[0], kill, told.actions[-1]])
    assert [one.do for one in part.actions] == ["create", "kill", "check"]
    assert replay(part, tmp_path / "again").facts["check"] == 1


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(LIFE + 2 * SHRINK + 1800)
@pytest.mark.parametrize("name", VARIANTS)
def test_whatever_happens_everything_is_equal_at_every_idle_point_and_nothing_grows(name: str) -> None:
    sys.stdout.write(f"TAILRACE_SEED={SEED}\n")
    place = ARTIFACTS / f"{name}-{SEED}"
    try:
        outcome = live(VARIANTS[name], SEED, LIFE / len(VARIANTS), place)
    except Unavailable as error:
        pytest.skip(f"unavailable: {error}")
    except Failed as error:
        if SHRINK > 0 and error.oracle != "O6":
            again(error.path, place, SHRINK)
        raise
    sys.stdout.write(f"{outcome}\n")
    assert outcome.facts["check"] > 1
    assert proves_little(outcome) == ""

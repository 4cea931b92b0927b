"""Row 12: two processes on one state. The second is refused by name; a frozen one is succeeded and fenced."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.faults.marks import databases
from tests.faults.oracles import changes_of
from tests.faults.rig import Rig

Make = Callable[..., Rig]


def owners(rig: Rig) -> list[str]:
    return sorted(path.name for path in (rig.state / "changelog" / "owner").glob("*.json"))


def test_a_second_process_on_the_same_state_is_refused_by_name_while_the_first_lives(rig: Make) -> None:
    r = rig(rows=100, lease=2.0)
    r.write()
    first = r.start()
    r.arrived(r.sentinel())
    second = r.start()
    outcome = second.ended(timeout=60)
    assert outcome["error"] == "StateOwned"
    assert f"process {first.process.pid} " in outcome["message"]
    assert f"stop process {first.process.pid} " in outcome["message"], "the remedy names it too"
    assert first.process.poll() is None
    r.settle()


def test_a_new_query_on_a_state_in_use_is_refused_and_leaves_the_cursor_alone(rig: Make) -> None:
    r = rig(rows=100, lease=2.0)
    first = r.start()
    r.arrived(r.sentinel())
    r.points.arm("apply.before", "block", grown=True)
    r.insert(2_000_000, 20)
    r.struck("apply.before")
    cursor = r.cursor()
    outcome = r.start(checkpoint=str(r.directory / "another")).ended(timeout=60)
    assert outcome["error"] == "StateOwned"
    assert r.cursor() == cursor, "the log is still kept for the query that runs"
    r.points.go("apply.before")
    assert first.process.poll() is None
    r.settle()


@databases(long="postgres")
@pytest.mark.parametrize(
    ("point", "options"),
    [("apply.before", {}), ("latest", {}), ("latest", {"failOnDataLoss": "false"})],
)
def test_a_frozen_process_is_succeeded_after_its_lease_and_fenced_when_it_thaws(
    rig: Make, point: str, options: dict[str, str]
) -> None:
    r = rig(rows=100, lease=1.0, **options)
    r.impatient()
    first = r.start()
    r.arrived(r.sentinel())
    r.caught_up()
    epoch = owners(r)
    r.points.arm(point, "block", least={"end": (r.cursor() or 0) + 20})
    r.insert(2_000_000, 20)
    r.struck(point)
    r.freeze(first)
    second = r.start()
    r.write(limit=200)
    r.finish()
    r.settle()
    assert owners(r) != epoch, "the state was taken over"
    held = (r.delta_version(), r.commits(), len(changes_of(r.feed)), r.cursor())

    r.points.go(point)
    first.signal(signal.SIGCONT)
    outcome = first.ended(timeout=60)
    assert outcome["error"] is not None, "it does not go on beside its successor"
    if point == "latest":
        assert outcome["error"] == "Fenced", outcome["message"]
        assert f"process {second.process.pid} " in outcome["message"]
    assert (r.delta_version(), r.commits(), len(changes_of(r.feed)), r.cursor()) == held
    assert second.process.poll() is None
    r.settle()


@databases(long="postgres")
def test_a_killed_process_is_succeeded_at_once(rig: Make) -> None:
    r = rig(rows=100, lease=3600.0)
    r.write()
    r.points.arm("apply.after", "kill", grown=True)
    r.start().died()
    r.start()
    r.settle()

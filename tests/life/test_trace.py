"""A trace says all that a life was, and can be lived again in part."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest

from tailrace.model.errors import LogLost, StateOwned
from tests.life import trace
from tests.life.actions import Fate, possible
from tests.life.model import Model, Variant, done_of
from tests.life.trace import Action, Recorder, action

POSTGRES = Variant("postgres", "opensearch")


def drawn(seed: int, variant: Variant, count: int = 400) -> list[Action]:
    return list(itertools.islice(Fate(seed, variant).actions(), count))


@pytest.mark.parametrize("variant", [Variant(), Variant("postgres"), POSTGRES], ids=lambda one: one.name)
def test_a_seed_gives_the_same_life_again_and_another_seed_another_one(variant: Variant) -> None:
    assert drawn(7, variant) == drawn(7, variant)
    assert drawn(7, variant) != drawn(8, variant)


def test_every_action_is_drawn_sooner_or_later() -> None:
    known = {name.removeprefix("_do_") for name in dir(_world()) if name.startswith("_do_")}
    assert {one.do for one in drawn(1, POSTGRES, 4000)} == known


def _world() -> type:
    from tests.life.world import World

    return World


def test_what_a_variant_has_not_is_never_done_to_it() -> None:
    assert not {one.do for one in drawn(1, Variant(), 4000)} & {"cut", "restart_server", "crash_store"}


@pytest.mark.parametrize("seed", range(5))
def test_every_drawn_action_makes_sense_where_it_stands(seed: int) -> None:
    model = Model(POSTGRES)
    for one in drawn(seed, POSTGRES):
        assert model.allows(one), one
        model.take(one)


@pytest.mark.parametrize("variant", [Variant(), POSTGRES], ids=lambda one: one.name)
def test_in_the_steady_part_nobody_ends_the_run_and_everything_else_happens(variant: Variant) -> None:
    fate = Fate(1, variant)
    actions = fate.actions()
    for one in actions:
        if one.do == "check":
            break
    fate.steady = True
    later = list(itertools.islice(actions, 3000))
    ends = {"kill", "term", "start", *(("add", "drop") if variant.source == "sqlite" else ())}
    assert {one.do for one in later} == possible(variant) - ends - {"create"}
    assert {one["how"] for one in later if one.do in ("schema", "rest", "swap")} == {"signal"}


def test_a_life_of_minutes_has_some_of_everything() -> None:
    """Of twenty seeds, 150 actions each: what is rare is drawn sooner where it was not done yet."""
    missed = Counter(
        name
        for seed in range(20)
        for name in possible(POSTGRES) - {one.do for one in drawn(seed, POSTGRES, 150)}
    )
    assert missed.total() < 20, missed


def test_what_lost_its_precondition_is_passed_over() -> None:
    model = Model(Variant())
    assert not model.allows(action("start"))
    model.take(action("create", tables=[], rows=[], indexes={"i0": {}}))
    for one in (
        action("kill", after=0),
        action("resume"),
        action("drop", table="wide", column="x1"),
        action("cut", after=0),
        action("reindex", index="i9"),
    ):
        assert not model.allows(one)
    model.take(action("add", table="wide", column="x1"))
    assert model.allows(action("drop", table="wide", column="x1"))


def test_it_is_known_without_living_which_actions_of_a_part_are_done() -> None:
    created = action("create", tables=[], rows=[], indexes={"i0": {}})
    part = [created, action("wait", seconds=1), action("check"), action("wait", seconds=1), action("fell")]
    assert done_of(Variant(), part) == [True, False, True, True, False]
    assert done_of(Variant(), part[1:]) == [False] * 4


def test_a_trace_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "trace.jsonl"
    actions = drawn(3, POSTGRES, 60)
    trace.write(path, {**POSTGRES.header(), "seed": 3}, actions)
    told = trace.read(path)
    assert told.actions == actions
    assert told.failure is None
    assert Variant.of(told.header) == POSTGRES


def test_a_trace_has_each_action_before_it_is_done_and_what_went_wrong(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    recorder = Recorder(path, Variant().header())
    recorder.note(action("start"))
    assert [one.do for one in trace.read(path).actions] == ["start"]
    recorder.failed("O1", "a row is missing")
    recorder.close()
    assert trace.read(path).failure == {"failed": "O1", "message": "a row is missing"}


def test_a_torn_last_line_is_left_out_and_any_other_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    trace.write(path, Variant().header(), [action("start"), action("check")])
    text = path.read_text()
    path.write_text(text[:-5])
    assert [one.do for one in trace.read(path).actions] == ["start"]
    path.write_text(text.replace('{"do": "start"}', '{"do": "sta'))
    with pytest.raises(ValueError, match=r"trace.jsonl:2"):
        trace.read(path)
    path.write_text('{"life": 99}\n')
    with pytest.raises(ValueError, match="no trace"):
        trace.read(path)


def test_a_message_is_done_as_it_is_told_with_and_without_a_configuration() -> None:
    from tests.life.world import told_to_read

    assert told_to_read("  remedy: tailrace snapshot --table 'people', then run again") == ["people"]
    told = "  remedy: tailrace snapshot -c /tmp/a/tailrace.toml --table public.people, then run again"
    assert told_to_read(f"{told}\n{told}") == ["public.people"]
    assert told_to_read("error: people changed") == []


def test_a_complaint_is_what_a_run_wrote_besides_its_events() -> None:
    from tests.life.world import complaint

    told = '{"event": "batch.written", "tables": {"people": 1}}\nerror: the log was lost\n'
    assert complaint(told) == "error: the log was lost"


def test_an_altered_table_excuses_what_is_said_of_it_and_neither_lost_log_nor_lost_state() -> None:
    from tests.life.world import excused

    drifted = Counter(people=2, orders=0)
    assert excused("table people was altered\n  remedy: tailrace setup", drifted) == ["people"]
    assert excused("table orders was altered\n  remedy: tailrace setup", drifted) == []
    assert excused("table notes was altered\n  remedy: tailrace setup", drifted) == []
    lost = LogLost("the log of people is gone", remedy=LogLost.ANEW)
    owned = StateOwned("people: the state directory is owned by process 7")
    assert excused(str(lost), drifted) == excused(str(owned), drifted) == []

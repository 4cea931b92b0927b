"""A failing life is shrunk to what it needs, within its time."""

from __future__ import annotations

import random

import pytest

from tests.life.shrink import shrink


class Predicate:
    """Fails where all of these are there, in order; counts how often it is asked, and takes its time."""

    def __init__(self, *needed: int) -> None:
        self.needed, self.asked, self.now = list(needed), 0, 0.0
        self.parts: list[tuple[int, ...]] = []

    def __call__(self, actions: list[int]) -> bool:
        self.asked += 1
        self.now += 1.0
        self.parts.append(tuple(actions))
        return [one for one in actions if one in self.needed] == self.needed

    def clock(self) -> float:
        return self.now


@pytest.mark.parametrize("needed", [[0], [99], [3, 4], [10, 50, 90], [0, 33, 34, 35, 99], []])
def test_what_is_left_is_exactly_what_the_failure_needs(needed: list[int]) -> None:
    fails = Predicate(*needed)
    found = shrink(range(100), fails, budget=1e9, clock=fails.clock)
    assert found.actions == needed
    assert found.minimal
    assert found.again
    assert found.tries == fails.asked == len(set(fails.parts)), "a part was tried twice"


def test_what_is_left_fails_and_needs_each_of_its_actions_whatever_the_failure() -> None:
    dice = random.Random(1)
    for _ in range(50):
        pairs = [{dice.randrange(40), dice.randrange(40)} for _ in range(3)]

        def fails(actions: list[int], pairs: list[set[int]] = pairs) -> bool:
            return any(pair <= set(actions) for pair in pairs)

        found = shrink(range(40), fails, budget=1e9)
        assert fails(found.actions)
        assert not any(fails([other for other in found.actions if other != one]) for one in found.actions)


def test_a_failure_that_needs_two_of_a_hundred_actions_is_found_in_a_few_dozen_tries() -> None:
    fails = Predicate(20, 70)
    assert shrink(range(100), fails, budget=1e9, clock=fails.clock).tries < 60


def test_what_makes_no_sense_without_another_action_goes_with_it_untried() -> None:
    """Odd actions are done only after the one before them."""
    fails = Predicate(20)

    def sense(part: list[int]) -> list[bool]:
        return [one % 2 == 0 or one - 1 in part for one in part]

    found = shrink(range(40), fails, budget=1e9, sense=sense, clock=fails.clock)
    assert found.actions == [20]
    assert all(all(sense(list(part))) for part in fails.parts)


def test_when_the_time_is_over_the_best_so_far_is_what_is_left() -> None:
    fails = Predicate(10, 50, 90)
    found = shrink(range(100), fails, budget=8, clock=fails.clock)
    assert not found.minimal
    assert fails.asked <= 8
    assert {10, 50, 90} <= set(found.actions) < set(range(100))


def test_a_failure_that_does_not_come_again_is_told_from_one_that_needs_everything() -> None:
    once = shrink(range(8), lambda _: False, budget=1e9)
    assert (once.actions, once.minimal, once.again) == (list(range(8)), False, False)
    all_of_it = shrink(range(8), lambda actions: len(actions) == 8, budget=1e9)
    assert (all_of_it.actions, all_of_it.minimal, all_of_it.again) == (list(range(8)), True, True)

import time

import pytest

from tests.support.waiting import wait_until


def test_the_value_that_ends_the_wait_is_returned() -> None:
    answers = iter([0, "", 7])
    assert wait_until(lambda: next(answers), interval=0) == 7


def test_a_condition_that_never_holds_fails_at_its_deadline_and_says_what_was_awaited() -> None:
    begun = time.monotonic()
    with pytest.raises(AssertionError, match=r"a second moon did not hold within 0\.05 s"):
        wait_until(lambda: False, timeout=0.05, interval=0.01, what="a second moon")
    assert time.monotonic() - begun < 5


def test_an_assertion_inside_the_condition_means_not_yet() -> None:
    counts = iter(range(5))

    def reached() -> bool:
        assert next(counts) == 3
        return True

    assert wait_until(reached, interval=0)


def test_the_last_assertion_is_shown_when_time_runs_out() -> None:
    def reached() -> bool:
        assert len("two") == 5
        return True

    with pytest.raises(AssertionError) as raised:
        wait_until(reached, timeout=0.02, interval=0.01)
    assert isinstance(raised.value.__cause__, AssertionError)

"""The error tree: one policy, pickles, and the way through text."""

from __future__ import annotations

import copy
import pickle

import pytest

from tailrace.model import errors
from tailrace.model.errors import (
    ConfigError,
    DataError,
    LogLost,
    NeedsOperator,
    TailraceError,
    Transient,
    policy,
)

CLASSES = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, TailraceError)]


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_survives_pickling_copying_and_text(cls: type[TailraceError]) -> None:
    error = cls("what happened: “ünïcode”\nsecond line", remedy="do this", place="file.toml:3")

    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301 - our own bytes
        assert type(again) is cls
        assert (again.message, again.remedy, again.place) == (error.message, error.remedy, error.place)

    text = f"Traceback …\n  at org.apache.spark.Foo\n{errors.to_line(error)}\n\tat java.lang.Thread.run"
    found = errors.find(text)
    assert type(found) is cls
    assert found is not None
    assert str(found) == str(error)


def test_the_message_the_place_and_the_remedy_are_shown() -> None:
    assert str(ConfigError("bad", remedy="fix", place="f:1")) == "f:1: bad\n  remedy: fix"
    assert str(ConfigError("bad")) == "bad"


def test_text_without_an_error_of_ours_has_none() -> None:
    assert errors.find("java.lang.NullPointerException") is None
    assert errors.find("tailrace-error:{broken") is None


def test_only_passing_faults_are_retried() -> None:
    assert [cls for cls in CLASSES if policy(cls("x")).retry] == [Transient]
    assert not policy(ValueError("x")).retry


@pytest.mark.parametrize(
    ("error", "code"), [(ConfigError("x"), 2), (LogLost("x"), 3), (Transient("x"), 4), (DataError("x"), 5)]
)
def test_each_branch_has_its_exit_code(error: TailraceError, code: int) -> None:
    assert policy(error).exit_code == code


def test_every_error_that_needs_an_operator_is_one_branch() -> None:
    branch = {cls for cls in CLASSES if issubclass(cls, NeedsOperator)}
    assert all(policy(cls("x")).action == "operator" for cls in branch)

"""On which databases a test of this folder runs: `@databases("postgres")`, `@databases(long="postgres")`.

Without the mark a test that takes `rig` runs on every one. Named in `long`, a database's run of the test is
left to `make test-long`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

KINDS = ("sqlite", "postgres")
databases = pytest.mark.databases


def kinds(marks: Iterable[pytest.Mark]) -> dict[str, bool]:
    """The databases of a test with these marks, and whether its run there is a long one."""
    marks = list(marks)
    every = any(mark.name == "long" for mark in marks)
    chosen = next((mark for mark in marks if mark.name == "databases"), None)
    if chosen is None:
        return dict.fromkeys(KINDS, every)
    slow = chosen.kwargs.get("long", ())
    slow = {slow} if isinstance(slow, str) else set(slow)
    named = chosen.args or KINDS
    assert slow <= set(named) <= set(KINDS)
    return {kind: every or kind in slow for kind in named}


def kinds_of(function: Callable[..., Any], module_marks: Iterable[pytest.MarkDecorator]) -> dict[str, bool]:
    """The same of a test function in its module."""
    own = getattr(function, "pytestmark", [])
    return kinds([*own, *(decorator.mark for decorator in module_marks)])

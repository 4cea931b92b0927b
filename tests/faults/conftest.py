"""The rig as a fixture."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.faults.rig import Rig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    """Makes rigs that end with the test."""
    with ExitStack() as stack:
        made: list[Rig] = []

        def make(*arguments: Any, **settings: Any) -> Rig:
            one = stack.enter_context(Rig(tmp_path / f"rig{len(made)}", *arguments, **settings))
            made.append(one)
            return one

        yield make

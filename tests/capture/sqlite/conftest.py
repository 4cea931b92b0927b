from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.capture.sqlite.support import Source


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Callable[..., Source]]:
    """Makes a database with these tables; closed after the test."""
    made: list[Source] = []

    def make(*ddl: str, **config: Any) -> Source:
        made.append(Source(tmp_path / f"{len(made)}.db", *ddl, **config))
        return made[-1]

    yield make
    for one in made:
        one.close()

"""How keys are dealt out to tasks."""

import pytest

from tailrace.engine.documents.build import PIECE
from tailrace.engine.documents.spread import even


@pytest.mark.parametrize("rows", [1, 3, 4, PIECE, 4 * PIECE, 4 * PIECE + 1, 4 * PIECE + 480, 175_000])
def test_every_task_gets_as_many_pieces_and_none_is_too_large(rows: int) -> None:
    tasks = 4
    size = even(rows, tasks)
    pieces = -(-rows // size)
    shares = [len(range(at, pieces, tasks)) for at in range(tasks)]
    assert 1 <= size <= PIECE
    assert max(shares) == -(-rows // (tasks * PIECE))
    assert rows < tasks or max(shares) - min(shares) <= 1

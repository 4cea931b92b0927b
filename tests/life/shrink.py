"""Fewer actions that still fail: delta debugging, within a budget of time.

`fails` lives the actions it is given and says whether they fail in the same way. Actions whose preconditions
are gone with others are passed over by whoever lives them, so every part of a trace can be lived.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True)
class Shrunk(Generic[Item]):
    """What is left, after how many tries, whether nothing more can be left out, and whether it failed again.

    Where nothing of it failed again, nothing is known: neither what it needs nor what it does not.
    """

    actions: list[Item]
    tries: int
    minimal: bool
    again: bool


def shrink(
    actions: Sequence[Item],
    fails: Callable[[list[Item]], bool],
    *,
    budget: float,
    sense: Callable[[list[Item]], list[bool]] = lambda part: [True] * len(part),
    clock: Callable[[], float] = time.monotonic,
    said: Callable[[str], None] = lambda _: None,
) -> Shrunk[Item]:
    """The fewest actions found that fail, in their order. A part that was tried is not tried again.

    Pieces of halving size are left out, down to single actions. `sense` says which actions of a part would be
    done at all; the others are left out with what they depended on.
    """
    deadline = clock() + budget

    def sensible(places: tuple[int, ...]) -> tuple[int, ...]:
        told = sense([actions[at] for at in places])
        return tuple(at for at, done in zip(places, told, strict=True) if done)

    tried: dict[tuple[int, ...], bool] = {}

    def holds(places: tuple[int, ...]) -> bool:
        if places not in tried:
            tried[places] = fails([actions[at] for at in places])
            said(f"{len(places)} of {len(actions)} actions: {'fails' if tried[places] else 'passes'}")
        return tried[places]

    left = sensible(tuple(range(len(actions))))
    size = max(1, len(left) // 2)
    while left:
        for start in range(0, len(left), size):
            if clock() >= deadline:
                return Shrunk(
                    [actions[at] for at in left], len(tried), minimal=False, again=any(tried.values())
                )
            end = len(left) - start
            without = sensible(left[: max(0, end - size)] + left[end:])
            if without != left and holds(without):
                left = without
                break
        else:
            if size == 1:
                break
            size = max(1, size // 2)
            continue
        size = min(size, max(1, len(left) // 2))
    # The whole takes longest, so it is lived only where no part of it failed.
    again = any(tried.values()) or holds(left)
    return Shrunk([actions[at] for at in left], len(tried), minimal=again, again=again)

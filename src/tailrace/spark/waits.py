"""Why a query waits: small files in the state directory, so that other processes can tell a person."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass

import pyarrow.fs as pafs

from tailrace.changelog.filesystem import remove
from tailrace.changelog.statefile import read_state, write_state
from tailrace.model.errors import TailraceError

KIND = "wait"
THROTTLE = "throttle.json"


@dataclass(frozen=True)
class Wait:
    """What is waited for. `kind` is for machines, `since` is a time of day."""

    kind: str
    reason: str
    since: float


def remember(fs: pafs.FileSystem, path: str, wait: Wait | None, unseen: tuple[str, ...] = ()) -> None:
    """Say what waits now, and which limits cannot be kept. Only for people, so a full disk is no fault."""
    with contextlib.suppress(TailraceError):
        if wait is None and not unseen:
            remove(fs, path)
        else:
            body = {"wait": None if wait is None else asdict(wait), "unseen": list(unseen)}
            write_state(fs, path, KIND, body)


def remembered(fs: pafs.FileSystem, path: str) -> tuple[Wait | None, tuple[str, ...]]:
    """What the process that runs said last. It means nothing once that has ended."""
    try:
        body = read_state(fs, path, KIND)
    except TailraceError:
        body = None
    match body:
        case {
            "wait": {"kind": str(kind), "reason": str(reason), "since": float(since)},
            "unseen": list(unseen),
        }:
            return Wait(kind, reason, since), tuple(unseen)
        case {"wait": None, "unseen": list(unseen)}:
            return None, tuple(unseen)
    return None, ()

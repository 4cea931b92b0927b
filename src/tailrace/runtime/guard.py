"""Is this the source that the state belongs to, and not an older copy of it?

Asked before a log is continued, by the runtime and by the filler alike. A source restored from a backup has
the same identity, but remembers less than it once told us: less acknowledged, or a log that ends before ours.
"""

from __future__ import annotations

from tailrace.capture.contract import Capture
from tailrace.model.errors import IdentityMismatch
from tailrace.model.position import Position
from tailrace.runtime import resume

_REMEDY = (
    "point at the source the state belongs to, or begin with an empty state directory and a new snapshot"
)


def same_source(capture: Capture, expected: str) -> None:
    """IdentityMismatch if another source answers."""
    identity = capture.identity()
    if identity != expected:
        raise other_source(expected, identity)


def other_source(expected: str, found: str) -> IdentityMismatch:
    """The error that says so."""
    return IdentityMismatch(
        f"the state belongs to source {expected}, and source {found} answers", remedy=_REMEDY
    )


def not_older(capture: Capture, consumer: str, *, position: Position, acknowledged: int) -> None:
    """Refuse a source that knows less than it did: by its cursor, or by where its log ends."""
    recorded = next((known.acknowledged for known in capture.consumers() if known.name == consumer), None)
    if recorded is not None and recorded < acknowledged:
        raise IdentityMismatch(
            f"the source has {recorded} on record for {consumer}, and it had {acknowledged} before: "
            "it was restored from an older copy",
            remedy=_REMEDY,
        )
    resume.within(position, capture.head())

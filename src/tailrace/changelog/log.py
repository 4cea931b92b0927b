"""The changelog: the durable queue between one capture and Spark.

One thread of one process appends; every other method may be called from any thread of it. Executors read by
the references that `plan` gives (`reader.py`). A directory holds

    changelog.json        the source it belongs to, and the acknowledged position
    owner/<epoch>.json    who may write (`owner.py`)
    *.seg, *.spill        the changes (`segment.py`)

`append` takes parts into memory or spills them (`intake.py`), `flush` publishes whole transactions as one
segment, and from then on they are in `index.py`. What is not published when the process dies was never
visible, and comes again from the source.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tailrace.changelog import filesystem
from tailrace.changelog.binding import abandon, keep_reserve, load_binding, save_binding
from tailrace.changelog.index import SegmentIndex, Summary, later
from tailrace.changelog.intake import Intake, Transaction, write_segment
from tailrace.changelog.owner import Ownership
from tailrace.changelog.packing import PackedWindow
from tailrace.changelog.reader import read_windows
from tailrace.changelog.recovery import recover, segments_in
from tailrace.changelog.segment import SegmentName, WindowRef
from tailrace.model.change import Part
from tailrace.model.errors import IdentityMismatch, TailraceError, UsageError
from tailrace.model.position import MAX_VERSION, Position

SEGMENT_BYTES = 8 << 20
SPILL_BYTES = 16 << 20
MAX_BYTES = 4 << 30


@dataclass(frozen=True)
class Limits:
    """The bounds of a changelog; bytes are of Arrow buffers, but `max_bytes` and what it bounds are of files.

    `segment_bytes`: pending transactions of this size are published without waiting for a flush.
    `spill_bytes`: what an open transaction may hold in memory.
    `max_bytes`: published and not acknowledged; beyond it `append` waits.
    `retention`: seconds that an acknowledged segment is kept.
    """

    segment_bytes: int
    spill_bytes: int
    max_bytes: int
    retention: float


@dataclass(frozen=True)
class Stats:
    """What a changelog holds. Positions are versions; None where it never began."""

    segments: int
    rows: int
    bytes: int
    start: int | None
    end: int | None
    acknowledged: int | None
    unacknowledged_bytes: int


class Changelog:
    """See the module's text. Made by `open`."""

    def __init__(
        self,
        uri: str,
        owner: Ownership,
        source: str,
        limits: Limits,
        on_wait: Callable[[], None] | None,
    ) -> None:
        self.uri = uri
        self.source = source
        self._fs, self._root = filesystem.open_filesystem(uri)
        self._owner = owner
        self._limits = limits
        self._on_wait = on_wait
        # Called before anything is published, for what must be durable then.
        self.before_publish: Callable[[], None] | None = None
        self._writing = threading.RLock()
        self._saving = threading.Lock()
        self._changed = threading.Condition()
        self._closed = False
        self._intake = Intake()
        self._acknowledged = self._saved = load_binding(self._fs, self._root, source)
        self._index = SegmentIndex(self._fs, self._root, recover(self._fs, self._root, source, self._saved))
        if self._saved is None:
            self._save(None)
        keep_reserve(self._fs, self._root)
        self._held = self._unacknowledged()

    @classmethod
    def open(
        cls,
        uri: str,
        *,
        owner_name: str,
        source: str,
        segment_bytes: int = SEGMENT_BYTES,
        spill_bytes: int = SPILL_BYTES,
        max_bytes: int = MAX_BYTES,
        retention: float = 0.0,
        wait: float = 5.0,
        lease: float = 15.0,
        on_wait: Callable[[], None] | None = None,
        formerly: str | None = None,
    ) -> Changelog:
        """Own the directory (StateOwned) and recover what is in it, or begin an empty one.

        IdentityMismatch where it belongs to another source, StateUnreadable where it cannot be trusted.
        One that belongs to `formerly` is emptied: the same source, under a name that it no longer has.
        `on_wait` is called about twice a second while `append` waits for room, on its thread; the other
        arguments are those of `Limits` and of `Ownership.acquire`.
        """
        limits = Limits(segment_bytes, spill_bytes, max_bytes, retention)
        fs, root = filesystem.open_filesystem(uri)
        filesystem.make_directory(fs, root)
        epochs = [name.epoch for name in segments_in(filesystem.listing(fs, root))]
        owner = Ownership.acquire(fs, root, owner_name, wait=wait, lease=lease, floor=max(epochs, default=0))
        try:
            if formerly is not None and formerly != source:
                abandon(fs, root, formerly)
            return cls(uri, owner, source, limits, on_wait)
        except BaseException:
            owner.release()
            raise

    @property
    def epoch(self) -> int:
        """The epoch of this ownership."""
        return self._owner.epoch

    @property
    def begun(self) -> bool:
        """Whether it was ever told where it starts."""
        with self._changed:
            return self._acknowledged is not None

    @property
    def end(self) -> int:
        """The end of what is published; 0 before `begin`."""
        with self._changed:
            return self._end() or 0

    @property
    def acknowledged(self) -> int:
        """What the consumer no longer needs; 0 before `begin`."""
        with self._changed:
            return self._acknowledged or 0

    def check_owner(self) -> None:
        """Fenced where another process owns the directory now."""
        self._owner.check(now=True)

    def begin(self, position: Position) -> None:
        """Declare where an empty changelog starts, durably. Saying the same again changes nothing.

        An empty changelog may be moved forward; anything else is UsageError.
        """
        version = self._version(position)
        with self._writing:
            self._check_open()
            end = self._end()
            if end == version:
                return
            if self._index.segments or (end is not None and version < end) or self._intake.last is not None:
                raise UsageError(
                    f"the changelog ends at {end} and cannot begin at {version}", place=self._root
                )
            self._owner.check(now=True)
            self._start_at(version)

    def reset(self, position: Position) -> None:
        """Remove everything, published or not, and start at `position`, durably."""
        version = self._version(position)
        with self._writing:
            self._check_open()
            self._owner.check(now=True)
            self.forget_unpublished()
            with self._changed:
                gone = list(self._index.segments)
                self._index.forget(gone)
                self._held = 0
            self._remove(gone[::-1])
            self._start_at(version)

    def append(self, part: Part) -> None:
        """Take a part. It becomes visible with the transaction's last part and the next `flush`.

        Waits while too much is published and not acknowledged, except inside of a transaction. Whatever it
        raises, it did not take the part: after a Transient (the disk is full) the same call may be repeated.
        """
        version = self._version(part.position)
        with self._writing:
            self._check_open()
            self._check_order(version if part.ends is None else int(part.ends.versions[0]))
            self._owner.check()
            if self._intake.full or self._intake.bytes >= self._limits.segment_bytes:
                self._publish()
            transaction = self._intake.open
            if transaction is None:
                self._wait_for_room()
            else:
                self._spill(transaction)
            self._intake.add(part)
            if self._intake.open is not None:
                # Now, and not with the next part: that one is then made while this one is in memory. What
                # stands against it is told by the next call, which tries again: this one has its part.
                with contextlib.suppress(TailraceError):
                    self._spill(self._intake.open)

    def _spill(self, transaction: Transaction) -> None:
        if transaction.held >= self._limits.spill_bytes:
            with self._writes():
                transaction.spill(self._fs, self._root, self.epoch)

    def flush(self) -> int:
        """Publish the pending complete transactions as one segment, durably; returns the published end.

        After a Transient nothing is lost and it can be called again.
        """
        with self._writing:
            self._check_open()
            if self._intake.last is not None:
                self._publish()
            return self.end

    def forget_unpublished(self) -> None:
        """Drop the open transaction and everything pending: capture goes on from `end` again."""
        with self._writing:
            for spill in self._intake.forget():
                filesystem.remove(self._fs, f"{self._root}/{spill}")

    def wait(self, after: int, timeout: float) -> int:
        """The published end, as soon as it is beyond `after`, or when the time is up or the log is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or (self._end() or 0) > after, timeout)
            return self._end() or 0

    def bound(
        self,
        start: int,
        *,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        up_to: int | None = None,
    ) -> int:
        """The furthest transaction end after `start` within the limits, but one transaction at least.

        `start` itself where nothing follows. LogLost where the changelog begins after `start`.
        """
        with self._changed:
            self._check_start(start)
            limit = MAX_VERSION if up_to is None else up_to
            return self._index.bound(start, max_rows=max_rows, max_bytes=max_bytes, up_to=limit)

    def rows(self, start: int, end: int) -> int:
        """Published rows of (start, end]."""
        with self._changed:
            return self._index.rows_after(start) - self._index.rows_after(end)

    def bytes_after(self, start: int) -> int:
        """About how much is published after `start`, in bytes of Arrow buffers."""
        with self._changed:
            return self._index.bytes_after(start)

    def plan(self, start: int, end: int) -> list[WindowRef]:
        """Where the rows of (start, end] lie, in order. LogLost where the changelog begins after `start`."""
        with self._changed:
            published = self._end() or 0
            if end > published:
                raise UsageError(
                    f"the changelog ends at {published}, before {end}: wait for it", place=self._root
                )
            if start < end:
                self._check_start(start)
            return list(self._index.plan(start, end))

    def acknowledge(self, position: Position) -> None:
        """The consumer has everything up to `position` and never asks for it again.

        Kept in memory: `prune` and `close` make it durable. Never beyond the published end, never backwards.
        """
        version = self._version(position)
        with self._changed:
            end = self._end()
            if end is None or self._acknowledged is None:
                raise UsageError("nothing can be acknowledged before `begin`", place=self._root)
            if (reached := min(version, end)) > self._acknowledged:
                self._acknowledged = reached
                self._held = self._unacknowledged()
                self._changed.notify_all()

    def prune(self) -> int:
        """Remove segments that are acknowledged and older than the retention; returns how many."""
        self._check_open()
        self._owner.check(now=True)
        self._save_acknowledged()
        now = time.time()
        with self._changed:
            gone: list[Summary] = []
            for summary in self._index.segments:
                young = now - summary.created < self._limits.retention
                if summary.name.end > (self._saved or 0) or (young and summary.created <= now):
                    break
                gone.append(summary)
            self._index.forget(gone)
        self._remove(gone)
        return len(gone)

    def truncate_after(self, position: Position) -> None:
        """Remove everything after `position`, published or not; it will be captured again.

        A segment that has it in its middle is written anew up to it. UsageError below the acknowledged one.
        """
        version = self._version(position)
        with self._writing:
            self._check_open()
            if version < (self._acknowledged or 0):
                raise UsageError(f"position {version} is below the acknowledged one", place=self._root)
            self._owner.check(now=True)
            self.forget_unpublished()
            with self._changed:
                gone = [summary for summary in self._index.segments if summary.name.end > version]
            if not gone:
                return
            head = gone[0].name.start
            if (end := self.bound(head, up_to=version)) > head:
                self._rewrite(head, end)
            with self._changed:
                self._index.forget(gone)
                self._held = self._unacknowledged()
                self._changed.notify_all()
            self._remove(gone[::-1])

    def close(self) -> None:
        """Release everything, end every wait. What is not flushed comes again from the source. Idempotent."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        with self._writing:
            with contextlib.suppress(TailraceError):
                self._owner.check(now=True)
                self.forget_unpublished()
                self._save_acknowledged()
            self._owner.release()

    def __enter__(self) -> Changelog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def stats(self) -> Stats:
        """What is published now."""
        with self._changed:
            segments = self._index.segments
            return Stats(
                segments=len(segments),
                rows=sum(summary.rows for summary in segments),
                bytes=sum(summary.size for summary in segments),
                start=segments[0].name.start if segments else self._acknowledged,
                end=self._end(),
                acknowledged=self._acknowledged,
                unacknowledged_bytes=self._held,
            )

    def _start_at(self, version: int) -> None:
        with self._saving:
            self._save(version)
        with self._changed:
            self._acknowledged = version
            self._changed.notify_all()

    def _publish(self) -> None:
        start = self._end()
        if start is None:
            raise UsageError("the changelog has no beginning yet: call `begin`", place=self._root)
        self._owner.check(now=True)
        if self.before_publish is not None:
            self.before_publish()
        with self._writes():
            published = self._intake.publish(self._fs, self._root, self.source, start=start, epoch=self.epoch)
        with self._changed:
            self._index.add(*published)
            self._held = self._unacknowledged()
            self._changed.notify_all()

    def _rewrite(self, start: int, end: int) -> None:
        """Publish (start, end] once more, as a segment of its own, beside the one it is cut from."""
        with self._changed:
            boundaries = self._index.boundaries(start, end)
        refs = self.plan(start, end)
        windows = zip(refs, read_windows(self.uri, refs), strict=True)
        packed = (PackedWindow(ref.rows, ref.bytes, verbatim=tuple(batches)) for ref, batches in windows)
        path = f"{self._root}/{SegmentName(start, end, self.epoch)}"
        with self._writes():
            footer, size = write_segment(self._fs, path, self.source, boundaries, packed)
        with self._changed:
            self._index.add(footer, boundaries, size)

    def _wait_for_room(self) -> None:
        while True:
            with self._changed:
                if self._held <= self._limits.max_bytes:
                    return
            # What is pending must not wait for itself: published, it can be consumed and acknowledged.
            if self._intake.last is not None:
                self._publish()
            with self._changed:
                self._changed.wait_for(
                    lambda: self._closed or self._held <= self._limits.max_bytes, timeout=0.5
                )
            self._check_open()
            self._owner.check()
            if self._on_wait is not None:
                self._on_wait()

    def _unacknowledged(self) -> int:
        acknowledged = self._acknowledged or 0
        total = 0
        for summary in reversed(self._index.segments):
            if summary.name.end <= acknowledged:
                break
            total += summary.size
        return total

    def _end(self) -> int | None:
        segments = self._index.segments
        return segments[-1].name.end if segments else self._acknowledged

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the changelog is closed", place=self._root)

    def _check_start(self, start: int) -> None:
        """An empty changelog begins where it is acknowledged; segments know for themselves."""
        if not self._index.segments and start < (self._acknowledged or 0):
            raise later(self._root, self._acknowledged or 0, start)

    def _check_order(self, version: int) -> None:
        last = self._intake.last
        before = self._end() if last is None else last
        if before is None:
            raise UsageError("the changelog has no beginning yet: call `begin`", place=self._root)
        opened = self._intake.open
        if opened is not None and opened.position != version:
            raise UsageError(
                f"a part at {version} came before the transaction at {opened.position} was complete",
                place=self._root,
            )
        if version <= before:
            raise UsageError(f"a part at {version} came after {before} was complete", place=self._root)

    def _version(self, position: Position) -> int:
        if position.source != self.source:
            raise IdentityMismatch(
                f"a position of source {position.source} was given to the changelog of source {self.source}",
                remedy="point the pipeline at the source of its state, or use another state directory",
                place=self._root,
            )
        return position.version

    @contextlib.contextmanager
    def _writes(self) -> Any:
        try:
            yield
        except OSError as error:
            raise filesystem.cannot_write(self._root, error) from error

    def _remove(self, summaries: list[Summary]) -> None:
        for summary in summaries:
            for file in summary.files:
                filesystem.remove(self._fs, f"{self._root}/{file}")

    def _save(self, acknowledged: int | None) -> None:
        save_binding(self._fs, self._root, self.source, acknowledged)
        self._saved = acknowledged

    def _save_acknowledged(self) -> None:
        with self._saving:
            with self._changed:
                acknowledged = self._acknowledged
            if acknowledged != self._saved:
                self._save(acknowledged)

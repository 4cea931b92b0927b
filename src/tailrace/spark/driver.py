"""The driver's side of a stream: what Spark's runner process holds while a query runs.

Spark calls `initial`, `latest`, `partitions` and `acknowledge` one after the other from one thread, in the
orders that its own log dictates: after a crash `partitions` may be the very first call, so each of them opens
what it needs. A filler thread owns the database connection and fills the changelog meanwhile; `latest`
decides how much of it, and how many snapshot chunks, the next micro-batch holds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow.fs as pafs

from tailrace.capture.contract import TABLE_STOPPED, Capture, Lag
from tailrace.changelog.filesystem import open_filesystem
from tailrace.changelog.log import Changelog
from tailrace.model.errors import (
    ConfigError,
    IdentityMismatch,
    LogLost,
    SchemaDrift,
    SetupMissing,
    TailraceError,
    UsageError,
)
from tailrace.model.position import Position
from tailrace.model.table import TableRef
from tailrace.runtime import history
from tailrace.runtime.filler import Filler
from tailrace.runtime.links import FILE as LINKS
from tailrace.runtime.links import Links
from tailrace.spark import initial, jumps, waits
from tailrace.spark.filled import filled, refill
from tailrace.spark.named import resolved
from tailrace.spark.offsets import Cursor, Offset
from tailrace.spark.options import DocumentNeeds, SourceOptions
from tailrace.spark.orders import Orders
from tailrace.spark.partitions import ChunkRead, Slice, share
from tailrace.spark.patience import patiently
from tailrace.spark.plans import PlanStore
from tailrace.spark.renewed import Renewed
from tailrace.spark.room import Room
from tailrace.spark.sampling import Sampler
from tailrace.spark.snapshots import Snapshots
from tailrace.spark.throttle import Throttle, dealt
from tailrace.spark.visibility import wait_visible

LONG_POLL = 0.5
NEVER = 2**62
LOOK_FOR_REQUESTS = 1.0
DEFAULT_PARTITIONS = 2
# A bounded query that is far behind hands over this much while more is captured beside it.
ENOUGH_BYTES = 48 << 20
GAPS = (LogLost, SchemaDrift, SetupMissing)
Answer = TypeVar("Answer")
logger = logging.getLogger("tailrace.spark")


def consumer_name(state_dir: str) -> str:
    """The cursor's name for a state directory that was given none: stable, and never shared by accident."""
    # The place and not the text: queries in two directories may both call theirs "state".
    local = "://" not in state_dir or state_dir.startswith("file:")
    place = open_filesystem(state_dir)[1] if local else state_dir
    return "spark-" + hashlib.sha256(place.encode()).hexdigest()[:12]


class StreamDriver:
    """One query's capture, changelog and snapshots."""

    def __init__(self, options: SourceOptions, open_capture: Callable[[SourceOptions], Capture]) -> None:
        if options.state_dir is None:
            raise ConfigError(
                "option `stateDir` is missing",
                remedy='.option("stateDir", "/a/directory/that/driver/and/executors/share")',
            )
        self._options = options
        self._state_dir = options.state_dir
        self._consumer = options.consumer or consumer_name(options.state_dir)
        self._needs = options.documents or DocumentNeeds()
        self._links: Links | None = None
        self._capture = open_capture(options)
        self._fs, self._root = open_filesystem(options.state_dir)
        self._refs = patiently(
            lambda: resolved(self._capture, options.tables, filled(self._fs, self._root) or ())
        )
        plans, orders = PlanStore(self._fs, self._root), Orders(self._fs, self._root)
        limits = options.throttle
        chunk_rows = limits.chunk_rows(options.chunk_rows)
        self._snapshots = Snapshots(
            self._capture,
            plans,
            orders,
            self._refs,
            chunk_rows=chunk_rows,
            chunk_bytes=options.chunk_bytes,
            unread=self._needs.unread,
            keys_only=self._needs.keys,
        )
        self._sampler = Sampler(lambda: self._capture.load(self._consumer))
        self._throttle = Throttle(
            limits,
            lag=self._behind,
            load=self._sampler.newest,
            tell=lambda wait, unseen: waits.remember(
                self._fs, f"{self._root}/{waits.THROTTLE}", wait, unseen
            ),
        )
        self._changelog: Changelog | None = None
        self._filler: Filler | None = None
        self._generations: dict[TableRef, str] = {}
        self._held: set[str] = set()
        self._renewed = Renewed()
        self._room = Room()
        self._roomy = False
        self._initial: Offset | None = None
        self._newest: Offset | None = None
        self._bounded = False
        self._target: int | None = None
        self._looked = 0.0
        self._at = 0
        self._closed = False
        self._closing = threading.Lock()
        self._opening = threading.Lock()

    def initial(self) -> Offset:
        """Where a new query begins. The same answer again until Spark has logged the first offset."""
        if self._initial is None:
            self._initial = self._asked(self._begin)
        return self._initial

    def latest(
        self, start: Offset, *, max_rows: int | None, max_bytes: int | None, roomy: bool = False
    ) -> Offset:
        """The end of the next micro-batch; `start` itself after a long poll in which nothing came.

        Where it is `roomy`, snapshots may take more than `max_rows`, as far as that takes no longer.
        """
        self._roomy = roomy
        try:
            end = self._asked(lambda: self._next(start, max_rows, max_bytes))
            while self._bounded and self._throttle.waiting is not None and end == self._here(start):
                # To Spark no progress is the end of a bounded run.
                end = self._asked(lambda: self._next(start, max_rows, max_bytes))
        except TailraceError as error:
            if isinstance(error, IdentityMismatch) and self._failed_over(start):
                return start
            here = self._here(start)
            # What was captured before the error is delivered before it.
            end = self._captured(here, max_rows, max_bytes)
            if end == here:
                if not isinstance(error, GAPS) or self._options.fail_on_data_loss:
                    raise
                logger.warning("%s: taking a fresh snapshot, as failOnDataLoss is false", error.message)
                end = patiently(lambda: self._jump(here, max_rows))
        self._newest = end
        return end

    def _asked(self, question: Callable[[], Answer]) -> Answer:
        """What the source answers, patiently, and by one connection for all of its tables."""

        def together() -> Answer:
            with self._capture.together():
                return question()

        return patiently(together)

    def _next(self, start: Offset, max_rows: int | None, max_bytes: int | None) -> Offset:
        filler = self._open(start)
        start = self._here(start)
        self.acknowledge(start)
        if time.monotonic() - self._looked > LOOK_FOR_REQUESTS:
            self._snapshots.look_for_requests()
            self._looked = time.monotonic()
            filler = self._revived(start, filler)
        if self._bounded and self._target is None:
            self._target = self._capture.head().version
        if self._target is not None:
            filler.catch_up(self._target, past=start.position.version, enough=ENOUGH_BYTES)
        end = self._advance(start, max_rows, max_bytes)
        if end == start and (self._target is None or self._throttle.waiting is not None):
            # Changes after its target are not for a bounded run.
            after = start.position.version if self._target is None else NEVER
            filler.wait(after, self._throttle.patience(LONG_POLL))
            filler.raise_if_failed()
            end = self._advance(start, max_rows, max_bytes)
        return end

    def _captured(self, start: Offset, max_rows: int | None, max_bytes: int | None) -> Offset:
        """What the changelog still holds after `start`, once the source can no longer be asked."""
        if self._changelog is None or self._filler is None or not self._changelog.begun:
            return start
        at = start.position.version
        try:
            bound = self._changelog.bound(at, max_rows=max_rows, max_bytes=max_bytes, up_to=self._target)
        except LogLost:
            # It begins later: a jump over a gap was made, and its offset never logged.
            return start
        return Offset(start.position.at(bound), self._passed_over(start.snapshots))

    def prepare_available_now(self) -> None:
        """Go up to what the source has when the first offset is asked for, and no further.

        Not before: of a new query this is the first call, and capture may not be installed yet.
        """
        self._bounded = True

    def partitions(self, start: Offset, end: Offset, *, single: bool) -> list[Slice]:
        """The tasks of a micro-batch: windows of the log, then snapshot chunks. The same on every replay.

        With `single` one task reads everything, unless the batch holds chunks only.
        """
        return self._asked(lambda: self._tasks(start, end, single))

    def _tasks(self, start: Offset, end: Offset, single: bool) -> list[Slice]:
        filler = self._filler or self._open(start, cut=end.position.version)
        changelog = self._log()
        if end.position.source != changelog.source:
            initial.moved(self._capture, end)
        if changelog.end < end.position.version:
            filler.catch_up(end.position)
        begins = jumps.crossed(self._fs, self._root, changelog, start.position.version)
        windows = changelog.plan(begins, end.position.version)
        chunks = self._readable(self._snapshots.reads(start, end, replayed=end != self._newest))
        self._room.begun(end, len(chunks))
        if self._links is not None:
            # What is read before link state is whole may be older than what this can tell.
            filler.prove()
        horizon = 0 if self._links is None else self._links.horizon
        if chunks or (windows and self._options.documents is not None):
            # The barrier. For chunks all that is captured, and not the batch alone: of a table that stopped
            # for a while its chunk is what brings the changes that the changelog has passed over. And all
            # that link state may lack: no change up to its horizon touches a document later.
            beyond = max(changelog.end, horizon) if chunks else 0
            seen = Position(changelog.source, max(end.position.version, beyond))
            wait_visible(self._capture, seen, self._fs, self._root)
        tables = tuple(self._refs)
        progress = {"start": start.to_json(), "end": end.to_json(), "horizon": horizon}
        if single and windows:
            return [Slice(tuple(windows), tuple(chunks), tables, progress)]
        parts = self._options.partitions or DEFAULT_PARTITIONS
        if self._options.view == "packed" and sum(one.bytes for one in windows) > self._options.limits[1]:
            # Larger than a batch is one transaction alone, and it may be larger than memory.
            slices = [Slice(tuple(windows), (), tables, progress, referred=True)]
        else:
            slices = [Slice(run, (), tables, progress) for run in share(windows, parts)]
        # Two each: one that is done early takes another, and a task reads its chunks by one connection. Who
        # makes one row of each key must have all of a task's chunks at once.
        usual = len(chunks) if single else 2 * parts
        runs = dealt(chunks, self._options.throttle.connections or usual)
        return slices + [Slice((), tuple(run), tables, progress) for run in runs]

    def _readable(self, chunks: list[ChunkRead]) -> list[ChunkRead]:
        """Without chunks of tables that were dropped since: those stand still until they are read again."""
        gone = self._gone() if chunks else set()
        for ref in gone.intersection(read.chunk.table for read in chunks):
            logger.warning("table %s was dropped during its snapshot, the rest of which is left out", ref)
        return [read for read in chunks if read.chunk.table not in gone]

    def _gone(self) -> set[TableRef]:
        """Tables that a former run read and that were dropped since, where that stops them alone."""
        partial = self._capture.capabilities.partial
        return set(self._refs).difference(self._capture.tables()) if partial else set()

    def acknowledge(self, offset: Offset) -> None:
        """Spark has committed everything up to this offset."""
        if self._filler is not None:
            self._filler.acknowledge(self._here(offset).position)
        self._room.committed(offset)
        self._snapshots.committed(offset)

    def report(self) -> dict[str, Any] | None:
        """Numbers for Spark's progress: how far the newest offset trails the source, and each snapshot."""
        if self._filler is None or self._newest is None:
            return None
        health = self._filler.health()
        return {
            "position": self._newest.position.version,
            "lag": dataclasses.asdict(self._filler.lag()),
            "state": health.state,
            "notices": [dataclasses.asdict(one) for one in (*health.notices, *self._throttle.notices())],
            "snapshot_waits": self._throttle.report(),
            "chunks_left": sum(c.of - c.next for c in self._newest.snapshots.values() if not c.over),
            "snapshots": [dataclasses.asdict(one) for one in self._snapshots.progress(self._newest)],
        }

    def close(self) -> None:
        """Let go of the source and the state directory."""
        with self._closing:
            self._close()

    def leave(self) -> None:
        """The same, beside whatever call runs, for a process that ends now.

        A call that this leaves without an answer has nobody to tell: it waits in `close` for the end.
        """
        self._closing.acquire()
        self._close()

    def _close(self) -> None:
        self._closed = True
        # Who opens it owns the state before it is here.
        with self._opening:
            changelog = self._changelog
        filler, links = self._filler, self._links
        try:
            if filler is not None:
                filler.close()
            if links is not None:
                links.close()
            self._sampler.close()
            self._capture.close()
        finally:
            if changelog is not None:
                changelog.close()

    def _begin(self) -> Offset:
        starting, capture, consumer = self._options.starting, self._capture, self._consumer
        if isinstance(starting, dict):
            return initial.given(capture, consumer, starting)
        self._prepare(self._refs)
        state = self._fs, self._root
        return initial.begun(capture, consumer, self._refs, starting, state=state, own=self._open_changelog)

    def _prepare(self, refs: list[TableRef]) -> None:
        """Install capture for tables that this query has never read; those it has read must still have it."""
        if self._options.setup == "auto" and refs:
            for line in self._capture.setup(refs):
                logger.info("%s", line)

    def _open(self, start: Offset, cut: int | None = None) -> Filler:
        if self._filler is not None:
            self._filler.raise_if_failed()
            return self._filler
        self._check_open()
        gone = self._gone()
        fresh = [ref for ref in self._refs if str(ref) not in start.snapshots and ref not in gone]
        self._prepare(fresh)
        former, start = start.position.source, initial.moved(self._capture, start)
        # A cursor that is gone is not made anew, to keep log for nobody. That it is gone the filler says,
        # and what was captured is delivered first.
        with contextlib.suppress(LogLost):
            self._capture.register(self._consumer, start.position)
        self._generations = {ref: found[0] for ref, found in self._capture.generations().items()}
        self._snapshots.look_for_requests()
        accepted = self._accepted(start)
        self._held = {str(ref) for ref in self._refs if ref not in accepted}
        if new := [str(ref) for ref in fresh if str(ref) in self._held]:
            raise SetupMissing(f"not set up for capture: {', '.join(new)}", remedy="tailrace setup")
        changelog = self._open_changelog(start.position.source, formerly=former)
        history.carry(self._fs, f"{self._root}/changelog/{history.FILE}", former, start.position)
        refill(self._fs, self._root, changelog, self._refs, start)
        self._renewed = Renewed.since(start, accepted, self._snapshots.requests, self._capture.head)
        if self._links is not None:
            self._links.close()
        self._links = self._linking()
        # The GIL: a decoding thread must not make Spark's calls wait for their turn.
        sys.setswitchinterval(0.0005)
        self._filler = Filler(
            self._capture,
            changelog,
            self._refs,
            consumer=self._consumer,
            start=start.position,
            ack=self._options.ack,
            # A table that a fresh snapshot does not cover goes on as it was known, or not at all.
            accept={**self._known(start), **accepted},
            cut=cut,
            links=self._links,
        )
        self._filler.start()
        self._filler.hurry(self._renewed.until)
        return self._filler

    def _linking(self) -> Links | None:
        """Link state for the tables that need it."""
        needed = {ref: self._needs.links[str(ref)] for ref in self._refs if str(ref) in self._needs.links}
        if not needed:
            return None
        if not isinstance(self._fs, pafs.LocalFileSystem):
            raise ConfigError(
                "documents need link state, a file of a local disk, and the state directory is on none",
                remedy="give the pipeline a state directory on a disk of the driver, or make the log carry"
                " whole rows: " + "; ".join(f"ALTER TABLE {ref} REPLICA IDENTITY FULL" for ref in needed),
            )
        return Links(f"{self._root}/{LINKS}", needed)

    def _early(self) -> set[str]:
        """The tables whose snapshots wait for link state: documents must be read after it."""
        linked = self._links is None or (self._filler is not None and self._filler.proved)
        return set() if linked else {str(ref) for ref in self._refs}

    def _here(self, offset: Offset) -> Offset:
        """The offset under the changelog's name: it was proved when that was opened."""
        source = offset.position.source if self._changelog is None else self._changelog.source
        return Offset(Position(source, offset.position.version), offset.snapshots)

    def _failed_over(self, start: Offset) -> bool:
        """Whether the source has got another name while it was read, under which it can be read on."""
        if self._changelog is None or self._filler is None:
            return False
        try:
            position = self._capture.moved(start.position)
        except TailraceError:
            return False
        if position.source == self._changelog.source:
            return False
        # What is captured and not delivered may be from beyond the place that both have: it comes again.
        self._filler.close()
        self._changelog.close()
        self._filler = self._changelog = None
        return True

    def _accepted(self, start: Offset) -> dict[TableRef, str]:
        """Tables whose capture may have begun after the position: a snapshot covers what is missing."""
        changes_only = self._options.starting == "latest" and self._options.fail_on_data_loss
        accepted = {}
        for ref in self._refs:
            cursor = start.snapshots.get(str(ref))
            generation = self._generations.get(ref)
            known = cursor is not None and cursor.generation == generation
            asked = str(ref) in self._snapshots.requests
            if generation is not None and (known or asked or not changes_only or cursor is None):
                accepted[ref] = generation
        return accepted

    def _known(self, start: Offset) -> dict[TableRef, str]:
        cursors = {ref: start.snapshots.get(str(ref)) for ref in self._refs}
        return {ref: cursor.generation for ref, cursor in cursors.items() if cursor is not None}

    def _stopped(self) -> set[str]:
        """The tables that stand still while the others go on."""
        told = {notice.table for notice in self._capture.notices() if notice.code == TABLE_STOPPED}
        return self._held | {str(ref) for ref in self._refs if str(ref) in told}

    def _passed_over(self, cursors: dict[str, Cursor]) -> dict[str, Cursor]:
        """The cursors, where a table stands still without a generation: once it goes on, it is read again."""
        stopped = self._stopped()
        return {
            table: dataclasses.replace(cursor, generation="") if table in stopped else cursor
            for table, cursor in cursors.items()
        }

    def _revived(self, start: Offset, filler: Filler) -> Filler:
        """Begin again where a stopped table may go on with a fresh snapshot, asked for or always allowed."""
        forgiving = not self._options.fail_on_data_loss
        stopped = self._stopped()
        refs = [
            ref
            for ref in self._refs
            if str(ref) in stopped and (forgiving or str(ref) in self._snapshots.requests)
        ]
        if not refs or filler.health().state != "running":
            return filler
        try:
            if forgiving:
                self._prepare(refs)
            there = self._capture.generations()
        except TailraceError as error:
            logger.debug("%s", error.message)
            return filler
        if not any(ref in there for ref in refs):
            return filler
        filler.close()
        self._filler = None
        return self._open(start)

    def _check_open(self) -> None:
        """A call that `leave` found running must not begin anew what is closed."""
        if self._closed:
            raise UsageError("the query has ended")

    def _open_changelog(self, source: str, formerly: str | None = None) -> Changelog:
        if self._changelog is None:
            with self._opening:
                self._check_open()
                self._changelog = Changelog.open(
                    f"{self._state_dir}/changelog",
                    owner_name=self._options.owner or self._consumer,
                    source=source,
                    max_bytes=self._options.max_changelog_bytes,
                    retention=self._options.retention,
                    on_wait=self._while_full,
                    formerly=formerly,
                )
        return self._changelog

    def _while_full(self) -> None:
        if self._filler is not None:
            self._filler.idle()

    def _log(self) -> Changelog:
        if self._changelog is None:
            raise ConfigError("the changelog is not open")
        return self._changelog

    def _behind(self) -> Lag | None:
        """How far the query is behind; None where it has delivered all the log that it is to deliver."""
        if self._filler is None:
            return Lag()
        if (target := self._target) is not None:
            changelog = self._log()
            # The target may lie between two transactions, where no batch ends.
            if changelog.end >= target and changelog.bound(self._at, up_to=target) == self._at:
                return None
        return self._filler.lag()

    def _advance(self, start: Offset, max_rows: int | None, max_bytes: int | None) -> Offset:
        changelog, at = self._log(), start.position.version
        version = changelog.bound(at, max_rows=max_rows, max_bytes=max_bytes, up_to=self._target)
        room = None if max_rows is None else max_rows - changelog.rows(at, version)
        parts = self._options.partitions or DEFAULT_PARTITIONS
        self._at = at
        with self._throttle.round() as throttle:
            cursors = self._snapshots.advance(
                start,
                self._generations,
                room=room,
                parts=min(parts, self._options.throttle.connections or parts),
                more=self._room.chunks if self._roomy else 0,
                # Where nobody collects the batch, it may be of any size.
                room_bytes=None if self._roomy else max_bytes,
                throttle=throttle,
                held=self._stopped() | self._renewed.early(changelog, version) | self._early(),
            )
        return Offset(start.position.at(version), self._passed_over(cursors))

    def _jump(self, start: Offset, max_rows: int | None) -> Offset:
        """The log has a gap and the user allows it: go on from now, with fresh snapshots."""
        self._check_open()
        if self._filler is not None:
            self._filler.close()
            self._filler = None
        self._capture.setup(self._refs)
        changelog = self._open_changelog(self._capture.identity())
        # To whom was frozen and succeeded, the successor's cursor looks like a gap.
        changelog.check_owner()
        # First: whoever finds the log to begin later must find these as well.
        self._snapshots.again(start)
        self._capture.forget(self._consumer)
        position: Position = self._capture.register(self._consumer)
        jumps.remember(self._fs, self._root, start.position.version, position)
        changelog.reset(position)
        begin = Offset(position, dict(start.snapshots))
        self._open(begin)
        # All of this log is from after their setup.
        self._renewed = Renewed()
        return self._advance(begin, max_rows, None)

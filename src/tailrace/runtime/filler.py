"""The thread that fills the changelog for Spark.

Runtime and filler are two ends of one idea. Both take a log through `feed.Feed` and prove the source by
`guard`; what differs is who confirms. A runtime hands parts to a caller, and its checkpoint is a file of its
own. A filler hands them to the changelog, and the changelog's end is its checkpoint: it begins there, and
what it had appended and not flushed when it died comes again from the source. So it needs no ledger and no
tokens.

Its thread alone touches `capture.live` and `capture.acknowledge`, and appends. Other threads wait for the
changelog, hand over acknowledgements, and ask for health. Passing faults are retried with backoff; any other
error ends the thread and is raised to whoever asks. `<changelog>/filler.json` remembers what the source had
on record for us, so that an older copy of it is recognised.

Where documents need old values that the log does not carry, `links` completes each part before it is
appended (`tailrace.runtime.links`), and is read from the source before the first one.

Give `Filler.idle` to `Changelog.open` as `on_wait`, or use `Filler.open`: acknowledgements then reach the
source, and `close` the thread, also while the changelog is full.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tailrace.capture.contract import Capture, Finding, Lag
from tailrace.changelog.filesystem import open_filesystem
from tailrace.changelog.log import Changelog
from tailrace.changelog.statefile import read_state, write_state
from tailrace.model.errors import Fenced, StateUnreadable, TailraceError, Transient, UsageError
from tailrace.model.position import Position
from tailrace.model.table import TableRef
from tailrace.runtime import guard
from tailrace.runtime.backoff import Backoff
from tailrace.runtime.cutting import Cutter
from tailrace.runtime.feed import Feed
from tailrace.runtime.history import FILE as SCHEMAS
from tailrace.runtime.history import SchemaHistory
from tailrace.runtime.links import Links
from tailrace.runtime.notices import Notices
from tailrace.runtime.observer import Observer, Silence, told
from tailrace.runtime.reached import Reached

Ack = Literal["sink", "changelog"]
State = Literal["idle", "connecting", "running", "waiting for room", "retrying", "failed", "stopped"]
KIND = "filler"

# A busy source never pauses: what was appended is published at least this often.
FLUSH_SECONDS = 0.05
# Progress without rows costs the consumer an empty batch, so it is published rarely.
EMPTY_FLUSH_SECONDS = 5.0
HOUSEKEEPING_SECONDS = 1.0
LAG_SECONDS = 5.0


@dataclass(frozen=True)
class Health:
    """How the thread is. `error` is the last fault's text, `attempt` counts tries since the last progress.

    `notices` is what the capture lives with: stopped tables, log at risk.
    """

    state: State
    attempt: int
    error: str | None
    end: int
    acknowledged: int
    notices: tuple[Finding, ...] = ()


class _Closing(Exception):
    """Leaves a full changelog's `append`."""


class Filler:
    """See the module's text. `start` once; every public method may be called from any thread."""

    def __init__(
        self,
        capture: Capture,
        changelog: Changelog,
        tables: Sequence[TableRef],
        *,
        consumer: str,
        start: Position | None = None,
        ack: Ack = "sink",
        accept: Mapping[TableRef, str] | None = None,
        cut: int | None = None,
        wait: float = 0.2,
        backoff: Backoff | None = None,
        observer: Observer | None = None,
        links: Links | None = None,
    ) -> None:
        self._capture = capture
        self._changelog = changelog
        self._links = links
        if links is not None:
            changelog.before_publish = links.sync
        self._tables = list(tables)
        self._consumer = consumer
        self._start = start
        self._ack = ack
        self._accept = dict(accept or {})
        self._cut = cut if capture.capabilities.regroups else None
        self._wait = wait
        self._backoff = backoff or Backoff()
        self._observer: Observer = observer or Silence()
        self._notices = Notices(self._observer)
        self._reached = Reached()
        self._fs, root = open_filesystem(changelog.uri)
        self._path = f"{root}/filler.json"
        self._thread = threading.Thread(target=self._run, name="tailrace-filler", daemon=True)
        self._closing = threading.Event()
        self._proved = threading.Event()
        self._failure: BaseException | None = None
        self._state: State = "idle"
        self._attempt = 0
        self._error: str | None = None
        self._wanted = 0
        self._target = 0
        self._recorded = 0
        self._saved = 0
        self._pending = 0
        self._unflushed: float | None = None
        self._feed: Feed | None = None
        self._kept_house = 0.0
        self._told_lag = time.monotonic()
        self._sampling = threading.Lock()
        self._sample: tuple[float, Lag] | None = None

    @classmethod
    def open(
        cls,
        capture: Capture,
        tables: Sequence[TableRef],
        *,
        uri: str,
        consumer: str,
        limits: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Filler:
        """A filler with a changelog of its own at `uri`; `limits` are arguments of `Changelog.open`."""
        idle: list[Callable[[], None]] = []

        def on_wait() -> None:
            for call in idle:
                call()

        changelog = Changelog.open(
            uri,
            owner_name=consumer,
            source=capture.identity(),
            on_wait=on_wait,
            **(limits or {}),
        )
        filler = cls(capture, changelog, tables, consumer=consumer, **settings)
        idle.append(filler.idle)
        return filler

    @property
    def changelog(self) -> Changelog:
        """What it fills."""
        return self._changelog

    def start(self) -> None:
        """Begin. Faults of the source show in `health` and `raise_if_failed`, not here."""
        if self._state != "idle":
            raise UsageError("the filler was started already")
        self._state = "connecting"
        self._thread.start()

    def acknowledge(self, position: Position) -> None:
        """The consumer has everything up to `position`. Does not block: the source hears of it soon."""
        if position.source != self._changelog.source:
            raise guard.other_source(self._changelog.source, position.source)
        if self._changelog.begun:
            self._changelog.acknowledge(position)
        self._wanted = max(self._wanted, position.version)

    def wait(self, after: int, timeout: float) -> int:
        """The changelog's end, as soon as it is beyond `after`, time is up, or the thread has ended."""
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            end = self._changelog.wait(after, max(0.0, min(left, 0.1)))
            if end > after or left <= 0.1 or not self._thread.is_alive():
                return end

    def catch_up(
        self,
        target: Position | int | None = None,
        timeout: float | None = None,
        *,
        past: int | None = None,
        enough: int | None = None,
    ) -> int:
        """Wait until the changelog holds everything up to `target`, or up to the source's head as of now.

        And until the source has been looked at: an older copy of it has no more than the changelog, either.
        Raises what ended the thread, if it ended; Transient when time is up. With `past` a full changelog
        that holds something after that version ends the wait too: only who consumes it makes room. So do
        `enough` bytes after it: who consumes them meanwhile need not do so later.
        """
        if target is None:
            target = self._capture.head()
        version = target.version if isinstance(target, Position) else target
        self.hurry(version)
        deadline = None if timeout is None else time.monotonic() + timeout
        look = 0.5 if enough is None else 0.05
        while (end := self.wait(version - 1, look)) < version or not self._proved.wait(0.02):
            self.raise_if_failed()
            if past is not None and end > past and self._proved.is_set():
                if self._state == "waiting for room":
                    break
                if enough is not None and self._changelog.bytes_after(past) >= enough:
                    break
            if self._closing.is_set() or not self._thread.is_alive():
                self.raise_if_failed()
                raise UsageError("the filler is closed")
            if deadline is not None and time.monotonic() >= deadline:
                raise Transient(f"the changelog reached {end}, not {version}, in {timeout:g} s")
        return end

    @property
    def proved(self) -> bool:
        """Whether the source was looked at: it goes on where the changelog ends, and link state is whole."""
        return self._proved.is_set()

    def prove(self) -> None:
        """Wait for that. Raises what ended the thread, if it ended."""
        while not self._proved.wait(0.02):
            self.raise_if_failed()
            if self._closing.is_set() or not self._thread.is_alive():
                self.raise_if_failed()
                raise UsageError("the filler is closed")

    def hurry(self, version: int) -> None:
        """Publish progress up to here without delay, also where it brings no rows."""
        self._target = max(self._target, version)

    def raise_if_failed(self) -> None:
        """Raise the error that ended the thread, if one did."""
        if self._failure is not None:
            raise self._failure

    def health(self) -> Health:
        """How it is, now."""
        notices = tuple(self._capture.notices())
        return Health(self._state, self._attempt, self._error, self._changelog.end, self._recorded, notices)

    def lag(self) -> Lag:
        """How far the acknowledged position trails the source; asked at most once a second."""
        with self._sampling:
            now = time.monotonic()
            if self._sample is None or now - self._sample[0] >= 1.0:
                at = Position(self._changelog.source, max(self._wanted, self._changelog.acknowledged))
                try:
                    lag = self._capture.lag(at) if self._capture.capabilities.lag else Lag()
                except TailraceError:
                    lag = Lag()
                self._sample = (now, lag)
            return self._sample[1]

    def _tell_lag(self, now: float) -> None:
        if now - self._told_lag >= LAG_SECONDS:
            self._told_lag = now
            lag = self.lag()
            self._observer.event(
                "source.lag",
                changes=lag.changes,
                bytes=lag.bytes,
                seconds=lag.seconds,
                end=self._changelog.end,
            )

    def close(self, timeout: float = 5.0) -> None:
        """End the thread, from any thread or a signal handler. The capture and the changelog stay open.

        What is appended and complete is published before, if that is quick.
        """
        self._closing.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout)
        if self._state == "idle":
            self._state = "stopped"

    def idle(self) -> None:
        """For the changelog's `on_wait`: what must go on while `append` waits for room. On the own thread."""
        if threading.current_thread() is not self._thread:
            return
        self._state = "waiting for room"
        if self._closing.is_set():
            raise _Closing
        self._serve()

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                try:
                    self._fill()
                except Transient as error:
                    self._attempt += 1
                    self._error, self._state = error.message, "retrying"
                    told(self._observer, "filler.retry", error)
                    self._closing.wait(self._backoff.delay(self._attempt))
                else:
                    break
            self._state = "stopped"
        except _Closing:
            self._state = "stopped"
        except BaseException as error:
            if self._closing.is_set():
                # The changelog or the capture was closed under it: that is what was asked for.
                self._state = "stopped"
                return
            self._failure, self._state = self._verdict(error), "failed"
            self._error = error.message if isinstance(error, TailraceError) else type(error).__name__
            told(self._observer, "filler.failed", self._failure)

    def _verdict(self, error: BaseException) -> BaseException:
        """What to say of an error: a successor moves the cursor, which looks like a lost log."""
        try:
            self._changelog.check_owner()
        except Fenced as fenced:
            return fenced
        except TailraceError:
            return error
        return error

    def _fill(self) -> None:
        begin = self._begin()
        if self._links is not None:
            self._links.begin(self._capture, begin, epoch=self._changelog.epoch, pause=self._pause)
        cutter = Cutter(self._cut, begin.version)
        feed = self._feed = Feed(
            self._capture,
            self._tables,
            consumer=self._consumer,
            start=begin,
            wait=self._wait,
            accept=self._accept,
            history=self._schemas(),
        )
        try:
            while not self._closing.is_set():
                taken = self._take(feed, cutter)
                if not taken and feed.ended:
                    return
                if not taken or (not feed.inside and (self._overdue() or feed.caught_up())):
                    self._flush()
                self._serve()
            self._finish()
        finally:
            feed.close()

    def _take(self, feed: Feed, cutter: Cutter) -> bool:
        """Append the next part; whether there was one. Nothing of it is held when the next one is made."""
        part = feed.take()
        self._state = "running"
        self._proved.set()
        if part is None:
            return False
        for piece in cutter.pieces(part):
            self._changelog.append(piece if self._links is None else self._links.complete(piece))
        self._note(part.rows)
        return True

    def _pause(self) -> None:
        """Leaves what takes long where it is to end."""
        if self._closing.is_set():
            raise _Closing

    def _schemas(self) -> SchemaHistory | None:
        if not self._capture.capabilities.schema_events:
            return None
        path = f"{self._path.rpartition('/')[0]}/{SCHEMAS}"
        source, check = self._changelog.source, self._changelog.check_owner
        return SchemaHistory(self._fs, path, source, observer=self._observer, check=check)

    def _begin(self) -> Position:
        """Where to go on, once the source is proved to be the same and not an older copy."""
        source = self._changelog.source
        guard.same_source(self._capture, source)
        self._changelog.forget_unpublished()
        self._pending, self._unflushed = 0, None
        start = self._start or self._capture.register(self._consumer)
        if not self._changelog.begun:
            self._changelog.begin(start)
        elif start.version > self._changelog.end:
            # Everything up to `start` was consumed, so what is missing before it is needed by nobody.
            self._changelog.reset(start)
        begin = Position(source, self._changelog.end)
        self._load()
        guard.not_older(self._capture, self._consumer, position=begin, acknowledged=self._recorded)
        self._changelog.acknowledge(Position(source, self._wanted))
        return begin

    def _note(self, rows: int) -> None:
        self._attempt, self._error = 0, None
        self._pending += rows
        if self._unflushed is None:
            self._unflushed = time.monotonic()

    def _overdue(self) -> bool:
        return self._unflushed is not None and time.monotonic() - self._unflushed >= FLUSH_SECONDS

    def _flush(self) -> None:
        if self._unflushed is None:
            return
        rare = time.monotonic() - self._unflushed < EMPTY_FLUSH_SECONDS
        if self._pending == 0 and rare and self._changelog.end >= self._target:
            return
        self._changelog.flush()
        self._reached.note(self._changelog.end)
        self._pending, self._unflushed = 0, None

    def _serve(self) -> None:
        """Acknowledge to the source what is durable, and tidy up once in a while."""
        durable = self._changelog.end
        # A consumer may know of positions that were not published again yet.
        wanted = durable if self._ack == "changelog" else min(self._wanted, durable)
        if wanted > self._recorded:
            try:
                position = Position(self._changelog.source, wanted)
                self._recorded = max(
                    self._recorded, self._capture.acknowledge(position, consumer=self._consumer).version
                )
            except Transient as error:
                told(self._observer, "filler.acknowledge", error)
        now = time.monotonic()
        if now - self._kept_house >= HOUSEKEEPING_SECONDS:
            self._kept_house = now
            self._notices.tell(self._capture.notices())
            self._tell_lag(now)
            self._save()
            if self._feed is not None:
                self._feed.settle(self._changelog.acknowledged)
            if self._links is not None and self._proved.is_set():
                self._links.prune(self._changelog.acknowledged)
            self._changelog.prune()

    def _finish(self) -> None:
        with contextlib.suppress(TailraceError):
            if self._pending:
                self._changelog.flush()
            self._serve()
            self._save()

    def _load(self) -> None:
        body = read_state(self._fs, self._path, KIND)
        match body:
            case None:
                return
            case {"source": str(source), "acknowledged": int(version)}:
                if source != self._changelog.source:
                    raise guard.other_source(source, self._changelog.source)
                self._recorded = self._saved = max(self._recorded, version)
                match body.get("reached") if body else None:
                    case [int(known), int() | float() as at] if self._reached.newest is None:
                        self._reached.newest = (known, at)
            case _:
                raise StateUnreadable("state lacks fields", place=self._path)

    def _save(self) -> None:
        before = self._reached.newest
        reached = self._reached.acknowledged(self._changelog.acknowledged)
        if self._recorded > self._saved or reached != before:
            body: dict[str, Any] = {"source": self._changelog.source, "acknowledged": self._recorded}
            if reached is not None:
                body["reached"] = list(reached)
            write_state(self._fs, self._path, KIND, body)
            self._saved = self._recorded

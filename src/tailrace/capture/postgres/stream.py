"""The live loop: from a slot to parts, until closed.

It begins with the questions whose answers decide whether the position can be continued: is it the same
server, is the slot there and whole and not beyond us, are the tables published as they were? Then it reads
the slot on from there; or, while a transaction runs that may be one of those already delivered, from the
slot's confirmed position, skipping what was delivered but not forgetting it (`visible.py`).

A connection that breaks, a server that falls silent and a slot that another process still holds are passing
faults: the caller begins again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence

from tailrace.capture.postgres import publication, slots
from tailrace.capture.postgres.client import Connection, no_answer, session
from tailrace.capture.postgres.config import PostgresConfig
from tailrace.capture.postgres.halts import Halts
from tailrace.capture.postgres.link import Link
from tailrace.capture.postgres.messages import frame_of, lsn_text
from tailrace.capture.postgres.publication import Member
from tailrace.capture.postgres.relations import Relations
from tailrace.capture.postgres.sentinel import Ended, Sentinel
from tailrace.capture.postgres.transactions import Assembler
from tailrace.capture.postgres.visible import Recent, settled
from tailrace.model.change import Part
from tailrace.model.errors import IdentityMismatch, LogLost, SetupMissing
from tailrace.model.position import Position
from tailrace.model.table import TableRef, TableSchema

IDENTITY_REMEDY = (
    "point the pipeline at the server its state belongs to; after a fail-over or a restored backup begin "
    "with a new state directory and a new snapshot"
)
_LOOK = 0.1
_IDENTITY = """
SELECT (SELECT system_identifier FROM pg_control_system())::text, pg_is_in_recovery(),
       (SELECT oid::int8 FROM pg_catalog.pg_database WHERE datname = current_database())
"""
# The running timeline is in the name of the log's file; the control file's is that of the last checkpoint.
_TIMELINE = "SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int"
_PATIENCE = "SELECT setting::int8 FROM pg_catalog.pg_settings WHERE name = 'wal_sender_timeout'"


def identity(connection: Connection, config: PostgresConfig) -> str:
    """The cluster, its timeline and the database: what the positions of a log belong to."""
    system, recovering, database = connection.execute(_IDENTITY).fetchone() or ("", False, 0)
    if recovering:
        raise IdentityMismatch(f"{config.name} is a standby", remedy="name the primary in the URL")
    (timeline,) = connection.execute(_TIMELINE).fetchone() or (0,)
    return f"postgres:{system}:{timeline}:{database}"


class Stream:
    """One run of `live`. `acknowledge` may be called between two parts."""

    def __init__(
        self,
        config: PostgresConfig,
        recent: Recent,
        halts: Halts,
        closed: threading.Event,
        *,
        start: Position,
        tables: Sequence[TableRef],
        consumer: str,
        accept: Mapping[TableRef, str],
        remembered: Mapping[TableRef, Sequence[TableSchema]],
    ) -> None:
        self._config, self._recent, self._halts, self._closed = config, recent, halts, closed
        self._start, self._tables, self._accept = start, list(tables), accept
        self._remembered = remembered
        self._slot = slots.slot_name(config, consumer)
        self._sentinel: Sentinel | None = None
        self._recorded = 0

    @property
    def source(self) -> str:
        """The identity its positions have."""
        return self._start.source

    @property
    def reading(self) -> bool:
        """Whether the slot is being read."""
        return self._sentinel is not None

    def head(self) -> Position | None:
        """Where the log ends, asked over the open connection; None where there is none."""
        sentinel = self._sentinel
        if sentinel is None:
            return None
        try:
            return self._start.at(sentinel.ask(slots.end))
        except Ended:
            return None

    def acknowledge(self, version: int) -> int:
        """Hand over what is durable; what the server surely keeps on record through a crash."""
        if self._sentinel is not None:
            self._sentinel.acknowledge(version)
            self._recorded = max(self._recorded, self._sentinel.kept)
        return min(self._recorded, version)

    def run(self, wait: float) -> Iterator[Part | None]:
        """Parts until closed; None whenever nothing came for `wait` seconds."""
        with session(self._config) as connection:
            members, slot = self._begin(connection)
            (patience,) = connection.execute(_PATIENCE).fetchone() or (0,)
            begin = self._start.version if settled(connection) else slot.confirmed or 0
        self._recorded = slot.restart or 0
        confirmed = slot.confirmed or 0
        self._recent.begin(begin)
        link = Link(self._config, self._slot, begin=begin)
        interval = min(self._config.status_interval, patience / 4000) if patience else 10.0
        sentinel = self._sentinel = Sentinel(
            self._config,
            link,
            self._recent,
            slot=self._slot,
            members=members,
            halts=self._halts,
            confirmed=confirmed,
            interval=interval,
        )
        relations = Relations(
            self._config, members, self._halts, self._recent, self._remembered, ask=sentinel.ask
        )
        assembler = Assembler(
            self._start,
            relations.watch,
            self._recent.note,
            spill_bytes=self._config.spill_bytes,
            spill_directory=self._config.spill_directory,
        )
        try:
            yield from self._read(link, assembler, sentinel, wait)
        finally:
            self._sentinel = None
            sentinel.close()
            link.close()
            assembler.close()

    def _read(
        self, link: Link, assembler: Assembler, sentinel: Sentinel, wait: float
    ) -> Iterator[Part | None]:
        position = self._start
        deadline = time.monotonic() + wait
        asked = False
        while not self._closed.is_set():
            if sentinel.failure is not None:
                raise sentinel.failure
            left = deadline - time.monotonic()
            received = link.receive(self._config.batch_bytes, max(0.0, min(left, _LOOK)))
            if received:
                asked = False
                frame, end, wanted = frame_of(received)
                if wanted:
                    link.status(sentinel.flushed)
                    sentinel.look()
                if len(frame):
                    for part in assembler.feed(frame):
                        if part.complete:
                            position = part.position
                        yield part
                        if self._closed.is_set():
                            return
                    link.heard = time.monotonic()
                    deadline = time.monotonic() + wait
                if end and assembler.between:
                    self._recent.reached(end)
                # Not held while the next messages come.
                del received, frame
                if end > position.version and assembler.between:
                    position = position.at(end)
                    yield Part((), position)
                    link.heard = time.monotonic()
                    deadline = time.monotonic() + wait
                continue
            asked = self._patience(link, sentinel, asked)
            if time.monotonic() >= deadline:
                suspended = time.monotonic()
                yield None
                # What the caller took its time for is not the server's silence.
                link.heard += time.monotonic() - suspended
                deadline = time.monotonic() + wait

    def _silence(self, link: Link) -> float:
        return time.monotonic() - link.heard

    def _patience(self, link: Link, sentinel: Sentinel, asked: bool) -> bool:
        """A server that is silent is asked for a sign of life, and given up if it gives none."""
        silence = self._silence(link)
        if silence >= self._config.timeout:
            raise no_answer(self._config, silence)
        if silence >= self._config.timeout / 3 and not asked:
            link.status(sentinel.flushed, reply=True)
            return True
        return asked

    def _begin(self, connection: Connection) -> tuple[dict[TableRef, Member], slots.Slot]:
        """Can this position be continued? Never a gap: one of the errors otherwise."""
        source = identity(connection, self._config)
        if source != self._start.source:
            raise IdentityMismatch(
                f"{self._config.name} is not the server and timeline this position belongs to",
                remedy=IDENTITY_REMEDY,
            )
        found = publication.read(connection, self._config.publication)
        if found is None:
            raise SetupMissing(
                f"there is no publication {self._config.publication} in {self._config.name}",
                remedy="tailrace setup",
            )
        if not found.complete:
            raise SetupMissing(
                f"publication {self._config.publication} does not publish every operation by root",
                remedy="tailrace setup, then tailrace snapshot --table '*'",
            )
        slot = slots.find(connection, self._slot)
        if slot is None:
            raise slots.missing(self._slot)
        slots.checked(slot, connection)
        start, newest = self._start.version, slots.end(connection)
        if start > newest:
            raise IdentityMismatch(
                f"{self._config.name} is older than the state (restored from a backup?): "
                f"it is at {lsn_text(newest)}, the state at {lsn_text(start)}",
                remedy=IDENTITY_REMEDY,
            )
        if (slot.confirmed or 0) > start:
            raise LogLost(
                f"the replication slot {slot.name} begins at {lsn_text(slot.confirmed or 0)}, so the log "
                f"after {lsn_text(start)} may be gone (was the slot made again?)",
                remedy=LogLost.ANEW,
            )
        return self._halts.begin(self._tables, found, start, self._accept), slot

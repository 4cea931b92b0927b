"""From frames of messages to parts: whole transactions in commit order, large ones in parts.

The usual frame holds many small transactions, decoded together and cut apart again by slices. What is not
usual (a transaction larger than a frame, one with a changed table or a TRUNCATE in it, one the server streams
while it runs) waits in a `Spool` for its commit. The unfinished end of a frame is put before the next one.

Rows are numbered within their transaction over everything that came of it, whichever tables are watched, so
that a repeated delivery numbers them alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.capture.postgres import decode, messages
from tailrace.capture.postgres.decode import Meta
from tailrace.capture.postgres.messages import Commit, Frame, Ints, Relation, broken
from tailrace.capture.postgres.spool import Spool
from tailrace.model.change import ChangeBatch, Ends, Part
from tailrace.model.position import MAX_VERSION, Position
from tailrace.model.table import TableSchema

_CARRY_BYTES = 1 << 20
_STREAM_SHIFT = 4
Watch = Callable[[Relation], TableSchema | None]
Committed = Callable[[Ints, Ints], None]


class Assembler:
    """One connection's stream. `watch` gives a table's schema, None where nobody asked for the table.

    `committed` is told the positions and ids of transactions before their parts are handed out.
    """

    def __init__(
        self,
        start: Position,
        watch: Watch,
        committed: Committed,
        *,
        spill_bytes: int,
        spill_directory: str | None = None,
    ) -> None:
        self._start = start
        self._watch = watch
        self._committed = committed
        self._spill_bytes = spill_bytes
        self._directory = spill_directory
        self._relations: dict[int, Relation] = {}
        self._carried: Frame | None = None
        self._open: Spool | None = None
        self._begun = (0, 0, 0)
        self._streams: dict[int, Spool] = {}
        self._streaming: Spool | None = None
        self._last = 0

    @property
    def between(self) -> bool:
        """Whether no transaction has been received in part (one that is streamed has not ended yet)."""
        return self._carried is None and self._open is None and self._streaming is None

    def feed(self, frame: Frame) -> Iterator[Part]:
        """The parts that are complete with these messages."""
        if self._carried is not None:
            frame, self._carried = messages.joined((self._carried, frame)), None
        done = 0
        for index in frame.special().tolist():
            if done < index:
                yield from self._run(frame.slice(done, index), last=False)
            yield from self._special(frame, index)
            done = index + 1
        if done < len(frame):
            yield from self._run(frame.slice(done, len(frame)), last=True)

    def close(self) -> None:
        """Forget what is open."""
        for spool in (self._open, *self._streams.values()):
            if spool is not None:
                spool.close()
        self._open, self._streams, self._streaming, self._carried = None, {}, None, None

    def _run(self, frame: Frame, *, last: bool) -> Iterator[Part]:
        """Messages among which are only rows, begins and commits."""
        if self._streaming is not None:
            self._put(self._streaming, frame)
            return
        commits = np.flatnonzero(frame.kinds == messages.COMMIT)
        if self._open is not None:
            if not len(commits):
                self._put(self._open, frame)
                return
            end = int(commits[0])
            self._put(self._open, frame.slice(0, end))
            commit_at, commit_end = messages.parse_commit(frame.message(end))
            begun_at, ts, xid = self._begun
            if commit_at != begun_at:
                raise broken("a transaction that ends as another one")
            spool, self._open = self._open, None
            yield from self._deliver(spool, Commit(commit_end, xid, ts), 0)
            frame, commits = frame.slice(end + 1, len(frame)), commits[1:] - end - 1
        if len(commits):
            whole = int(commits[-1]) + 1
            yield from self._plain(frame.slice(0, whole))
            frame = frame.slice(whole, len(frame))
        if not len(frame):
            return
        if frame.kinds[0] != messages.BEGIN:
            raise broken("a change outside of a transaction")
        if last and frame.nbytes <= _CARRY_BYTES:
            self._carried = frame
            return
        self._begun = messages.parse_begin(frame.message(0))
        self._open = Spool(self._directory)
        self._put(self._open, frame.slice(1, len(frame)))

    def _put(self, spool: Spool, frame: Frame) -> None:
        if len(frame):
            spool.append(frame)
        held = spool.held + sum(other.held for other in self._streams.values() if other is not spool)
        if held > self._spill_bytes:
            spool.spill()

    def _special(self, frame: Frame, index: int) -> Iterator[Part]:
        kind, message = int(frame.kinds[index]), frame.message(index)
        if kind in (messages.RELATION, messages.TRUNCATE):
            spool = self._streaming or self._open
            if spool is not None:
                self._put(spool, frame.slice(index, index + 1))
            elif kind == messages.RELATION:
                self._learn(message, 0)
            else:
                raise broken("a change outside of a transaction")
        elif kind == messages.STREAM_START:
            if self._open is not None or self._streaming is not None:
                raise broken("a streamed transaction inside of another one")
            xid = messages.parse_stream_start(message)
            self._streaming = self._streams.setdefault(xid, Spool(self._directory))
        elif kind == messages.STREAM_STOP:
            self._streaming = None
        elif self._streaming is not None:
            raise broken("the end of a streamed transaction inside of its own block")
        else:
            yield from self._streamed(kind, message)

    def _streamed(self, kind: int, message: bytes) -> Iterator[Part]:
        """The end of a streamed transaction, or of a part of it."""
        if kind == messages.STREAM_COMMIT:
            commit = messages.parse_stream_commit(message)
            spool = self._streams.pop(commit.xid, None)
            if spool is None:
                raise broken("the commit of a streamed transaction that never began")
            yield from self._deliver(spool, commit, _STREAM_SHIFT)
            return
        xid, part = messages.parse_stream_abort(message)
        # A transaction may be rolled back before anything of it was streamed.
        if xid == part and (aborted := self._streams.pop(xid, None)) is not None:
            aborted.close()
        elif xid in self._streams:
            self._streams[xid].aborted.add(part)

    def _note(self, ends: npt.NDArray[Any], xids: Ints) -> None:
        """Transactions come in the order of their commits, or something is badly wrong."""
        if int(ends[0]) <= self._last or int(ends[-1]) > MAX_VERSION or (np.diff(ends) <= 0).any():
            raise broken("commits that are out of order")
        self._last = int(ends[-1])
        self._committed(ends.astype(np.int64), xids)

    def _learn(self, message: bytes, shift: int) -> None:
        relation = messages.parse_relation(message, shift)
        self._relations[relation.oid] = relation

    def _relation(self, oid: int) -> tuple[Relation, TableSchema | None]:
        relation = self._relations.get(oid)
        if relation is None:
            raise broken("a change of a table that was never described")
        return relation, self._watch(relation)

    def _plain(self, frame: Frame) -> Iterator[Part]:
        """Whole small transactions, many at once."""
        found = messages.transactions(frame)
        self._note(found.ends, found.xids)
        rows = np.flatnonzero((frame.kinds != messages.BEGIN) & (frame.kinds != messages.COMMIT))
        fresh = found.ends > self._start.version
        if not fresh.all():
            rows = rows[fresh[found.of_message[rows]]]
        if not fresh.any():
            return
        names = decode.names_of(found.xids)
        batches: list[ChangeBatch] = []
        counts = np.zeros(len(found.ends), np.int64)
        for which, relation, table in self._by_table(frame, rows, 0):
            of = found.of_message[which]
            meta = Meta(
                found.ends[of], which - found.begins[of] - 1, names.take(pa.array(of)), found.times[of]
            )
            batches.append(decode.changes(frame, which, shift=0, relation=relation, table=table, meta=meta))
            counts += np.bincount(of, minlength=len(counts))
        kept = np.flatnonzero(counts)
        last = len(counts) - 1
        if not len(kept) or kept[-1] != last:
            # The source moved on, whether or not the last transactions touched a watched table.
            kept = np.append(kept, last)
        ends = Ends(found.ends[kept].astype(np.int64), np.cumsum(counts[kept]))
        position = Position(self._start.source, int(found.ends[last]))
        yield Part(tuple(batches), position, ends=ends if len(kept) > 1 else None)

    def _by_table(self, frame: Frame, rows: Ints, shift: int) -> Iterator[tuple[Ints, Relation, TableSchema]]:
        """The rows of each watched table."""
        if ((frame.ends[rows] - frame.starts[rows]) < 5 + shift).any():
            raise broken("a change ends too early")
        oids = frame.words[frame.starts[rows] + 1 + shift]
        several = np.unique(oids)
        for oid in several.tolist():
            relation, table = self._relation(oid)
            if table is not None:
                yield rows if len(several) == 1 else rows[oids == oid], relation, table

    def _deliver(self, spool: Spool, commit: Commit, shift: int) -> Iterator[Part]:
        """A transaction that waited for its commit, in parts: all but the last are incomplete."""
        waiting: tuple[ChangeBatch, ...] = ()
        seq = 0
        try:
            self._note(np.array([commit.end], np.uint64), np.array([commit.xid]))
            position = Position(self._start.source, commit.end) if commit.end > self._start.version else None
            for frame in spool.frames():
                batches, seq = self._spooled(
                    frame, spool.aborted, commit, shift=shift, seq=seq, wanted=position is not None
                )
                # What is large is not held while others are written or read.
                del frame
                if position is not None and batches:
                    if waiting:
                        yield Part(waiting, position, complete=False)
                    waiting = batches
                del batches
        finally:
            spool.close()
        if position is not None:
            yield Part(waiting, position)

    def _spooled(
        self, frame: Frame, aborted: set[int], commit: Commit, *, shift: int, seq: int, wanted: bool
    ) -> tuple[tuple[ChangeBatch, ...], int]:
        batches: list[ChangeBatch] = []
        done = 0
        for index in [*frame.special().tolist(), len(frame)]:
            rows = np.arange(done, index)
            if aborted and len(rows):
                rows = rows[~np.isin(frame.words[frame.starts[rows] + 1], list(aborted))]
            if len(rows) and wanted:
                numbers = np.arange(seq, seq + len(rows))
                for which, relation, table in self._by_table(frame, rows, shift):
                    meta = _meta(commit, numbers[np.searchsorted(rows, which)])
                    batches.append(
                        decode.changes(frame, which, shift=shift, relation=relation, table=table, meta=meta)
                    )
            seq += len(rows)
            if index < len(frame):
                message = frame.message(index)
                if frame.kinds[index] == messages.RELATION:
                    self._learn(message, shift)
                elif not (shift and int.from_bytes(message[1:5], "big") in aborted):
                    for oid in messages.parse_truncate(message, shift):
                        _, truncated = self._relation(oid)
                        if truncated is not None and wanted:
                            batches.append(decode.truncation(truncated, _meta(commit, np.array([seq]))))
                        seq += 1
            done = index + 1
        return tuple(batches), seq


def _meta(commit: Commit, seq: Ints) -> Meta:
    count = len(seq)
    return Meta(
        np.full(count, commit.end, np.int64),
        seq.astype(np.int64),
        pa.repeat(pa.scalar(str(commit.xid)), count),
        np.full(count, commit.ts, np.int64),
    )

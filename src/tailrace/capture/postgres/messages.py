"""pgoutput's messages: many as one frame, and the rare ones taken apart one by one. Pure.

A `Frame` holds messages one behind the other in a single buffer, so that whatever is common (rows, begins,
commits) is read for all of them at once with numpy. Nothing here trusts a length: it is compared with the
message it stands in before anything is read or made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tailrace.model.errors import DataError

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

BEGIN, COMMIT, RELATION, TRUNCATE = (ord(c) for c in "BCRT")
INSERT, UPDATE, DELETE = (ord(c) for c in "IUD")
STREAM_START, STREAM_STOP, STREAM_COMMIT, STREAM_ABORT = (ord(c) for c in "SEcA")
# Origins, type names and logical messages say nothing about rows.
_IGNORED = np.frombuffer(b"OYM", np.uint8)
_SPECIAL = np.frombuffer(b"RTSEcA", np.uint8)
_KNOWN = np.frombuffer(b"BCIUDRTSEcAOYM", np.uint8)
_PAD = bytes(8)
_PADDING = np.frombuffer(_PAD, np.uint8)
_HEADER = 25
_EPOCH = 946_684_800_000_000
_LATEST = 1 << 60


def broken(what: str) -> DataError:
    """The error of a stream that is not what the protocol promises."""
    return DataError(
        f"the replication stream is damaged: {what}",
        remedy="start again: the log is read once more from the last acknowledged transaction",
    )


def lsn_text(version: int) -> str:
    """A log position as the server writes it."""
    return f"{version >> 32:X}/{version & 0xFFFFFFFF:X}"


@dataclass(frozen=True)
class Frame:
    """Message i is `data[starts[i]:ends[i]]`, at least one byte; eight bytes more follow the last."""

    data: Bytes
    starts: Ints
    ends: Ints

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def nbytes(self) -> int:
        """Bytes from the first message to the last."""
        return int(self.ends[-1] - self.starts[0]) if len(self) else 0

    @cached_property
    def kinds(self) -> Bytes:
        """The first byte of each message."""
        return self.data[self.starts]

    @cached_property
    def words(self) -> npt.NDArray[Any]:
        """The four-byte number that begins at each byte."""
        return np.ndarray((len(self.data) - 3,), ">u4", buffer=self.data.data, strides=(1,))

    @cached_property
    def longs(self) -> npt.NDArray[Any]:
        """The eight-byte number that begins at each byte."""
        return np.ndarray((len(self.data) - 7,), ">i8", buffer=self.data.data, strides=(1,))

    def special(self) -> Ints:
        """The messages that are neither rows nor the bounds of a plain transaction."""
        return np.flatnonzero(np.isin(self.kinds, _SPECIAL))

    def slice(self, first: int, last: int) -> Frame:
        """Some messages of it, without copying."""
        return Frame(self.data, self.starts[first:last], self.ends[first:last])

    def message(self, index: int) -> bytes:
        """One message."""
        return self.data[self.starts[index] : self.ends[index]].tobytes()

    def region(self) -> Bytes:
        """The bytes from the first message to the last, with whatever stands between them; no copy."""
        return self.data[self.starts[0] : self.ends[-1]] if len(self) else self.data[:0]


def joined(frames: Sequence[Frame]) -> Frame:
    """The messages of all of them, in a buffer of their own."""
    regions = [frame.region() for frame in frames]
    at = 0
    starts, ends = [], []
    for frame, region in zip(frames, regions, strict=True):
        if len(frame):
            shift = at - frame.starts[0]
            starts.append(frame.starts + shift)
            ends.append(frame.ends + shift)
        at += len(region)
    nothing = np.empty(0, np.int64)
    data = np.concatenate((*regions, _PADDING))
    return Frame(data, np.concatenate((nothing, *starts)), np.concatenate((nothing, *ends)))


def room(size: int) -> Bytes:
    """A buffer for a region of so many bytes, and what must follow it in a frame."""
    made = np.empty(size + len(_PAD), np.uint8)
    made[size:] = 0
    return made


class Received:
    """CopyBoth messages, one behind the other, and the length of each.

    Copied as they come: kept as objects they would cost as much again, most of it the garbage collector's.
    """

    def __init__(self, messages: Iterable[bytes] = ()) -> None:
        self.data = bytearray()
        self.lengths: list[int] = []
        for message in messages:
            self.data += message
            self.lengths.append(len(message))

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[bytes]:
        at = 0
        for length in self.lengths:
            yield bytes(self.data[at : at + length])
            at += length


def frame_of(received: Received) -> tuple[Frame, int, bool]:
    """What CopyBoth messages hold: the messages of pgoutput, the log's end as a keepalive that is the very
    last told it (else 0), and whether the server wants an answer. Nothing can be added to them any more."""
    lengths = np.array(received.lengths, np.int64)
    received.data += _PAD
    data = np.frombuffer(received.data, np.uint8)
    ends = np.cumsum(lengths, dtype=np.int64)
    starts = ends - lengths
    if len(lengths) and int(lengths.min()) < 1:
        raise broken("an empty message")
    outer = data[starts]
    keepalive = outer == ord("k")
    if not (keepalive | (outer == ord("w"))).all():
        raise broken("an unknown kind of message")
    end, wanted = 0, False
    if keepalive.any():
        alive = np.flatnonzero(keepalive)
        if not (lengths[alive] == 18).all():
            raise broken("a keepalive of the wrong length")
        wanted = bool(data[starts[alive] + 17].any())
        if alive[-1] == len(lengths) - 1:
            end = int.from_bytes(data[starts[-1] + 1 : starts[-1] + 9].tobytes(), "big")
        starts, ends, lengths = starts[~keepalive], ends[~keepalive], lengths[~keepalive]
    if len(lengths) and int(lengths.min()) <= _HEADER:
        raise broken("a message without a body")
    frame = Frame(data, starts + _HEADER, ends)
    if not np.isin(frame.kinds, _KNOWN).all():
        raise broken("an unknown kind of change")
    ignored = np.isin(frame.kinds, _IGNORED)
    if ignored.any():
        frame = Frame(data, frame.starts[~ignored], frame.ends[~ignored])
    return frame, end, wanted


@dataclass(frozen=True)
class RelationColumn:
    """A column as a Relation message has it; `key` says that it is part of the replica identity."""

    name: str
    type_oid: int
    typmod: int
    key: bool


@dataclass(frozen=True)
class Relation:
    """A table as the log describes it; `identity` is `d`, `n`, `f` or `i`."""

    oid: int
    namespace: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True)
class Commit:
    """The end of a transaction: where its commit record ends, its id and its time in microseconds."""

    end: int
    xid: int
    ts: int


class _Reader:
    """Takes one message apart, from left to right."""

    def __init__(self, message: bytes, at: int) -> None:
        self._message, self._at = message, at

    def take(self, count: int) -> bytes:
        taken = self._message[self._at : self._at + count]
        if len(taken) != count:
            raise broken("a message ends too early")
        self._at += count
        return taken

    def number(self, width: int, *, signed: bool = False) -> int:
        return int.from_bytes(self.take(width), "big", signed=signed)

    def time(self) -> int:
        """Microseconds since 1970; the wire counts them from 2000."""
        told = self.number(8, signed=True)
        if abs(told) > _LATEST:
            raise broken("a time that is none")
        return told + _EPOCH

    def text(self) -> str:
        end = self._message.find(b"\0", self._at)
        if end < 0:
            raise broken("a name without an end")
        raw, self._at = self._message[self._at : end], end + 1
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise broken("a name that is not UTF-8") from None


def parse_relation(message: bytes, shift: int) -> Relation:
    """A Relation message; `shift` is 4 inside a streamed transaction, which puts its id in front."""
    reader = _Reader(message, 1 + shift)
    oid, namespace, name = reader.number(4), reader.text(), reader.text()
    identity = reader.take(1).decode("latin-1")
    columns = []
    for _ in range(reader.number(2)):
        key = bool(reader.number(1) & 1)
        columns.append(RelationColumn(reader.text(), reader.number(4), reader.number(4, signed=True), key))
    # The catalog's own schema has an empty name on the wire.
    return Relation(oid, namespace or "pg_catalog", name, identity, tuple(columns))


def parse_truncate(message: bytes, shift: int) -> list[int]:
    """The tables of a Truncate message."""
    reader = _Reader(message, 1 + shift)
    count = reader.number(4)
    reader.number(1)
    if count * 4 > len(message):
        raise broken("a truncation of more tables than it names")
    return [reader.number(4) for _ in range(count)]


def parse_begin(message: bytes) -> tuple[int, int, int]:
    """Where the commit record begins, the time, and the transaction's id."""
    reader = _Reader(message, 1)
    return reader.number(8), reader.time(), reader.number(4)


def parse_commit(message: bytes) -> tuple[int, int]:
    """Where the commit record begins, and where it ends."""
    reader = _Reader(message, 2)
    return reader.number(8), reader.number(8)


def parse_stream_start(message: bytes) -> int:
    """The transaction whose changes follow."""
    return _Reader(message, 1).number(4)


def parse_stream_commit(message: bytes) -> Commit:
    """The end of a streamed transaction."""
    reader = _Reader(message, 1)
    xid = reader.number(4)
    reader.take(9)
    return Commit(reader.number(8), xid, reader.time())


def parse_stream_abort(message: bytes) -> tuple[int, int]:
    """The streamed transaction, and the part of it that was rolled back: itself, or one within it."""
    reader = _Reader(message, 1)
    return reader.number(4), reader.number(4)


@dataclass(frozen=True)
class Transactions:
    """The bounds of plain transactions, by columns: one entry a transaction."""

    begins: Ints
    ends: Ints
    xids: Ints
    times: Ints
    of_message: Ints


def transactions(frame: Frame) -> Transactions:
    """The transactions of a frame that holds only whole ones."""
    begins, commits = np.flatnonzero(frame.kinds == BEGIN), np.flatnonzero(frame.kinds == COMMIT)
    nested = (
        len(begins) != len(commits)
        or (len(begins) and (begins[0] != 0 or commits[-1] != len(frame) - 1))
        or not np.array_equal(begins[1:], commits[:-1] + 1)
    )
    if nested:
        raise broken("a transaction without its end")
    lengths = frame.ends - frame.starts
    if not ((lengths[begins] == 21).all() and (lengths[commits] == 26).all()):
        raise broken("a begin or a commit of the wrong length")
    first, last = frame.starts[begins], frame.starts[commits]
    if not np.array_equal(frame.longs[first + 1], frame.longs[last + 2]):
        raise broken("a transaction that ends as another one")
    times = frame.longs[first + 9].astype(np.int64)
    if (times > _LATEST).any() or (times < -_LATEST).any():
        raise broken("a time that is none")
    return Transactions(
        begins,
        frame.longs[last + 10].astype(np.int64),
        frame.words[first + 17].astype(np.int64),
        times + _EPOCH,
        np.cumsum(frame.kinds == BEGIN) - 1,
    )

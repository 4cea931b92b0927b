"""Documents that a sink rejected, written down so that none is lost: listed, and built again on request.

A letter is a line of JSON: index, id, version, reason, time. It holds no document: that is built anew from
the source, by its id, when somebody retries it. Several processes may append and retry at once; a lock beside
the file takes turns. A line is whole or is not there: what a crash left of one is cut off by the next writer.
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from tailrace.model.errors import StateUnreadable, Transient
from tailrace.sinks.contract import Rejection

# In the state directory, beside the rows that mirrors passed over.
DIRECTORY = "deadletters"
NAME = "documents.ndjson"
# Takes an index and ids, builds and writes their documents, and returns what is rejected still.
Rebuild = Callable[[str, Sequence[str]], Sequence[Rejection]]


@dataclass(frozen=True)
class DeadLetter:
    """A document that was rejected: of which version, why, and when (ISO 8601, UTC)."""

    index: str
    id: str
    version: int
    reason: str
    time: str


@dataclass(frozen=True)
class Retried:
    """What a retry did: how many documents are written now, and which are rejected still."""

    written: int
    rejected: tuple[DeadLetter, ...]


class DeadLetters:
    """The dead letters of a pipeline, in a file of their own in `directory`."""

    def __init__(
        self, directory: str | Path, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._directory = Path(directory)
        self._now = now

    @property
    def path(self) -> Path:
        """The file."""
        return self._directory / NAME

    def clock(self) -> str:
        """The time as letters have it."""
        return self._time()

    def append(self, index: str, version: int, rejected: Sequence[Rejection]) -> None:
        """Write rejections down, durably, all of them or none."""
        if not rejected:
            return
        time = self._time()
        data = b"".join(_line(DeadLetter(index, one.id, version, one.reason, time)) for one in rejected)
        with self._locked():
            self._append(data)

    def letters(self, index: str | None = None) -> list[DeadLetter]:
        """The letters, the oldest first; of a document that was rejected again only the last."""
        found: dict[tuple[str, str], DeadLetter] = {}
        for letter in self._read():
            if index in (None, letter.index):
                found.pop((letter.index, letter.id), None)
                found[letter.index, letter.id] = letter
        return list(found.values())

    def forget(
        self, index: str, ids: Collection[str] | None = None, *, older: tuple[int, str] | None = None
    ) -> None:
        """The documents of these ids are built again, or all of the index: their letters are void.

        With `older` only letters before this version and time.
        """
        if ids is not None and not ids:
            return

        def void(one: DeadLetter) -> bool:
            named = one.index == index and (ids is None or one.id in ids)
            return named and (older is None or (one.version, one.time) < older)

        with self._locked():
            before = list(self._read())
            kept = [one for one in before if not void(one)]
            if len(kept) < len(before):
                self._replace(b"".join(map(_line, kept)))

    def retry(self, rebuild: Rebuild, index: str | None = None, ids: Sequence[str] | None = None) -> Retried:
        """Build the documents again, an index at a time, and forget the letters of those that were written.

        All letters, or those of an index, or some ids of it. Where `rebuild` raises, the letters of that
        index stay. Letters that come meanwhile stay too.
        """
        wanted = None if ids is None else set(ids)
        letters = [one for one in self.letters(index) if wanted is None or one.id in wanted]
        written = 0
        rejected: list[DeadLetter] = []
        for name in dict.fromkeys(one.index for one in letters):
            tried = {one.id: one for one in letters if one.index == name}
            reasons = {one.id: one.reason for one in rebuild(name, list(tried))}
            time = self._time()
            still = [
                replace(tried[id_], reason=reason, time=time)
                for id_, reason in reasons.items()
                if id_ in tried
            ]
            self._settle(tried, still)
            written += len(tried) - len(still)
            rejected += still
        return Retried(written, tuple(rejected))

    def _settle(self, tried: dict[str, DeadLetter], still: Sequence[DeadLetter]) -> None:
        """Replace what was tried by what is rejected still. Newer letters of the same documents stay."""
        with self._locked():
            kept = [
                one
                for one in self._read()
                if (before := tried.get(one.id)) is None
                or before.index != one.index
                or (one.version, one.time) > (before.version, before.time)
            ]
            self._replace(b"".join(map(_line, [*kept, *still])))

    def _time(self) -> str:
        return self._now().isoformat(timespec="microseconds").replace("+00:00", "Z")

    def _read(self) -> Iterator[DeadLetter]:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise StateUnreadable(
                f"the dead letters cannot be read: {error.strerror}",
                remedy="make the file readable for this process",
                place=str(self.path),
            ) from error
        # Behind the last line break is at most what a crash left of a line that nobody relies on.
        for number, line in enumerate(data.split(b"\n")[:-1], 1):
            try:
                yield DeadLetter(**json.loads(line))
            except (ValueError, TypeError):
                raise StateUnreadable(
                    f"line {number} of the dead letters is damaged",
                    remedy="mend or remove the line; its document can be built again by its id",
                    place=str(self.path),
                ) from None

    def _append(self, data: bytes) -> None:
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                size = _whole(descriptor)
                os.ftruncate(descriptor, size)
                try:
                    _write_all(descriptor, data)
                    os.fsync(descriptor)
                except OSError:
                    os.ftruncate(descriptor, size)
                    raise
            finally:
                os.close(descriptor)
            _sync(self._directory)
        except OSError as error:
            raise self._unwritable(error) from error

    def _replace(self, data: bytes) -> None:
        temporary = self._directory / f"{NAME}.{uuid.uuid4().hex}.tmp"
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                _write_all(descriptor, data)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            temporary.replace(self.path)
            _sync(self._directory)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise self._unwritable(error) from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._directory / f"{NAME}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _unwritable(self, error: OSError) -> Transient:
        return Transient(
            f"the dead letters cannot be written: {error.strerror}",
            remedy="free space or mend the directory; it is retried",
            place=str(self.path),
        )


def _line(letter: DeadLetter) -> bytes:
    return json.dumps(asdict(letter), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _whole(descriptor: int) -> int:
    """The length of the file up to the end of its last whole line."""
    end = os.fstat(descriptor).st_size
    while end:
        begin = max(0, end - 65536)
        block = os.pread(descriptor, end - begin, begin)
        at = block.rfind(b"\n")
        if at >= 0:
            return begin + at + 1
        end = begin
    return 0


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

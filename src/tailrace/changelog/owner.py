"""One owner a state directory, with an epoch that fences whoever owned it before.

Each takeover creates `owner/<epoch>.json`, one higher than the last. The highest is the owner; it is never
removed, only those below it are. On local disk it is created by link(2), which exactly one of several
processes can win. Elsewhere the last put wins, and the others see it when they read it back.

The heartbeat is the file's modification time on local disk, which needs no free space and cannot tear, and a
field of the file elsewhere; zero says released. A heartbeat that looks old because a clock jumped is watched
before it is believed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
import time
import uuid
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pyarrow.fs as pafs

from tailrace.changelog import filesystem, statefile
from tailrace.model.errors import Fenced, StateOwned, StateUnreadable, TailraceError

KIND = "owner"
FOLDER = "owner"
_POLL = 0.05
_SETTLE = 0.2


@dataclass(frozen=True)
class Owner:
    """Who owns, or owned last. `place` tells machines, boots and containers apart."""

    epoch: int
    name: str
    host: str
    place: str
    pid: int
    started: str
    since: float
    nonce: str
    heartbeat: float

    @property
    def dead(self) -> bool:
        """Surely gone: it ran here, and its process does not any more."""
        return self.place == _place() and _process_start(self.pid) != self.started

    def describe(self) -> str:
        """A phrase that names the process."""
        since = datetime.fromtimestamp(self.since, UTC).isoformat(timespec="seconds")
        return f"process {self.pid} on {self.host} ({self.name}, since {since})"


def read_owner(fs: pafs.FileSystem, root: str) -> Owner | None:
    """The newest owner of a state directory, alive or not."""
    while True:
        epoch = _newest(fs, f"{root}/{FOLDER}")
        if epoch is None:
            return None
        path = _path(root, epoch)
        body = statefile.read_state(fs, path, KIND)
        if body is None:
            # Removed by a newer owner between the listing and the read.
            continue
        try:
            owner = Owner(**body)
            if filesystem.is_local(fs):
                owner = Owner(**{**body, "heartbeat": Path(path).stat().st_mtime})
        except FileNotFoundError:
            continue
        except TypeError as error:
            raise StateUnreadable("the owner file lacks fields", place=path) from error
        return owner


class Ownership:
    """The right to write into a state directory, until `release` or until another process takes it."""

    def __init__(self, fs: pafs.FileSystem, root: str, owner: Owner, lease: float) -> None:
        self._fs = fs
        self._root = root
        self._owner = owner
        self._path = _path(root, owner.epoch)
        self._interval = 0.05 if filesystem.is_local(fs) else 1.0
        self._lost = False
        self._checked = time.monotonic()
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._beat_until_stopped, args=(lease / 5,), name="tailrace-owner", daemon=True
        )
        self._thread.start()

    @property
    def epoch(self) -> int:
        """Grows by one at every takeover."""
        return self._owner.epoch

    @classmethod
    def acquire(
        cls,
        fs: pafs.FileSystem,
        root: str,
        name: str,
        *,
        wait: float = 5.0,
        lease: float = 15.0,
        floor: int = 0,
    ) -> Ownership:
        """Become the owner; StateOwned where another process is and does not release within `wait` seconds.

        A dead owner of this machine is succeeded at once, a frozen one or one elsewhere when its heartbeat
        is older than `lease`. The epoch is above `floor` in any case.
        """
        filesystem.make_directory(fs, f"{root}/{FOLDER}")
        began = seen = time.monotonic()
        heartbeat: tuple[int, float] | None = None
        while True:
            current = read_owner(fs, root)
            now = time.monotonic()
            above = max(current.epoch if current else 0, floor)
            if current is None or current.heartbeat == 0 or current.dead:
                if owned := cls._claim(fs, root, name, above=above, lease=lease):
                    return owned
                continue
            if (current.epoch, current.heartbeat) != heartbeat:
                heartbeat, seen = (current.epoch, current.heartbeat), now
            suspect = abs(time.time() - current.heartbeat) > lease
            if now - seen > (lease / 4 if suspect else lease):
                if owned := cls._claim(fs, root, name, above=above, lease=lease):
                    return owned
                continue
            # Who cannot be judged by its pid but has our host name is most likely our own predecessor in a
            # restarted container or after a reboot: its lease runs out, so waiting for that is worth it.
            predecessor = current.host == socket.gethostname() and current.place != _place()
            if now - began > (max(wait, lease * 1.5) if predecessor else wait) and not suspect:
                raise StateOwned(
                    f"the state directory is owned by {current.describe()}",
                    remedy=f"stop process {current.pid} on {current.host}, or use another state directory",
                    place=root,
                )
            time.sleep(_POLL)

    @classmethod
    def _claim(
        cls, fs: pafs.FileSystem, root: str, name: str, *, above: int, lease: float
    ) -> Ownership | None:
        """Create the next epoch's file; None where another process was faster."""
        now = time.time()
        owner = Owner(
            epoch=above + 1,
            name=name,
            host=socket.gethostname(),
            place=_place(),
            pid=os.getpid(),
            started=_process_start(os.getpid()) or "",
            since=now,
            nonce=uuid.uuid4().hex,
            heartbeat=now,
        )
        path = _path(root, owner.epoch)
        try:
            if not _create(fs, path, owner):
                return None
        except OSError as error:
            raise filesystem.cannot_write(path, error) from error
        for epoch in _epochs(fs, f"{root}/{FOLDER}"):
            if epoch < owner.epoch:
                filesystem.remove(fs, _path(root, epoch))
        return cls(fs, root, owner, lease)

    def check(self, *, now: bool = False) -> None:
        """Fenced where another process took over. Looks at the disk at most every so often, unless `now`."""
        moment = time.monotonic()
        if not self._lost and not now and moment - self._checked < self._interval:
            return
        if not self._lost:
            self._lost = not self._is_ours()
            self._checked = moment
        if self._lost:
            successor = read_owner(self._fs, self._root)
            by = f" by {successor.describe()}" if successor and successor.nonce != self._owner.nonce else ""
            raise Fenced(
                f"this process (epoch {self.epoch}) was frozen or cut off, and the state was taken over{by}",
                remedy="leave the work to the new owner and end this process; nothing it held was published",
                place=self._root,
            )

    def _is_ours(self) -> bool:
        if _newest(self._fs, f"{self._root}/{FOLDER}") != self.epoch:
            return False
        if filesystem.is_local(self._fs):
            return True
        body = statefile.read_state(self._fs, self._path, KIND)
        return body is not None and body.get("nonce") == self._owner.nonce

    def release(self) -> None:
        """Let the next process in at once. Idempotent, and harmless when ownership was lost."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        self._thread.join(timeout=5)
        with contextlib.suppress(OSError, TailraceError):
            if self._is_ours():
                self._beat(0)

    def _beat(self, moment: float) -> None:
        if filesystem.is_local(self._fs):
            os.utime(self._path, (moment, moment))
        else:
            statefile.write_state(self._fs, self._path, KIND, {**asdict(self._owner), "heartbeat": moment})

    def _beat_until_stopped(self, interval: float) -> None:
        while not self._stopped.wait(interval):
            # A beat that fails is repeated; whether the ownership still stands is for `check` to say.
            with contextlib.suppress(OSError, TailraceError):
                if not self._is_ours():
                    self._lost = True
                    return
                self._beat(time.time())


def _path(root: str, epoch: int) -> str:
    return f"{root}/{FOLDER}/{epoch:08d}.json"


def _epochs(fs: pafs.FileSystem, folder: str) -> list[int]:
    names = (name.partition(".") for name in filesystem.listing(fs, folder))
    return [int(stem) for stem, _, extension in names if extension == "json" and stem.isdigit()]


def _newest(fs: pafs.FileSystem, folder: str) -> int | None:
    return max(_epochs(fs, folder), default=None)


def _create(fs: pafs.FileSystem, path: str, owner: Owner) -> bool:
    data = statefile.encode_state(KIND, asdict(owner))
    if not filesystem.is_local(fs):
        if filesystem.get(fs, path) is not None:
            return False
        filesystem.put(fs, path, data)
        time.sleep(_SETTLE)
        body = statefile.read_state(fs, path, KIND)
        return body is not None and body.get("nonce") == owner.nonce
    file = filesystem.AtomicFile(fs, path)
    try:
        file.write(data)
        temporary = file.sync()
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}:
                raise
            return _create_exclusively(path, data)
        filesystem.sync_directory(str(Path(path).parent))
        return True
    finally:
        file.discard()


def _create_exclusively(path: str, data: bytes) -> bool:
    """For mounts without hard links: exclusive too, but a crash in between leaves an unreadable file."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return True


def _place() -> str:
    """What must be equal for a pid to mean the same process: host, boot and pid namespace."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with contextlib.suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(parts)


def _process_start(pid: int) -> str | None:
    """When a running process started, in a form that no clock change alters; None for a dead one."""
    if Path("/proc/self/stat").exists():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if fields[0] in "ZX" else fields[19]
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else str(process.create_time())
    except psutil.NoSuchProcess:
        return None

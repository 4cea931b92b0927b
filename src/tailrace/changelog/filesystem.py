"""Files of the changelog on any filesystem: what is written is there whole, or not at all.

`open_filesystem` gives a pyarrow filesystem and the path in it. On local disk the functions below go to the
operating system, because pyarrow has no fsync, no mode and no exclusive create; elsewhere a file is one put,
and the checksums of what is inside tell a torn one.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from tailrace.model.errors import ConfigError, StateUnreadable, TailraceError, Transient

TEMPORARY = ".tmp"


def open_filesystem(uri: str) -> tuple[pafs.FileSystem, str]:
    """The filesystem a URI or a plain path names, and the path in it."""
    if uri.startswith("file:"):
        parts = urlsplit(uri)
        if parts.netloc not in {"", "localhost"}:
            raise ConfigError(f"a file: URI must not name a host, and this one names {parts.hostname}")
        return pafs.LocalFileSystem(), str(Path(unquote(parts.path)).absolute())
    if "://" not in uri:
        return pafs.LocalFileSystem(), str(Path(uri).expanduser().absolute())
    scheme = uri.partition(":")[0]
    try:
        fs, path = pafs.FileSystem.from_uri(uri)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        fs, path = _open_fsspec(uri, scheme)
    except OSError as error:
        raise Transient(f"the {scheme}: filesystem cannot be reached: {_reason(error)}") from error
    return fs, str(path).rstrip("/") or "/"


def _open_fsspec(uri: str, scheme: str) -> tuple[pafs.FileSystem, str]:
    try:
        from fsspec.core import url_to_fs  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise ConfigError(
            f"pyarrow does not know {scheme}: and fsspec is not installed",
            remedy="pip install 'tailrace[fsspec]'",
        ) from error
    try:
        fs, path = url_to_fs(uri)
    except ImportError as error:
        raise ConfigError(
            f"fsspec has no driver for {scheme}: installed",
            remedy=f"pip install 'tailrace[fsspec]' and fsspec's driver for {scheme}:",
        ) from error
    except ValueError as error:
        raise ConfigError(f"no filesystem is known for {scheme}:, or its URI is malformed") from error
    handler: Any = pafs.FSSpecHandler
    return pafs.PyFileSystem(handler(fs)), str(path)


def is_local(fs: pafs.FileSystem) -> bool:
    """Whether paths are those of the operating system."""
    return isinstance(fs, pafs.LocalFileSystem)


def _reason(error: BaseException) -> str:
    """An error's reason without its file name, which the place already says."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__


def cannot_read(fs: pafs.FileSystem, path: str, error: BaseException) -> TailraceError:
    """What a failed read means: never that the file is not there.

    On a filesystem behind a network it is a passing fault, unless it says that the file is missing.
    """
    if not is_local(fs) and not isinstance(error, FileNotFoundError | PermissionError):
        return Transient(f"cannot be read: {_reason(error)}", place=path)
    return StateUnreadable(
        f"cannot be read: {_reason(error)}",
        remedy="make the file readable for this process (permissions, mount, disk), then start again",
        place=path,
    )


def cannot_write(path: str, error: BaseException) -> Transient:
    """What a failed write means: nothing was changed, and the same call may succeed later."""
    return Transient(
        f"cannot be written: {_reason(error)}",
        remedy="free space or mend the directory; it is retried",
        place=path,
    )


def make_directory(fs: pafs.FileSystem, path: str) -> None:
    """The directory, with its parents, for this user alone. One that exists stays as it is."""
    try:
        if is_local(fs):
            Path(path).mkdir(mode=0o700, parents=True, exist_ok=True)
        else:
            fs.create_dir(path, recursive=True)
    except OSError as error:
        raise cannot_write(path, error) from error


def sync_directory(path: str) -> None:
    """Make renames and removals in a local directory durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def listing(fs: pafs.FileSystem, path: str) -> dict[str, int]:
    """The files of a directory by name, with their sizes; empty where there is no such directory."""
    try:
        if is_local(fs):
            found: dict[str, int] = {}
            with os.scandir(path) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        if entry.is_file():
                            found[entry.name] = entry.stat().st_size
            return found
        infos = fs.get_file_info(pafs.FileSelector(path, allow_not_found=True))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise cannot_read(fs, path, error) from error
    return {str(info.base_name): int(info.size) for info in infos if info.type == pafs.FileType.File}


def get(fs: pafs.FileSystem, path: str) -> bytes | None:
    """A file's bytes; None only where there is no such file. Other faults are raised as OSError."""
    try:
        if is_local(fs):
            return Path(path).read_bytes()
        with fs.open_input_stream(path) as stream:
            return bytes(stream.read())
    except FileNotFoundError:
        return None


def remove(fs: pafs.FileSystem, path: str) -> None:
    """Remove a file; one that is gone already is no fault."""
    try:
        if is_local(fs):
            Path(path).unlink(missing_ok=True)
        else:
            with contextlib.suppress(FileNotFoundError):
                fs.delete_file(path)
    except OSError as error:
        raise cannot_write(path, error) from error


def put(fs: pafs.FileSystem, path: str, data: bytes) -> None:
    """Write or replace a file, atomically and durably. OSError where that fails; the old file then stays."""
    file = AtomicFile(fs, path)
    try:
        file.write(data)
        file.publish()
    except BaseException:
        file.discard()
        raise


class AtomicFile:
    """A file in the making. Nobody sees it before `publish`; after `discard` nothing is left of it.

    On local disk the bytes go to a temporary file beside it; elsewhere they wait in memory for one put.
    """

    def __init__(self, fs: pafs.FileSystem, path: str) -> None:
        self._fs = fs
        self._path = path
        self.size = 0
        self._temporary: Path | None = None
        self._file: IO[bytes] | None = None
        self._chunks: list[bytes | pa.Buffer] = []
        if is_local(fs):
            self._temporary = Path(f"{path}.{uuid.uuid4().hex[:8]}{TEMPORARY}")
            handle = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            self._file = os.fdopen(handle, "wb", buffering=1 << 16)

    def write(self, data: bytes | pa.Buffer) -> None:
        """Add bytes at the end."""
        if self._file is not None:
            self._file.write(data)
        else:
            self._chunks.append(data)
        self.size += len(data)

    def sync(self) -> Path:
        """Make a local file's bytes durable under its temporary name, which is returned."""
        if self._file is None or self._temporary is None:
            raise RuntimeError("only a local file in the making can be synced")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._file = None
        return self._temporary

    def publish(self) -> None:
        """Make it durable and give it its name."""
        if self._file is not None:
            self.sync().replace(self._path)
            self._temporary = None
            sync_directory(str(Path(self._path).parent))
            return
        with self._fs.open_output_stream(self._path) as stream:
            for chunk in self._chunks:
                stream.write(chunk)
        self._chunks = []

    def discard(self) -> None:
        """Leave nothing behind; harmless after `publish`."""
        self._chunks = []
        if self._file is not None:
            # A full disk fails once more when the buffer is flushed by closing.
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None
        if self._temporary is not None:
            with contextlib.suppress(OSError):
                self._temporary.unlink(missing_ok=True)
            self._temporary = None

"""Small state files: JSON with a format version, a kind and a checksum, written atomically.

A file that is not there is None. A file that is there and cannot be trusted is an error, never None: taking
damage for absence would start from nothing and lose what the state stood for.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pyarrow.fs as pafs

from tailrace.changelog import filesystem
from tailrace.model.errors import StateUnreadable

FORMAT = 1


def write_state(fs: pafs.FileSystem, path: str, kind: str, body: dict[str, Any]) -> None:
    """Write or replace a state file, durably, mode 0600. Transient where that fails; the old one stays."""
    try:
        filesystem.put(fs, path, encode_state(kind, body))
    except OSError as error:
        raise filesystem.cannot_write(path, error) from error


def read_state(fs: pafs.FileSystem, path: str, kind: str) -> dict[str, Any] | None:
    """The body of a state file, or None where there is no such file; StateUnreadable for everything else."""
    try:
        data = filesystem.get(fs, path)
    except OSError as error:
        raise filesystem.cannot_read(fs, path, error) from error
    return None if data is None else decode_state(data, kind, path)


def encode_state(kind: str, body: dict[str, Any]) -> bytes:
    """The bytes of a state file."""
    state = {"format": FORMAT, "kind": kind, "checksum": _checksum(body), "body": body}
    return json.dumps(state, separators=(",", ":")).encode()


def decode_state(data: bytes, kind: str, path: str) -> dict[str, Any]:
    """The body that `encode_state` wrote, checked; `path` is for the error."""
    try:
        state = json.loads(data)
    except (ValueError, RecursionError):
        state = None
    match state:
        case {"format": int(version)} if version > FORMAT and not isinstance(version, bool):
            raise StateUnreadable(
                f"state was written by a newer Tailrace: its format is {version}, this one reads {FORMAT}",
                remedy="upgrade tailrace to at least the version that wrote it",
                place=path,
            )
        case {"format": int(version), "kind": str(found), "checksum": str(checksum), "body": dict(body)} if (
            version == FORMAT and checksum == _checksum(body) and data == encode_state(found, body)
        ):
            if found == kind:
                return body
            raise StateUnreadable(
                f"state is of kind {found!r} where {kind!r} is expected",
                remedy="restore the file from a backup, or give the pipeline a new state directory",
                place=path,
            )
    raise StateUnreadable(
        "state is damaged: its checksum does not fit",
        remedy="restore the file from a backup, or give the pipeline a new state directory",
        place=path,
    )


def _checksum(body: dict[str, Any]) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()

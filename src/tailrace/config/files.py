"""The text of a file that a person writes: UTF-8, of a reasonable size, or an error that names the place."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from tailrace.model.errors import ConfigError

MAX_BYTES = 1024 * 1024


class Content(NamedTuple):
    """What a file holds, and the SHA-256 of its bytes."""

    text: str
    digest: str


def read_text(file: Path, what: str, *, missing: str | None = None) -> str:
    """The file's text; `what` it is to be, and the remedy where it is `missing`."""
    return read_content(file, what, missing=missing).text


def read_content(file: Path, what: str, *, missing: str | None = None, max_bytes: int = MAX_BYTES) -> Content:
    """The file's text with the hash of its bytes."""
    try:
        with file.open("rb") as stream:
            data = stream.read(max_bytes + 1)
    except FileNotFoundError:
        raise ConfigError("there is no such file", place=str(file), remedy=missing) from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", place=str(file)) from None
    if len(data) > max_bytes:
        raise ConfigError(f"is larger than {max_bytes // 1024} KB; {what} is not", place=str(file))
    try:
        return Content(data.decode("utf-8-sig"), hashlib.sha256(data).hexdigest())
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            "is not UTF-8 text", place=f"{file}:{line}", remedy="save the file with the encoding UTF-8"
        ) from None

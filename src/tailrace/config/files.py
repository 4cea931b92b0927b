"""The text of a file that a person writes: UTF-8, of a reasonable size, or an error that names the place."""

from __future__ import annotations

from pathlib import Path

from tailrace.model.errors import ConfigError

MAX_BYTES = 1024 * 1024


def read_text(file: Path, what: str, *, missing: str | None = None) -> str:
    """The file's text; `what` it is to be, and the remedy where it is `missing`."""
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError("there is no such file", place=str(file), remedy=missing) from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", place=str(file)) from None
    if len(data) > MAX_BYTES:
        raise ConfigError(f"is larger than {MAX_BYTES // 1024} KB; {what} is not", place=str(file))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            "is not UTF-8 text", place=f"{file}:{line}", remedy="save the file with the encoding UTF-8"
        ) from None

"""The stream: everything it is given goes out before it returns, and what stops it is told apart."""

from __future__ import annotations

import os
import sys
from typing import BinaryIO

import pyarrow as pa

from tailrace.model.errors import NeedsOperator, Transient
from tailrace.sinks.stdout.config import StdoutConfig


class Stream:
    """A binary stream, by default the process's standard output."""

    def __init__(self, config: StdoutConfig | None) -> None:
        given = config.stream if config else None
        self._own = given is None
        self._stream: BinaryIO = sys.stdout.buffer if given is None else given

    def send(self, data: pa.Buffer) -> None:
        """Write all of it and flush."""
        left = memoryview(data)
        try:
            # A raw stream may take only a part.
            while left:
                taken = self._stream.write(left)
                left = left[len(left) if taken is None else taken :]
            self._stream.flush()
        except (BrokenPipeError, ValueError):
            raise self._closed() from None
        except OSError as error:
            raise Transient(f"standard output cannot be written: {error.strerror}", place="stdout") from None

    def _closed(self) -> NeedsOperator:
        if self._own:
            # What is still buffered would fail again when the interpreter flushes at its exit.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
        return NeedsOperator(
            "standard output was closed by its reader",
            remedy="keep the reading process running; changes not read will come again",
            place="stdout",
        )

"""The stdout sink: every change is one line of JSON, and a batch is flushed before `write` returns.

A replayed batch is written again: a stream cannot take back. `position` and `seq` tell a reader what it has.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import BinaryIO

from tailrace.model.change import ChangeBatch
from tailrace.model.errors import NeedsOperator, Transient
from tailrace.model.render import buffer_of, lines
from tailrace.sinks.contract import FeedSink, Progress, Report
from tailrace.sinks.stdout.config import StdoutConfig


class StdoutSink(FeedSink):
    """Writes lines of JSON to a binary stream."""

    def __init__(self, config: StdoutConfig | None = None) -> None:
        given = config.stream if config else None
        self._own = given is None
        self._stream: BinaryIO = sys.stdout.buffer if given is None else given

    def write(self, batches: Sequence[ChangeBatch], progress: Progress) -> Report:  # noqa: ARG002
        text = lines(batches)
        left = memoryview(buffer_of(text))
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
        return Report(written=len(text))

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

    def flush(self) -> None:
        """Every write has flushed already."""

    def close(self) -> None:
        """The stream belongs to who opened it."""

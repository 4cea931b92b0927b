"""Delivered parts of a large unit, kept off memory until they are confirmed.

A transaction larger than memory is delivered in parts that are confirmed together, and `force_stop` must be
able to hand all of them back. Beyond a budget their bytes go to a temporary file that has no name.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import IO

import pyarrow as pa

from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableSchema


@dataclass(frozen=True)
class Spilled:
    """Where the batches lie in the file."""

    places: tuple[tuple[TableSchema, int, int], ...]


class Spill:
    """The file, made when it is first needed; `clear` gives its space back."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None

    def put(self, batches: tuple[ChangeBatch, ...]) -> Spilled:
        """Write batches out."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="tailrace-")  # noqa: SIM115
        places = []
        for batch in batches:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.data.schema) as writer:
                writer.write_batch(batch.data)
            data = sink.getvalue()
            places.append((batch.table, self._file.seek(0, 2), data.size))
            self._file.write(data)
        return Spilled(tuple(places))

    def get(self, spilled: Spilled) -> tuple[ChangeBatch, ...]:
        """Read batches back."""
        batches = []
        for table, offset, size in spilled.places:
            assert self._file is not None  # noqa: S101 - what was put is there until it is cleared
            self._file.seek(offset)
            with pa.ipc.open_stream(self._file.read(size)) as reader:
                batches += [ChangeBatch(table, data) for data in reader]
        return tuple(batches)

    def clear(self) -> None:
        """Forget everything."""
        if self._file is not None:
            self._file.close()
            self._file = None

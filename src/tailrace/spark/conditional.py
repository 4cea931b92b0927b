"""What to do about a snapshot with a condition that fails: on a row, which nobody could tell when it was
accepted, or because the table is no longer what it was cut from.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tailrace.model.errors import NeedsOperator, SchemaDrift, TailraceError, Transient
from tailrace.model.table import shell_name
from tailrace.spark.partitions import ChunkRead

# What captures say of an error that they do not know.
NO_REMEDY = (None, "tailrace check")
# What they say where a whole snapshot cannot go on: of one with a condition the rest is better left out.
ANEW = "tailrace snapshot --table"


@contextmanager
def stoppable(read: ChunkRead) -> Iterator[None]:
    """Errors of a chunk with a condition name the way out, where they know none themselves."""
    try:
        yield
    except TailraceError as error:
        known = error.remedy not in NO_REMEDY and not str(error.remedy).startswith(ANEW)
        known = known and not isinstance(error, SchemaDrift)
        if read.chunk.where is None or known or isinstance(error, Transient):
            raise
        ref = read.chunk.table
        raise NeedsOperator(
            f"the snapshot of {ref} with a condition: {error.message}",
            remedy=f"tailrace snapshot --stop --table {shell_name(ref)}",
            place=error.place,
        ) from error

"""Changes, by columns: the one shape in which row changes travel from capture to sink.

A `ChangeBatch` is one Arrow record batch of changes of one table:

| column     | type               | meaning                                                              |
| ---------- | ------------------ | -------------------------------------------------------------------- |
| `op`       | string             | `c` insert, `u` update, `d` delete, `r` snapshot row, `t` truncate,  |
|            |                    | `s` a snapshot begins                                                |
| `position` | int64              | version of the commit's `Position`; equal for a whole transaction    |
| `seq`      | int64              | order within the position; (position, seq) is the total order        |
| `xid`      | string, nullable   | the source's transaction id, where it has one                        |
| `ts`       | timestamp[us, UTC] | when the source wrote the change, as far as it tells                 |
| `before`   | struct, nullable   | the row before: u and d                                              |
| `after`    | struct, nullable   | the row after: c, u and r                                            |

and, only where some row of the batch needs them,

| column                          | type              | meaning                                            |
| ------------------------------- | ----------------- | -------------------------------------------------- |
| `before_absent`, `after_absent` | list<string>      | columns the image does not have at all; their      |
|                                 |                   | struct field is null, and means nothing            |
| `before_exact`, `after_exact`   | struct of strings | values that do not fit their column's type, tagged |

Absent is not NULL: a name in `*_absent` says that the log did not carry the column; a null struct field
without it is SQL's NULL.

Exact values: a source may hold a value its declared type cannot (SQLite: text in an INTEGER column). The
struct field is then null and `*_exact` holds a tagged text for that column: `i:` integer digits, `r:` a real
(shortest digits that read back equal, or `inf`, `-inf`), `t:` text, `b:` base64 of bytes, `x:` base64 of
text that is not valid UTF-8, `v:` the source's own text of any other value. `*_exact` has fields only for
the columns that need one in this batch.

`s` has neither image. It precedes a snapshot of its table: what a consumer holds of the table is obsolete.
`t` has neither image: every row is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.model.position import Position
from tailrace.model.table import TableSchema


class Op(StrEnum):
    """What happened to a row, in Debezium's codes, and `s`, which is ours."""

    INSERT = "c"
    UPDATE = "u"
    DELETE = "d"
    READ = "r"
    TRUNCATE = "t"
    SNAPSHOT = "s"


TS = pa.timestamp("us", tz="UTC")
META = (
    pa.field("op", pa.string(), nullable=False),
    pa.field("position", pa.int64(), nullable=False),
    pa.field("seq", pa.int64(), nullable=False),
    pa.field("xid", pa.string()),
    pa.field("ts", TS),
)
# Rows of a snapshot are numbered on from here: they come after every log change of their position.
SNAPSHOT_SEQ = 1 << 62


@dataclass(frozen=True)
class ChangeBatch:
    """Changes of one table, in order."""

    table: TableSchema
    data: pa.RecordBatch

    def __len__(self) -> int:
        return int(self.data.num_rows)

    @property
    def nbytes(self) -> int:
        """Bytes of the Arrow buffers."""
        return int(self.data.nbytes)

    def slice(self, start: int, length: int) -> ChangeBatch:
        """Some rows of it, without copying."""
        return ChangeBatch(self.table, self.data.slice(start, length))


@dataclass(frozen=True, eq=False)
class Ends:
    """The ends of several transactions: the version of each, growing, and the rows of the part up to it."""

    versions: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Part:
    """What a capture delivers: changes of a transaction, a part of a large one, or several whole ones.

    All rows carry `position`, unless `ends` says that the part holds several transactions: then each row
    carries its own, and `position` is the last one's. `complete` is false while more parts of the same
    transaction follow. A complete part without rows says that the source moved on without touching the
    watched tables.
    """

    batches: tuple[ChangeBatch, ...]
    position: Position
    complete: bool = True
    ends: Ends | None = None

    @property
    def rows(self) -> int:
        """How many changes it holds."""
        return sum(len(batch) for batch in self.batches)

    @property
    def nbytes(self) -> int:
        """Bytes of its Arrow buffers."""
        return sum(batch.nbytes for batch in self.batches)

    def transactions(self) -> Iterator[Part]:
        """The part itself, or its transactions one by one, without copying."""
        if self.ends is None:
            yield self
            return
        columns = [batch.data.column("position").to_numpy() for batch in self.batches]
        starts = [0] * len(columns)
        for version in self.ends.versions.tolist():
            stops = [int(np.searchsorted(column, version, side="right")) for column in columns]
            pieces = zip(self.batches, starts, stops, strict=True)
            batches = tuple(batch.slice(at, stop - at) for batch, at, stop in pieces if stop > at)
            yield Part(batches, self.position.at(version))
            starts = stops


def schema_of(table: TableSchema, optional: Iterable[pa.Field] = ()) -> pa.Schema:
    """The Arrow schema of a batch of changes of `table`."""
    images = (pa.field("before", table.struct), pa.field("after", table.struct))
    return pa.schema([*META, *images, *optional])


def marker(table: TableSchema, position: int, seq: int, ts: int) -> ChangeBatch:
    """The batch of one row that says: a snapshot of `table` begins. `ts` is in microseconds."""
    nothing = pa.nulls(1, table.struct)
    return ChangeBatch(
        table,
        pa.RecordBatch.from_arrays(
            [
                pa.array([Op.SNAPSHOT.value], pa.string()),
                pa.array([position], pa.int64()),
                pa.array([seq], pa.int64()),
                pa.nulls(1, pa.string()),
                pa.array([ts], TS),
                nothing,
                nothing,
            ],
            schema=schema_of(table),
        ),
    )

"""The contract of a capture: what changed in one database?

One mechanism a database. The runtime drives it, the Spark source reads snapshot chunks through it on
executors, the command line installs it. A capture object holds settings only until it is used, so it can be
made anywhere, from the same settings, and it never travels pickled.

Threads: `live` and `acknowledge` belong to one thread. Every other method opens a short-lived connection of
its own and may be called from any thread at any time. `close` may be called from any thread at any time and
ends a running `live` within its `wait`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from tailrace.model.change import ChangeBatch, Part
from tailrace.model.errors import ConfigError, IdentityMismatch
from tailrace.model.filters import Condition, Filter
from tailrace.model.position import Position
from tailrace.model.table import ColumnType, TableRef, TableSchema


@dataclass(frozen=True)
class Capabilities:
    """What a mechanism can do, stated rather than discovered by failure."""

    before_images: bool
    transactions: bool
    truncate: bool
    schema_events: bool
    snapshot: bool
    resumable_snapshot: bool
    interleaved_snapshot: bool
    lag: bool
    standby: bool
    # A table that cannot go on stops alone (`notices`), and the others go on.
    partial: bool = False
    # What is found between two looks comes as one transaction, whose position and `seq` count the same rows:
    # read again, the log may be grouped otherwise.
    regroups: bool = False
    # Reads of several processes can share one point in time (`moment`).
    moments: bool = False


TABLE_STOPPED = "table_stopped"
# The table can be fed; the log does not tell a mirror which row a change is of (`TableSchema.key_before`).
KEY_UNTOLD = "key_untold"


@dataclass(frozen=True)
class Finding:
    """One thing `coverage` or `notices` found. `remedy` is the exact command or SQL that mends it.

    `index` and `place` (`file:line (field …)`) are of what was found in an index schema.
    """

    severity: Literal["error", "warning", "info"]
    code: str
    message: str
    table: str | None = None
    remedy: str | None = None
    index: str | None = None
    place: str | None = None


@dataclass(frozen=True)
class Lag:
    """How far a position trails the source. A number that cannot be had is None."""

    changes: int | None = None
    bytes: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Load:
    """How busy the source is beside us. A number that cannot be had is None; `remedy` says how to have it.

    `connections` and `active` are sessions of others: all of them, and those at work. `standby_bytes` and
    `standby_seconds` are of the standby that is furthest behind, 0 without one. `retained` is the log that
    the source keeps for the consumer, in bytes, and `log_status` what the source says of it.
    """

    connections: int | None = None
    max_connections: int | None = None
    active: int | None = None
    standby_bytes: int | None = None
    standby_seconds: float | None = None
    retained: int | None = None
    log_status: str | None = None
    remedy: str | None = None


@dataclass(frozen=True)
class Chunk:
    """A range of a table's rows for a snapshot read: JSON only, so that it travels and is stored.

    `bounds` is the mechanism's own description of the range; without any it is the whole table. `rows` is an
    estimate for progress, `nbytes` one of their size, 0 where nobody asked for it. `where` is a condition in
    the source's own SQL: only rows for which it is true are of the chunk. `moment` is the id of a point in
    time at which to read it (`Capture.moment`).
    """

    table: TableRef
    index: int
    bounds: dict[str, Any] = field(default_factory=dict)
    rows: int = 0
    where: str | None = None
    moment: str | None = None
    nbytes: int = 0


@dataclass(frozen=True)
class Consumer:
    """Who else reads the same log, and where it stands."""

    name: str
    acknowledged: int
    pending: int | None = None
    # Bytes of log that the source keeps for it, and what is about to go wrong with them.
    retained: int | None = None
    risk: str | None = None


class Capture(ABC):
    """See the module's text for threads. Errors are of `tailrace.model.errors`, with the remedy."""

    kind: str
    capabilities: Capabilities
    # What the source's SQL is called by sqlglot; empty where `query` is not for it.
    dialect: str = ""

    @abstractmethod
    def identity(self) -> str:
        """The source's identity, as in `Position.source`. SetupMissing where setup never ran."""

    def moved(self, position: Position) -> Position:
        """The same place under the source's present identity, which a fail-over changes.

        IdentityMismatch where another source answers, or one whose log does not have the position.
        """
        if (identity := self.identity()) != position.source:
            raise IdentityMismatch(f"the source {identity} answers, not {position.source}")
        return position

    @abstractmethod
    def tables(self) -> list[TableRef]:
        """Every table that could be captured, in name order."""

    @abstractmethod
    def resolve(self, names: Sequence[str]) -> list[TableRef]:
        """The tables these names mean (`orders`, `main.orders`, `*`). ConfigError names the nearest one."""

    @abstractmethod
    def describe(self, ref: TableRef) -> TableSchema:
        """Columns, types and key of a table, from the catalog, now; `generation` as setup recorded it."""

    @abstractmethod
    def generations(self) -> dict[TableRef, tuple[str, int]]:
        """Each captured table's generation, and the position at which it began. SetupMissing before setup."""

    @abstractmethod
    def coverage(self, tables: Sequence[TableRef]) -> list[Finding]:
        """Can these tables be streamed, and what is missing? Changes nothing."""

    @abstractmethod
    def setup(self, tables: Sequence[TableRef]) -> list[str]:
        """Install what capture needs for these tables, in one transaction; idempotent.

        Repairs what drifted: such a table gets a new generation. Returns a sentence for each thing it did;
        nothing where nothing was to do.
        """

    @abstractmethod
    def teardown(self, tables: Sequence[TableRef] | None = None) -> list[str]:
        """Remove capture of these tables, or, with None, everything Tailrace ever installed. Idempotent."""

    @abstractmethod
    def register(self, consumer: str, at: Position | None = None) -> Position:
        """Make sure the consumer has a cursor, so that the source keeps its log for it.

        A new consumer starts at the source's newest position, or at `at` where the log is still known to be
        whole from there (LogLost otherwise). A known one keeps its cursor. Returns the cursor. Idempotent.
        """

    @abstractmethod
    def forget(self, consumer: str) -> None:
        """Remove the consumer's cursor; the source need not keep its log for it. Idempotent."""

    @abstractmethod
    def consumers(self) -> list[Consumer]:
        """Every registered consumer."""

    @abstractmethod
    def head(self) -> Position:
        """The newest committed position a reader can see now."""

    def seen(self) -> int:
        """A position that no change lies behind which a read can have seen until now."""
        return self.head().version

    @abstractmethod
    def live(
        self,
        start: Position,
        tables: Sequence[TableRef],
        *,
        consumer: str,
        wait: float = 0.5,
        accept: Mapping[TableRef, str] | None = None,
    ) -> Iterator[Part | None]:
        """Changes after `start`: whole transactions in commit order, large ones in parts. Runs until closed.

        Yields None when nothing came for `wait` seconds, so that its caller can look up. Memory is bounded
        at any transaction size. Before the first part it makes sure that the position can be continued:
        IdentityMismatch, LogLost, SchemaDrift or SetupMissing otherwise, never a gap. The same errors are
        raised when that becomes so while it runs. Where `capabilities.partial` says so, a fault of some of
        the tables stops those alone (`notices`).

        `accept` names, by table, the generation that the caller knows and has a fresh snapshot for (or takes
        one): such a table may have begun after `start`. Any other one that did is LogLost.
        """

    def remember(self, schemas: Mapping[TableRef, Sequence[TableSchema]]) -> None:  # noqa: B027
        """Before `live`: how tables looked earlier in the log, oldest first, each as it was delivered once.

        For a mechanism whose log does not say all of it and whose catalog may have moved on. What it wants to
        know again it puts into `TableSchema.extra`.
        """

    def notices(self) -> list[Finding]:
        """What is wrong with the running `live` that does not end it; quick, and from any thread.

        A table that cannot go on while others do is told as TABLE_STOPPED. Nothing of it is delivered any
        more, and it goes on only in a `live` whose `accept` names the generation that it then has.
        """
        return []

    @abstractmethod
    def acknowledge(self, position: Position, *, consumer: str) -> Position:
        """Everything up to `position` is durable downstream; the mechanism may release its log.

        Never called for part of a transaction. It may be lazy: the returned position is one that the source
        now has on record for good, also if it crashes; `consumers` may tell of a newer one. Acknowledging an
        older position than before is harmless and changes nothing.
        """

    @abstractmethod
    def wait_visible(self, position: Position, timeout: float) -> None:
        """Return when a read begun now sees every transaction up to `position`; Transient on time-out."""

    @abstractmethod
    def plan(
        self, table: TableRef, *, rows_per_chunk: int, bytes_per_chunk: int | None = None
    ) -> list[Chunk]:
        """Cut a table into ranges that together hold every row, also rows inserted later. Never empty.

        A range has about as many rows as asked for, fewer where those would be more than about
        `bytes_per_chunk`. Neither is exact: what reads a chunk must stand a larger one.
        """

    def check_condition(self, table: TableRef, where: str) -> None:
        """ConfigError, naming the place, unless `where` can be a condition of chunks of this table.

        Reads no row. Not by the values that a row may have: a division by one of them can fail later.
        """
        raise ConfigError(f"table {table} cannot be read by a condition: {where!r}")

    def condition(self, table: TableSchema, filters: Sequence[Filter]) -> Condition:  # noqa: ARG002
        """What the source can make of filters, for `Chunk.where`. `table` is as `describe` gave it just now.

        It may let more rows pass than the filters do, never fewer.
        """
        return Condition()

    def moment(self) -> AbstractContextManager[str]:
        """A point in time, held for as long as the block runs; `Chunk.moment` takes its id.

        Whoever reads by that id, in whichever process, sees the rows as they were when the block began.
        ConfigError where `capabilities.moments` says that there are none.
        """
        raise ConfigError(
            f"a {self.kind} source cannot share one point in time among several reads",
            remedy="read each table in one partition: one task sees one point in time",
        )

    def together(self) -> AbstractContextManager[None]:
        """While the block runs, questions and reads that follow each other may share what they need.

        Blocks may overlap, also in several threads.
        """
        return nullcontext()

    @abstractmethod
    def snapshot(
        self,
        table: TableSchema,
        chunk: Chunk,
        *,
        position: int,
        seq: int,
        columns: Sequence[str] | None = None,
    ) -> Iterator[ChangeBatch]:
        """The rows of a chunk as they are now, as `r` changes at `position`, numbered from `seq`.

        SchemaDrift where the table no longer has the columns of `table`. With `columns` only those are read
        (the images then have only those fields).
        """

    def query(
        self,
        sql: str,
        parameters: Sequence[Any] | Mapping[str, Any],  # noqa: ARG002
        columns: Sequence[tuple[str, ColumnType]],  # noqa: ARG002
    ) -> Iterator[pa.RecordBatch]:
        """The rows of one statement of ours that only reads, in the source's SQL (`dialect`), as of now.

        One statement, in one transaction that ends with it: it blocks no writer. Rows come in batches of a
        bounded size, with `columns` as their columns, by name, typed by the same functions as rows of a
        snapshot: a value is the same whichever way it came. A value that its type cannot hold is null, and
        stands tagged, as `tailrace.model.change` describes, in a last column `exact`, a struct of strings,
        which a batch has only where it needs it. No batch at all where there is no row.

        `parameters` are for the placeholders of the source's driver: postgres `%s` or `%(name)s` (any other
        `%` of the statement is doubled, a list is an array), sqlite `?` or `:name`. Errors tell no row's
        values. While `together` runs the connection may be shared.
        """
        raise ConfigError(f"a {self.kind} source cannot be asked in SQL: {sql[:40]!r}")

    def told_before(self, table: TableSchema) -> frozenset[str]:
        """The columns whose values the log now has of a row as it was before an update or delete.

        An update that has no before image at all did not change any of them.
        """
        return frozenset(column.name for column in table.columns)

    def partitions(self, table: TableRef) -> list[TableRef]:  # noqa: ARG002
        """The tables that hold the rows of a partitioned table, each with settings of its own; else none."""
        return []

    def missing_index(self, table: TableRef, columns: Sequence[str]) -> str | None:  # noqa: ARG002
        """The SQL that makes an index by which rows are found by these columns; None where there is one.

        An index or key serves where it begins with the columns, in whichever order, and has every row.
        """
        return None

    @abstractmethod
    def lag(self, position: Position) -> Lag:
        """How far `position` trails the newest one."""

    def load(self, consumer: str) -> Load:  # noqa: ARG002 - for those that have something to say
        """How busy the source is. Costs it next to nothing; asked about once a second."""
        return Load()

    @abstractmethod
    def close(self) -> None:
        """End a running `live` and release everything. Idempotent."""

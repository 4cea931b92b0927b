"""The contract of sinks: where changes go, and what a return from a sink permits.

There are two kinds. A `TableSink` keeps tables equal to their source and takes net changes. A `FeedSink`
passes every change on, in order. A sink is never shared by two pipelines.

**Threads.** Calls for one target of a table sink come one after the other, calls for different targets at the
same time, from several threads. A feed sink is called one call at a time. `hurry` may come at any time, from
another thread.

**What a return means.** When `apply` returns, or `flush` after `write`, the changes are durable at the
destination as far as the destination can make them so, and the pipeline may acknowledge them to the source.
A sink that buffers says nothing is durable until `flush` returned.

**Failure.** A failure of the whole call is an exception of `tailrace.model.errors`: `Transient` where the
same call may succeed later (the engine backs off and calls again), `NeedsOperator` or `ConfigError` where
somebody must act, `DataError` where a value cannot be carried. A sink that retries does so within a stated
bound. An exception never means that nothing was written. Rows that the destination refused one by one, where
it can, are counted in `Report.rejected`.

**Replays.** After a fault the same batch comes again, with an equal `Progress`: possibly after it was applied
in full, in part, twice at once, or after a later one. A sink must be harmless under all of these: a table
sink refuses what it has already (`Report.skipped`), a feed sink marks what it sends so that the receiver can.
Rows of a snapshot may have been read anew for a replay, so an equal Progress does not promise equal bytes
where `snapshots` is not empty; it promises that the later reading is at least as new.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tailrace.model.change import ChangeBatch
from tailrace.model.net import NetChanges
from tailrace.model.table import TableSchema


@dataclass(frozen=True)
class Progress:
    """Which micro-batch this is, by where it stands in the source. Equal progress is the same batch again.

    The batch holds the changes of `source`'s log after `start` up to and including `end`; positions of two
    sources are never compared. `snapshots` has an entry for each table that has snapshot rows in the batch,
    by the text of its `TableRef`: the id of the snapshot's plan, and how many of the plan's chunks are done
    with this batch (index of its last chunk + 1).

    `unsettled` are the tables, likewise, of which rows may be missing that the batch's changes speak of:
    their chunk is not read yet, or is to be read again, or it was read after a delete that comes later in the
    log.
    """

    pipeline: str
    start: int
    end: int
    snapshots: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    source: str = ""
    unsettled: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Report:
    """What a call did: rows written, rows deleted, rows refused by the destination one by one.

    `skipped` says that the destination had the batch already. `notes` are sentences for the log about
    something that went wrong and does not matter for the data (a clean-up that will be tried again).
    """

    written: int = 0
    deleted: int = 0
    rejected: int = 0
    skipped: bool = False
    notes: tuple[str, ...] = ()


class TableSink(ABC):
    """Keeps tables in step. Calls for one target come in the order of their progress, replays aside."""

    @abstractmethod
    def ensure(self, target: str, table: TableSchema) -> None:
        """Make sure that the target can take rows of `table`; ConfigError early where it never could.

        Creates it empty where it does not exist. Changes nothing where it does. Idempotent.
        """

    @abstractmethod
    def exists(self, target: str) -> bool:
        """Whether the target is there. One that was begun and is gone must not be begun again in part."""

    @abstractmethod
    def apply(self, target: str, net: NetChanges, progress: Progress) -> Report:
        """Apply net changes and record the progress, both or neither.

        Rows that lack columns keep those of the row with their key. Where there is none, columns that came
        `later` are NULL; else a row of a table that is `unsettled` is left out, for its chunk brings it whole
        or its delete follows, and one of any other table is a DataError. A reset replaces everything, columns
        included. Without one added columns are added, and dropped ones stay, with what they have; SchemaDrift
        where a column is retyped, where it is added and older rows may have been `filled`, and where it is
        added again. A batch that is recorded, or older than what is recorded, is skipped.
        """

    @abstractmethod
    def read(self, target: str) -> pa.Table:
        """The target's rows as they are now, for checks and small tables."""

    @abstractmethod
    def close(self) -> None:
        """Release everything. Idempotent."""


class FeedSink(ABC):
    """Passes changes on, tables interleaved in (position, seq) order within each call."""

    @abstractmethod
    def write(self, batches: Sequence[ChangeBatch], progress: Progress) -> Report:
        """Send the changes of one micro-batch, of any number of tables."""

    def watch(self, waiting: Callable[[str, float], None]) -> None:  # noqa: B027 - most sinks never wait
        """Before the first write: whom to tell why, and for how many seconds, the sink waits to try again.

        For a sink that retries by itself. `waiting` is called on the thread of `write`.
        """

    @abstractmethod
    def flush(self) -> None:
        """Return when everything written is with the receiver."""

    def hurry(self) -> None:  # noqa: B027 - most sinks never wait
        """A stop was asked for: a `write` that waits for its receiver raises Transient instead.

        For good: later writes try once. A sink that never waits need not do anything.
        """

    @abstractmethod
    def close(self) -> None:
        """Release everything; what was not flushed may be lost. Idempotent."""

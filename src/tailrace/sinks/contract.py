"""The contract of sinks: where changes go, and what a return from a sink permits.

There are three kinds. A `TableSink` keeps tables equal to their source and takes net changes. A `FeedSink`
passes every change on, in order. A `DocumentSink` keeps documents by id, and has rules of its own
(see there). A sink is never shared by two pipelines.

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
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.change import ChangeBatch
from tailrace.model.errors import UsageError
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

    A batch that is one large transaction comes in pieces, in the order of the log. `part` is then how many
    changes of the batch there are, of all tables, up to the end of the piece, and 0 in the last piece, which
    ends the batch. A replay may cut the pieces elsewhere.
    """

    pipeline: str
    start: int
    end: int
    snapshots: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    source: str = ""
    unsettled: frozenset[str] = frozenset()
    part: int = 0


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

    def place(self, target: str) -> str:  # noqa: ARG002
        """Where the target is, a path or URI without secrets; nothing where the sink's name tells it.

        A target at another place is another one, and has to get all of its rows.
        """
        return ""

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
        added again. A batch that is recorded, or older than what is recorded, is skipped, and so is a piece
        of a batch whose changes are all in pieces that are recorded.
        """

    @abstractmethod
    def read(self, target: str) -> pa.Table:
        """The target's rows as they are now, for checks and small tables."""

    @abstractmethod
    def close(self) -> None:
        """Release everything. Idempotent."""


class FeedSink(ABC):
    """Passes changes on, tables interleaved in (position, seq) order within each call."""

    def place(self) -> str:
        """Where its receiver is, a path or URI without secrets; nothing where the sink's name tells it.

        A receiver at another place is another one: where it is to have existing rows, it has to get them.
        """
        return ""

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


@dataclass(frozen=True)
class DocumentBatch:
    """Documents of a generation, each a complete JSON text by its id; null says that there is none any more.

    An id occurs once. `version` is the end of the micro-batch in the source's log: all documents were built
    from the source after everything up to there was visible. Texts may be Arrow's large strings.
    """

    index: str
    generation: str
    ids: pa.StringArray | pa.LargeStringArray
    documents: pa.StringArray | pa.LargeStringArray
    version: int

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.documents):
            raise UsageError(f"index {self.index}: {len(self.ids)} ids and {len(self.documents)} documents")
        if self.ids.null_count or len(pc.unique(self.ids)) < len(self.ids):
            raise UsageError(f"index {self.index}: an id is null, or twice in one batch")

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Rejection:
    """A document that the destination will never take as it is, and why. The reason shows no value of it."""

    id: str
    reason: str


@dataclass(frozen=True)
class DocumentReport:
    """What a call did with each document of its batch: wrote, deleted or rejected it, or found it `stale`.

    Stale is what the destination has in a newer version. A delete of what is not there counts as deleted.
    `notes` are sentences for the log. Reports of the pieces of a batch add up.
    """

    written: int = 0
    deleted: int = 0
    stale: int = 0
    rejected: tuple[Rejection, ...] = ()
    notes: tuple[str, ...] = ()

    def __add__(self, other: DocumentReport) -> DocumentReport:
        return DocumentReport(
            self.written + other.written,
            self.deleted + other.deleted,
            self.stale + other.stale,
            self.rejected + other.rejected,
            self.notes + other.notes,
        )


@dataclass(frozen=True)
class Marker:
    """What a generation was filled from: it is complete as of `position`, for exactly this source and schema.

    `source` is the identity of the server, `consumer` that of the capture (slot or cursor), `horizon` the
    position that link state was read at: documents are newer than it. Who finds another marker than the one
    that it wrote must fill the index again.
    """

    generation: str
    source: str
    database: str
    consumer: str
    position: int
    schema_hash: str
    horizon: int = 0


@dataclass(frozen=True)
class Held:
    """What a sink has of an index: the generation that readers see, its marker, how many documents they see.

    A number that would be dear to find out is None.
    """

    shown: str | None = None
    marker: Marker | None = None
    documents: int | None = None


@dataclass(frozen=True)
class Hit:
    """A document that was found. `score` is higher for better ones; `excerpt` are texts, matching or not."""

    id: str
    version: int
    score: float
    excerpt: tuple[tuple[str, bool], ...]
    document: str


class DocumentSink(ABC):
    """Keeps the documents of indexes, by id, each in its newest version.

    **Generations.** Every filling of an index is a generation of its own, named by who fills it, and a name
    is never used for a second filling. Readers see exactly one: the old, complete one while a new one is
    filled beside it, and the new one from the moment it is published. Before the first is published a sink
    shows nothing, or that one while it is filled, as it states. Changes are written to both meanwhile,
    so that what readers see does not stand still.

    **Who calls.** The driver calls `ensure` before anything else of an index: with the generation of the
    marker that `seeded` gave where that is what it expects, else with a new one, and then `publish` once
    every document is written and flushed. Documents are written by executors: each opens the sink for itself,
    from its pickled settings, and writes its own ids of the batch, so several processes write to one
    generation at the same time. A sink that is `local` is written by the driver alone. One object is used by
    one thread at a time.

    **Pickling.** A sink pickles as its settings. What it has open stays behind and is opened again by the
    first call that needs it. Making one opens nothing.

    **Versions.** They decide, not the order of calls, and are compared within a generation only: another one
    may have positions of another source. A document or a delete with a lower version than what the
    generation has for the id changes nothing and is counted `stale`. An equal version is the same batch
    again, built anew, perhaps from a later moment: it is written again. A delete is remembered with its
    version, so that a late writer with a lower one cannot bring the document back; how long, every sink
    states, and it must be longer than a writer can be late. Readers never see a deleted document.

    **Replays.** After a fault the same batch comes again: whole, in part, cut differently, twice at once, or
    after later ones. Versions make all of these harmless. A feed of documents (`stdout`) passes them on
    again, with their version.

    **What a return means.** When `flush` has returned, everything written through this object is durable and
    can be read; the executor flushes before its task ends, the batch is acknowledged after all of them. What
    was not flushed may be lost. `read` sees what was flushed.

    **Failure.** A failure of the whole call is an exception of `tailrace.model.errors`, as above, and never
    means that nothing was written. A document that the destination refuses, and would refuse again, is an
    entry in `DocumentReport.rejected`; the others of the call are written all the same.
    """

    # Only the process that made it can write: to its standard output, to its memory.
    local: bool = False
    # Documents can be read again. A stream of them keeps none, and nothing about them.
    keeps: bool = True

    def watch(self, waiting: Callable[[str, float], None]) -> None:  # noqa: B027 - most sinks never wait
        """Before the first call: whom to tell why, and for how many seconds, the sink waits to try again.

        For a sink that retries by itself, in the driver. Executors let the engine know when they give up.
        """

    def hurry(self) -> None:  # noqa: B027 - most sinks never wait
        """A stop was asked for: a call that waits for its destination raises Transient instead, for good.

        May come at any time, from another thread.
        """

    @abstractmethod
    def ensure(self, index: str, generation: str, mapping: Mapping[str, Any]) -> None:
        """Make sure that the generation can take documents of this mapping; ConfigError where it never could.

        Creates it empty where it does not exist, and keeps every document where it does. Generations of the
        index that are neither this one nor the one that readers see are abandoned fillings, and are removed.
        Idempotent, and safe when several processes call it at once.
        """

    @abstractmethod
    def seeded(self, index: str) -> Marker | None:
        """What the generation that readers see is complete from; None where it was never published.

        None, always, where the sink keeps nothing: then the pipeline's own state must tell.
        """

    @abstractmethod
    def holds(self, index: str, generation: str) -> bool:
        """Whether the generation is there, shown or being filled. True where the sink keeps nothing."""

    def holding(self, index: str, generation: str) -> DocumentSink | None:
        """What of it has the generation, to write it while another is filled; None where nothing has."""
        return self if self.keeps and self.holds(index, generation) else None

    def look(self, index: str) -> Held:
        """What there is of the index, for people. Changes nothing, also where there is nothing yet.

        A sink that can tell more than its marker does, cheaply, tells it.
        """
        marker = self.seeded(index) if self.keeps else None
        return Held(marker.generation if marker is not None else None, marker)

    @abstractmethod
    def publish(self, index: str, marker: Marker) -> None:
        """Generation `marker.generation` is complete: record its marker and show it to readers, in one step.

        Durable on return. The other generations of the index are removed, in pieces where that is long work,
        perhaps after the return: neither readers nor writers wait for it. Publishing what is published
        replaces its marker. NeedsOperator where there is no such generation.
        """

    @abstractmethod
    def write(self, batch: DocumentBatch) -> DocumentReport:
        """Write and delete documents. An empty batch does nothing.

        NeedsOperator where the generation is gone, for the writer is a late one of an abandoned filling.
        Nothing is shown of what it brings.
        """

    @abstractmethod
    def retire(self, index: str, generation: str, version: int) -> int:
        """Delete, as of `version`, every document of a lower one; returns how many.

        For who has written every document that there is at that version. Flush afterwards, as after a write.
        A sink that keeps nothing has nothing to delete.
        """

    @abstractmethod
    def flush(self) -> None:
        """Return when everything written through this object is durable and visible to readers."""

    @abstractmethod
    def read(self, index: str, generation: str | None = None) -> pa.Table:
        """The documents that readers see now, or those of a generation: `id`, `version`, `document`, by id.

        For checks; before the first generation is published it gives what that one has. UsageError where
        there is no such index or generation.
        """

    @abstractmethod
    def drop(self, index: str) -> None:
        """Forget everything about the index, documents, generations and marker. Idempotent."""

    @abstractmethod
    def close(self) -> None:
        """Release everything; what was not flushed may be lost. Idempotent."""

"""What a pipeline is to do, in the engine's own words. The composition root makes it from a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from tailrace.documents.plan import IndexPlan
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableRef, TableSchema
from tailrace.sinks.contract import DocumentSink, FeedSink, TableSink

Backfill = Literal["auto", "source", "spark"]
SchemaPolicy = Literal["evolve", "snapshot", "stop"]


@dataclass(frozen=True)
class Mirror:
    """Keep `target` of a table sink equal to a source table.

    `schema_changes` says what happens when columns or key of the table change: the mirror follows where the
    log tells all of it and stops otherwise, it takes a fresh snapshot instead of stopping, or always stops.
    """

    table: TableRef
    target: str
    sink: TableSink
    schema_changes: SchemaPolicy = "evolve"
    # The sink's name, for people.
    called: str = ""


@dataclass(frozen=True)
class Feed:
    """Send every change of some tables to a feed sink; with `snapshot`, existing rows first."""

    tables: frozenset[TableRef]
    sink: FeedSink
    snapshot: bool = True
    called: str = ""

    def wants(self, batch: ChangeBatch) -> bool:
        """Whether the batch's table is one of the feed's."""
        return batch.table.ref in self.tables


@dataclass(frozen=True)
class Index:
    """Keep the documents of a plan in a document sink, under `name`.

    `sinks` are the names of the sinks that `sink` is made of.

    `database` names the source for its marker. `backfill` says how it is filled: by questions to the
    `source`, by joins in `spark` over copies of its tables, or by what is likely to cost less. `on_error`
    says what happens to a document that the sink rejects or the source cannot compute: the pipeline stops, or
    it becomes a dead letter.
    """

    name: str
    plan: IndexPlan
    sink: DocumentSink
    mapping: Mapping[str, Any]
    database: str = ""
    backfill: Backfill = "auto"
    on_error: Literal["stop", "skip"] = "stop"
    sinks: tuple[str, ...] = ()

    @property
    def root(self) -> TableRef:
        """The table that has a row for each document."""
        return self.plan.root.table.ref

    @property
    def tables(self) -> frozenset[TableRef]:
        """Every table that has a part in its documents."""
        return frozenset(self.schemas)

    @cached_property
    def schemas(self) -> Mapping[TableRef, TableSchema]:
        """These tables, as they were when its documents were planned."""
        return tables_of(self.plan)

    @cached_property
    def others(self) -> tuple[str, ...]:
        """The tables beside the root, as texts."""
        return tuple(sorted(str(ref) for ref in self.tables if ref != self.root))


def tables_of(plan: IndexPlan) -> dict[TableRef, TableSchema]:
    """Every table of a plan, junctions too."""
    found = {}
    for chain in plan.chains():
        place = chain[-1]
        found[place.table.ref] = place.table
        if place.link is not None and place.link.through is not None:
            found[place.link.through.table.ref] = place.link.through.table
    return found


@dataclass(frozen=True)
class PipelineSpec:
    """One source, one query, any number of mirrors, feeds and indexes.

    `options` are those of `format("tailrace")`; `checkpoint` is Spark's checkpoint directory.
    """

    name: str
    options: dict[str, str]
    checkpoint: str
    mirrors: tuple[Mirror, ...] = ()
    feeds: tuple[Feed, ...] = ()
    indexes: tuple[Index, ...] = ()
    on_error: Literal["stop", "skip"] = "stop"
    dead_letters: str | None = None
    retry_seconds: float = 300.0
    spark_log: str | None = field(default=None, compare=False)

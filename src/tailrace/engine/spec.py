"""What a pipeline is to do, in the engine's own words. The composition root makes it from a configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableRef
from tailrace.sinks.contract import FeedSink, TableSink

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


@dataclass(frozen=True)
class Feed:
    """Send every change of some tables to a feed sink; with `snapshot`, existing rows first."""

    tables: frozenset[TableRef]
    sink: FeedSink
    snapshot: bool = True

    def wants(self, batch: ChangeBatch) -> bool:
        """Whether the batch's table is one of the feed's."""
        return batch.table.ref in self.tables


@dataclass(frozen=True)
class PipelineSpec:
    """One source, one query, any number of mirrors and feeds.

    `options` are those of `format("tailrace")`; `checkpoint` is Spark's checkpoint directory.
    """

    name: str
    options: dict[str, str]
    checkpoint: str
    mirrors: tuple[Mirror, ...] = ()
    feeds: tuple[Feed, ...] = ()
    on_error: Literal["stop", "skip"] = "stop"
    dead_letters: str | None = None
    retry_seconds: float = 300.0
    spark_log: str | None = field(default=None, compare=False)

"""What the indexes of a configuration mean: their plans, their sinks, what they need of capture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tailrace.app.backends import document_sink_for
from tailrace.capture.contract import Capture
from tailrace.model.secret import mask_url

if TYPE_CHECKING:
    from tailrace.config import Config
    from tailrace.engine.spec import Feed, Index, Mirror
    from tailrace.model.table import TableRef
    from tailrace.sinks.contract import DocumentSink
    from tailrace.spark.options import DocumentNeeds


def indexes_of(config: Config, capture: Capture) -> tuple[Index, ...]:
    """The indexes that are enabled. ConfigError names what the source does not have."""
    from tailrace.documents.compile import catalog_of, compile_index
    from tailrace.documents.mapping import derive_mapping
    from tailrace.engine.spec import Index

    catalog = catalog_of(capture)
    return tuple(
        Index(
            name=config.prefix + index.name,
            plan=compile_index(index.name, index.schema_, catalog),
            sink=_sink(config, index.sinks),
            sinks=tuple(sorted(index.sinks)),
            mapping=derive_mapping(index.schema_).to_json(),
            database=mask_url(config.source.url),
            backfill=index.backfill,
            on_error=index.on_error,
        )
        for index in config.indexes
        if index.enabled
    )


def _sink(config: Config, names: Sequence[str]) -> DocumentSink:
    from tailrace.sinks.fanout import FanOut

    cluster = not config.spark.master.startswith("local")
    sinks = {name: document_sink_for(config, name, cluster=cluster) for name in names}
    return FanOut(sinks) if len(sinks) > 1 else next(iter(sinks.values()))


def document_needs(
    capture: Capture,
    indexes: Sequence[Index],
    refs: Iterable[TableRef],
    mirrors: Sequence[Mirror],
    feeds: Sequence[Feed],
) -> DocumentNeeds:
    """What the stream must do for these indexes, beside mirrors and feeds."""
    from tailrace.documents.resolve import needed
    from tailrace.spark.options import DocumentNeeds

    # Whoever else wants rows of a table wants all of them.
    read = {mirror.table for mirror in mirrors}
    read.update(ref for feed in feeds if feed.snapshot for ref in feed.tables)
    roots = {index.root for index in indexes}
    links = needed([index.plan for index in indexes], capture)
    return DocumentNeeds(
        unread=frozenset(str(ref) for ref in refs if ref not in read and ref not in roots),
        keys=frozenset(str(ref) for ref in roots - read),
        links={str(ref): columns for ref, columns in links.items()},
    )

"""Search in the document stores of a configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.app.backends import document_store_for
from tailrace.model.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from tailrace.config import Config
    from tailrace.sinks.contract import Hit


def search(
    config: Config,
    index: str,
    words: Sequence[str],
    *,
    sink: str | None = None,
    limit: int = 10,
    raw: bool = False,
) -> list[Hit]:
    """The best documents of an index that have all the words. `sink` names the store where there are several.

    The index may be named as the file names it, or as the store does, with the prefix.

    Reads the file only: a running pipeline is not disturbed, and none needs to run.
    """
    from tailrace.config import OpenSearchSink, SqliteSink

    stores = {name: one for name, one in config.sinks.items() if isinstance(one, SqliteSink)}
    if index in {one.name for one in config.indexes}:
        index = config.prefix + index
    remedy = 'add one, [sinks.documents] with type = "sqlite" and path = "documents.db"'
    if any(isinstance(one, OpenSearchSink) for one in config.sinks.values()):
        remedy = f"search OpenSearch itself: GET /{index}/_search?q=…; or {remedy}"
    if not stores:
        raise ConfigError(
            "the configuration has no document store to search in",
            remedy=remedy,
            place=str(config.path),
        )
    names = ", ".join(stores)
    if sink is None and len(stores) > 1:
        raise UsageError("there are several document stores", remedy=f"choose one with --sink: {names}")
    if sink is not None and sink not in stores:
        raise UsageError(f"{sink} is no document store", remedy=f"those there are: {names}")
    store = stores[sink] if sink is not None else next(iter(stores.values()))
    return document_store_for(store).search(index, words, limit=limit, raw=raw)

"""Sinks of the tests: indexes of any content under names of their own on the run's server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from tailrace.model.errors import TailraceError
from tailrace.sinks.contract import DocumentBatch, DocumentReport, DocumentSink, Held, Marker
from tailrace.sinks.opensearch import OpenSearchConfig, OpenSearchSink

Make = Callable[..., OpenSearchSink]
# Fields of any content.
MAPPING: dict[str, Any] = {name: {"type": "json", "nullable": True} for name in "naeosvx"} | {
    "of": {"type": "json", "nullable": True}
}


def config_of(url: str, **settings: Any) -> OpenSearchConfig:
    """Settings for a single node, which waits for nobody for long."""
    return OpenSearchConfig(
        url, **{"replicas": 0, "backoff": 0.01, "max_backoff": 0.05, "max_elapsed": 20.0, **settings}
    )


class Named(DocumentSink):
    """A sink whose indexes have a prefix that callers know nothing of, with a mapping that takes anything."""

    def __init__(self, sink: OpenSearchSink, prefix: str) -> None:
        self.sink, self.prefix = sink, prefix

    def _call(self, call: Callable[..., Any], *given: Any) -> Any:
        try:
            return call(*given)
        except TailraceError as error:
            text = error.message.replace(self.prefix, "")
            raise type(error)(text, remedy=error.remedy, place=error.place) from error

    def ensure(self, index: str, generation: str, mapping: Mapping[str, Any]) -> None:  # noqa: ARG002
        self._call(self.sink.ensure, self.prefix + index, generation, MAPPING)

    def seeded(self, index: str) -> Marker | None:
        return self.sink.seeded(self.prefix + index)

    def holds(self, index: str, generation: str) -> bool:
        return self.sink.holds(self.prefix + index, generation)

    def holding(self, index: str, generation: str) -> DocumentSink | None:
        return self if self.sink.holding(self.prefix + index, generation) is not None else None

    def look(self, index: str) -> Held:
        return self.sink.look(self.prefix + index)

    def publish(self, index: str, marker: Marker) -> None:
        self._call(self.sink.publish, self.prefix + index, marker)

    def write(self, batch: DocumentBatch) -> DocumentReport:
        named = DocumentBatch(
            self.prefix + batch.index, batch.generation, batch.ids, batch.documents, batch.version
        )
        found: DocumentReport = self._call(self.sink.write, named)
        return found

    def retire(self, index: str, generation: str, version: int) -> int:
        return int(self._call(self.sink.retire, self.prefix + index, generation, version))

    def flush(self) -> None:
        self.sink.flush()

    def read(self, index: str, generation: str | None = None) -> pa.Table:
        return self._call(self.sink.read, self.prefix + index, generation)

    def drop(self, index: str) -> None:
        self.sink.drop(self.prefix + index)

    def close(self) -> None:
        self.sink.close()

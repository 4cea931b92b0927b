"""OpenSearch as a sink of documents.

**Versions** are the cluster's own: every write and delete has the version of its batch, compared by the shard
that has the document (`external_gte`). A delete is remembered by its shard for `index.gc_deletes`.

**Visible** is what was flushed: the index is refreshed when a live generation was written, so an idle
pipeline shows a change at once. Under load a refresh waits until those before took no more than a part of the
time; then more changes share one. A generation that is being filled is not refreshed by flushes, for nobody
reads it: readers see a generation when it is complete, the first one too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.errors import NeedsOperator, Transient, UsageError
from tailrace.sinks.contract import DocumentBatch, DocumentReport, DocumentSink, Held, Marker
from tailrace.sinks.opensearch.bulk import Bulk, Gone
from tailrace.sinks.opensearch.client import STRANGE, Client, Patience
from tailrace.sinks.opensearch.config import OpenSearchConfig
from tailrace.sinks.opensearch.encode import encode, sift
from tailrace.sinks.opensearch.generations import Generations, Missing, write_alias
from tailrace.sinks.opensearch.read import Hit, Lost, scan

_READ_PAGE, _RETIRE_PAGE = 1_000, 5_000
# So often all documents are read from the beginning again, where reading breaks off.
_SCANS = 5
# A refresh comes no sooner after another than so many times what that one took, and at latest after so long.
_REST, _LONGEST_REST = 4.0, 1.0


class OpenSearchSink(DocumentSink):
    """Documents in indexes of OpenSearch or Elasticsearch. Deletes are remembered for `remember_deletes`."""

    def __init__(self, config: OpenSearchConfig) -> None:
        self._config = config
        self._opened: _Open | None = None
        # Generations that were written and not flushed; whether a generation is live, as far as it is known.
        self._written: set[tuple[str, str]] = set()
        self._live: dict[tuple[str, str], bool] = {}
        self._waiting: Callable[[str, float], None] | None = None
        self._hurried = False

    def __reduce__(self) -> tuple[Any, ...]:
        return (OpenSearchSink, (self._config,))

    def watch(self, waiting: Callable[[str, float], None]) -> None:
        self._waiting = waiting
        if self._opened is not None:
            self._opened.patience.waiting = waiting

    def hurry(self) -> None:
        self._hurried = True
        if self._opened is not None:
            self._opened.patience.hurry()

    def ensure(self, index: str, generation: str, mapping: Mapping[str, Any]) -> None:
        self._begin().generations.ensure(index, generation, mapping)
        self._live.pop((index, generation), None)

    def seeded(self, index: str) -> Marker | None:
        generations = self._begin().generations
        shown = generations.find(index).shown
        # One that cannot be written missed what was written meanwhile, wherever that went.
        return shown.marker if shown is not None and shown.writable and generations.fits(shown) else None

    def holds(self, index: str, generation: str) -> bool:
        generations = self._begin().generations
        found = generations.find(index).writable(generation)
        return found is not None and generations.fits(found)

    def holding(self, index: str, generation: str) -> DocumentSink | None:
        """One that is stored otherwise than it would be now can be written all the same."""
        return self if self._begin().generations.find(index).writable(generation) is not None else None

    def look(self, index: str) -> Held:
        opened = self._begin()
        there = opened.generations.find(index)
        # Readers see what somebody else made, and a run would refuse it.
        opened.generations.refuse(index, there)
        shown = there.shown
        if shown is None:
            return Held()
        marker = shown.marker if opened.generations.fits(shown) else None
        found = opened.client.ask(
            opened.patience,
            "GET",
            f"/{shown.place}/_count",
            allow=(404,),
            shape=lambda said: isinstance(said.get("count"), int),
        )
        return Held(shown.name, marker, found.json.get("count"))

    def publish(self, index: str, marker: Marker) -> None:
        try:
            self._begin().generations.publish(index, marker)
        except Missing:
            raise self._gone(index, marker.generation) from None
        self._live[index, marker.generation] = True

    def write(self, batch: DocumentBatch) -> DocumentReport:
        if not len(batch):
            return DocumentReport()
        ids, documents, rejected = sift(batch)
        items = encode(ids, documents, batch.version)
        # Of what fails some may be written all the same.
        self._written.add((batch.index, batch.generation))
        try:
            tally = self._begin().bulk.send(write_alias(batch.index, batch.generation), items)
        except Gone:
            raise self._gone(batch.index, batch.generation) from None
        report = tally.report(items)
        unsent = len(batch) - len(items) - len(rejected)
        return report + DocumentReport(deleted=unsent, rejected=tuple(rejected))

    def retire(self, index: str, generation: str, version: int) -> int:
        opened, alias = self._begin(), write_alias(index, generation)
        if not opened.generations.refresh(alias):
            raise self._gone(index, generation)
        deleted = 0

        def delete(hits: Sequence[Hit]) -> None:
            nonlocal deleted
            ids = pa.array([hit.id for hit in hits if hit.version < version], pa.string())
            nothing = pa.nulls(len(ids), pa.string())
            report = self.write(DocumentBatch(index, generation, ids, nothing, version))
            for one in report.rejected:
                raise NeedsOperator(
                    f"index {index}: {one.id} could not be deleted, {one.reason}",
                    remedy="look at the cluster's log; the batch comes again when the pipeline is started",
                    place=opened.client.place,
                )
            deleted += report.deleted

        # Again from the beginning where it breaks off: what is deleted is not found any more.
        self._scan(alias, delete, page=_RETIRE_PAGE, texts=False)
        return deleted

    def _scan(self, place: str, take: Callable[[Sequence[Hit]], None], *, page: int, texts: bool) -> None:
        """Every document of a place; one may come twice where reading breaks off and begins anew."""
        opened = self._open()
        fault = STRANGE
        for _ in range(_SCANS):
            try:
                for hits in scan(opened.client, opened.patience, place, page=page, texts=texts):
                    take(hits)
                    opened.patience.advance()
            except Lost as lost:
                fault = lost.fault
                opened.patience.pause(fault)
                opened.generations.refresh(place)
            else:
                return
        raise Transient(
            f"{place} could not be read to its end in {_SCANS} tries: {fault.reason}",
            remedy=fault.remedy or "if it stays so: look at the cluster's log",
            place=opened.client.place,
        )

    def flush(self) -> None:
        while self._written:
            self._begin()
            index, generation = next(iter(self._written))
            if self._is_live(index, generation):
                self._refresh(index, generation)
            self._written.discard((index, generation))

    def _is_live(self, index: str, generation: str) -> bool:
        known = self._live.get((index, generation))
        if known is None:
            shown = self._open().generations.find(index).shown
            known = shown is not None and shown.name == generation and shown.marker is not None
            self._live[index, generation] = known
        return known

    def _refresh(self, index: str, generation: str) -> None:
        opened, key = self._open(), (self._config.url, index)
        with _REFRESHED_LOCK:
            ended, took = _REFRESHED.get(key, (0.0, 0.0))
        rest = ended + min(_REST * took, _LONGEST_REST) - time.monotonic()
        if rest > 0:
            opened.patience.rest(rest)
        begun = time.monotonic()
        if not opened.generations.refresh(write_alias(index, generation)):
            raise self._gone(index, generation)
        with _REFRESHED_LOCK:
            _REFRESHED[key] = (time.monotonic(), time.monotonic() - begun)

    def read(self, index: str, generation: str | None = None) -> pa.Table:
        opened = self._begin()
        found = opened.generations.find(index)
        which = found.shown or found.first if generation is None else found.writable(generation)
        if which is None:
            what = f"index {index}" if generation is None else f"generation {generation} of index {index}"
            raise UsageError(f"there is no {what} in the cluster {opened.client.place}")
        opened.generations.refresh(which.place)
        found_hits: dict[str, Hit] = {}
        self._scan(
            which.place,
            lambda page: found_hits.update((hit.id, hit) for hit in page),
            page=_READ_PAGE,
            texts=True,
        )
        hits = list(found_hits.values())
        table = pa.table(
            [
                pa.array([hit.id for hit in hits], pa.string()),
                pa.array([hit.version for hit in hits], pa.int64()),
                pa.array([hit.document for hit in hits], pa.large_string()),
            ],
            names=["id", "version", "document"],
        )
        return table.take(pc.sort_indices(table, [("id", "ascending")]))

    def drop(self, index: str) -> None:
        generations = self._begin().generations
        left = generations.remove(generations.find(index).generations)
        self._forget(index)
        if left:
            raise Transient(
                f"index {index} could not be removed: the cluster keeps {', '.join(left)} for now",
                remedy="wait until the backup that is being made of it is complete, or take its block away",
                place=self._open().client.place,
            )

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
        self._opened = None
        self._written.clear()
        self._live.clear()

    def _forget(self, index: str) -> None:
        self._written = {key for key in self._written if key[0] != index}
        self._live = {key: live for key, live in self._live.items() if key[0] != index}

    def _begin(self) -> _Open:
        """What is open, for a call that begins."""
        opened = self._open()
        opened.patience.begin()
        return opened

    def _open(self) -> _Open:
        if self._opened is None:
            self._opened = _Open(self._config)
            self._opened.patience.waiting = self._waiting
            if self._hurried:
                self._opened.patience.hurry()
        return self._opened

    def _gone(self, index: str, generation: str) -> NeedsOperator:
        opened = self._open()
        self._forget(index)
        found = opened.generations.find(index).generations
        if not found:
            return NeedsOperator(
                f"the cluster {opened.client.place} has no index {index}: was it deleted?",
                remedy="start the pipeline again; it fills the index anew",
            )
        if not any(one.shown or one.writable for one in found):
            return NeedsOperator(
                f"generation {generation} of index {index} is gone, and none but older ones are there:"
                " was it deleted?",
                remedy="start the pipeline again; it fills the index anew",
                place=opened.client.place,
            )
        return NeedsOperator(
            f"generation {generation} of index {index} is gone: another filling has taken its place",
            remedy="start the pipeline again; it goes on with the filling that there is, or begins a new one",
            place=opened.client.place,
        )


# When the index of a cluster was refreshed last by this process, and how long that took. Sinks come and go
# with the tasks of Spark, and the process stays.
_REFRESHED: dict[tuple[str, str], tuple[float, float]] = {}
_REFRESHED_LOCK = threading.Lock()


class _Open:
    """What a sink has open: connections, and threads where it sends several requests at a time."""

    def __init__(self, config: OpenSearchConfig) -> None:
        self.client = Client(config)
        self.patience = Patience(config, self.client.place)
        self.generations = Generations(self.client, self.patience)
        self._threads = (
            ThreadPoolExecutor(config.parallel, "tailrace-opensearch") if config.parallel > 1 else None
        )
        self.bulk = Bulk(self.client, self.patience, self._threads)

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        self.client.close()

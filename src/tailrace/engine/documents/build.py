"""Building documents of some keys and writing them: the same in the driver and on executors.

Keys go in pieces, each one statement to the source, and what it answers is written as it comes, so memory is
bounded whatever the number and the size of the documents. A key that yields no row has no document: it is
deleted. Where the source cannot compute a document (a division by zero in an expression), the piece is halved
until the ones to blame are alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tailrace.capture.contract import Capture, Chunk
from tailrace.changelog.filesystem import open_filesystem
from tailrace.documents.plan import IndexPlan
from tailrace.documents.render import Keys, build_query
from tailrace.documents.render.query import Query
from tailrace.documents.resolve import Affected, Resolver
from tailrace.model.errors import DataError
from tailrace.sinks.contract import DocumentBatch, DocumentReport, DocumentSink, Rejection
from tailrace.spark.lending import lent_capture
from tailrace.spark.options import SourceOptions

# Keys of one statement.
PIECE = 2_000


@dataclass(frozen=True)
class Build:
    """Documents of one index, written to one generation as of one version. Travels pickled to executors.

    With `strict` a piece with a document that cannot be computed or is rejected ends it. `query` is the
    plan's statement for keys, where it was rendered before: that takes longer than building few documents.
    `also` is another generation that gets the same documents, by the sink that has it.
    """

    plan: IndexPlan
    index: str
    generation: str
    version: int
    sink: DocumentSink
    strict: bool = True
    query: Query | None = None
    also: tuple[str, DocumentSink] | None = None

    def keys(self, capture: Capture, keys: pa.Table) -> DocumentReport:
        """Build and write the documents of these keys (`Affected.keys`), flushed."""
        report = self.pieces(capture, [keys])
        self.flush()
        return report

    def chunk(self, capture: Capture, chunk: Chunk) -> DocumentReport:
        """Build and write the documents of all root rows of a chunk, flushed."""
        report = self.pieces(capture, self.keys_of(capture, chunk))
        self.flush()
        return report

    def pieces(self, capture: Capture, keys: Iterable[pa.Table]) -> DocumentReport:
        """The same of several tables of keys, not flushed: that may take as long as writing does."""
        query = self.query or build_query(self.plan, capture.dialect, Keys())
        report = DocumentReport()
        for one in keys:
            for start in range(0, one.num_rows, PIECE):
                report += self._piece(capture, query, Affected(one.slice(start, PIECE)))
                if self.strict and report.rejected:
                    raise rejected(self.index, report.rejected)
        return report

    def keys_of(self, capture: Capture, chunk: Chunk) -> Iterator[pa.Table]:
        """The keys of the root rows of a chunk."""
        table = capture.describe(self.plan.root.table.ref)
        resolver = roots_only(self.plan, capture.dialect)
        rows = capture.snapshot(table, chunk, position=1, seq=0, columns=self.plan.root.key)
        for batch in rows:
            yield resolver.resolve([batch], capture).keys

    def _piece(self, capture: Capture, query: Query, asked: Affected) -> DocumentReport:
        try:
            return self._written(capture, query, asked)
        except DataError as error:
            if len(asked) == 1:
                return DocumentReport(rejected=(Rejection(asked.ids[0].as_py(), error.message),))
        half = len(asked) // 2
        first, second = asked.keys.slice(0, half), asked.keys.slice(half)
        return self._piece(capture, query, Affected(first)) + self._piece(capture, query, Affected(second))

    def _written(self, capture: Capture, query: Query, asked: Affected) -> DocumentReport:
        report = DocumentReport()
        missing = ids = asked.ids
        found: list[pa.Array] = []
        for batch in capture.query(query.sql, query.bind(asked.keys), query.columns):
            made, documents = batch.column(0), batch.column(1)
            found.append(made)
            report += self.write(made, documents)
        if found:
            missing = ids.filter(pc.invert(pc.is_in(ids, value_set=pa.concat_arrays(found))))
        if len(missing):
            report += self.write(missing, pa.nulls(len(missing), pa.string()))
        return report

    def write(self, ids: pa.Array, documents: pa.Array) -> DocumentReport:
        """Write documents that are built, not flushed."""
        batch = DocumentBatch(self.index, self.generation, ids, documents, self.version)
        report = self.sink.write(batch)
        if self.also is None:
            return report
        generation, sink = self.also
        return _of_both(report, sink.write(replace(batch, generation=generation)))

    def retire(self) -> int:
        """Delete what every document is newer than; flushed."""
        deleted = self.sink.retire(self.index, self.generation, self.version)
        if self.also is not None:
            generation, sink = self.also
            sink.retire(self.index, generation, self.version)
        self.flush()
        return deleted

    def flush(self) -> None:
        """Return when all that was written is durable and can be read."""
        self.sink.flush()
        if self.also is not None and self.also[1] is not self.sink:
            self.also[1].flush()

    def close(self) -> None:
        """Let go of the sinks."""
        self.sink.close()
        if self.also is not None:
            self.also[1].close()


@dataclass(frozen=True)
class Task:
    """What one task of Spark does: `keys`, Arrow tables as bytes, `chunks` of the root table, or `files`.

    Files have documents that are built already, and lie on the filesystem of the state directory.
    """

    build: Build
    source: SourceOptions
    keys: tuple[bytes, ...] = ()
    chunks: tuple[Chunk, ...] = ()
    files: tuple[str, ...] = ()

    def run(self) -> DocumentReport:
        """Build, write, flush."""
        with closing(self.build):
            return self._written() if self.files else self._built()

    def _built(self) -> DocumentReport:
        with lent_capture(self.source) as capture:
            report = self.build.pieces(capture, map(unpacked, self.keys))
            for chunk in self.chunks:
                report += self.build.pieces(capture, self.build.keys_of(capture, chunk))
        self.build.flush()
        return report

    def _written(self) -> DocumentReport:
        report = DocumentReport()
        fs, _ = open_filesystem(self.source.state_dir or "")
        for path in self.files:
            with fs.open_input_file(path) as file:
                for batch in pq.ParquetFile(file).iter_batches(PIECE):
                    report += self.build.write(batch.column(0), batch.column(1))
        self.build.flush()
        return report


def _of_both(report: DocumentReport, other: DocumentReport) -> DocumentReport:
    """The first report with what only the other generation rejected, and its notes."""
    known = {one.id for one in report.rejected}
    more = tuple(one for one in other.rejected if one.id not in known)
    return replace(report, rejected=report.rejected + more, notes=report.notes + other.notes)


def rejected(index: str, found: tuple[Rejection, ...] | list[Rejection]) -> DataError:
    """The error that stops a pipeline for documents that cannot be kept."""
    first = found[0]
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return DataError(
        f"index {index}: the document {first.id} was rejected: {first.reason}{more}",
        remedy="mend the row or the index schema and run again, or pass such documents over: on_error ="
        ' "skip" in its [[index]]',
    )


def roots_only(plan: IndexPlan, dialect: str) -> Resolver:
    """A resolver that sees the plan's root alone: rows of it that were read mean their own documents."""
    return Resolver(replace(plan, root=replace(plan.root, members=())), dialect)


def packed(keys: pa.Table) -> bytes:
    """Keys as bytes, whatever their types."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, keys.schema) as writer:
        writer.write_table(keys)
    return bytes(sink.getvalue().to_pybytes())


def unpacked(data: bytes) -> pa.Table:
    """The keys again."""
    return pa.ipc.open_stream(data).read_all()

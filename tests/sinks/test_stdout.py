"""Lines on a stream: whole, in order, flushed; and a reader that leaves is told apart from other faults."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tailrace.model.errors import NeedsOperator, Transient, UsageError
from tailrace.sinks.contract import DocumentReport, Progress
from tailrace.sinks.stdout import StdoutConfig, StdoutDocumentSink, StdoutSink
from tests.model.changes import batch_of as changes_of
from tests.model.changes import table_of
from tests.sinks.documents import FIRST, MARKER, batch_of

PROGRESS = Progress("p", 0, 9)


def batch(name: str, order: list[tuple[int, int]]) -> Any:
    table = table_of({"id": "long"}, name=name)
    return changes_of(table, [{"op": "c", "position": p, "seq": s, "after": {"id": p}} for p, s in order])


def test_tables_are_interleaved_in_the_order_of_the_source() -> None:
    stream = io.BytesIO()
    report = StdoutSink(StdoutConfig(stream)).write(
        [batch("a", [(1, 0), (3, 1)]), batch("b", [(2, 0), (3, 0)])], PROGRESS
    )
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["table"], line["position"]) for line in found] == [("a", 1), ("b", 2), ("b", 3), ("a", 3)]
    assert report.written == 4


def test_a_batch_is_with_the_reader_when_write_returns() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", buffering=0) as out, os.fdopen(writer, "wb") as stream:
        StdoutSink(StdoutConfig(stream)).write([batch("a", [(1, 0)])], PROGRESS)
        assert out.read(65536).endswith(b"\n")


def test_a_stream_that_takes_little_at_a_time_gets_everything() -> None:
    class Slow(io.RawIOBase):
        got = b""

        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            self.got += bytes(data[:7])
            return min(7, len(data))

    slow = Slow()
    StdoutSink(StdoutConfig(slow)).write([batch("a", [(i, 0) for i in range(5)])], PROGRESS)  # type: ignore[arg-type]
    assert [json.loads(line)["position"] for line in slow.got.splitlines()] == [0, 1, 2, 3, 4]


def test_a_reader_that_went_away_is_said_so() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "wb", buffering=0)
    with stream, pytest.raises(NeedsOperator, match="closed by its reader"):
        StdoutSink(StdoutConfig(stream)).write([batch("a", [(1, 0)])], PROGRESS)


def test_a_full_disk_is_transient() -> None:
    with Path("/dev/full").open("wb", buffering=0) as stream, pytest.raises(Transient, match="No space"):
        StdoutSink(StdoutConfig(stream)).write([batch("a", [(1, 0)])], PROGRESS)


CHILD = """
import sys
from tests.sinks.test_stdout import *
sink = StdoutSink()
try:
    while True:
        sink.write([batch("a", [(i, 0) for i in range(500)])], PROGRESS)
except NeedsOperator as error:
    sys.exit(error.exit_code)
"""


def test_a_process_whose_reader_left_ends_with_its_own_code_and_no_noise(root: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None
    assert json.loads(child.stdout.readline())["op"] == "c"
    child.stdout.close()
    assert child.stderr is not None
    noise = child.stderr.read()
    child.stderr.close()
    assert child.wait(60) == NeedsOperator.exit_code
    assert noise == b""


def test_documents_are_lines_with_their_text_as_it_is() -> None:
    stream = io.BytesIO()
    sink = StdoutDocumentSink(StdoutConfig(stream))
    sink.ensure('c"s', FIRST, {})
    documents = {'1"\n\0': '{"n": 1.50,"s":"ä\\n"}', "2": None, "3": '{\n "a": 1,\r\n "b": "x"}'}
    report = sink.write(batch_of(7, documents, 'c"s'))
    sink.flush()
    assert report == DocumentReport(written=2, deleted=1)
    lines = stream.getvalue().decode().splitlines(keepends=True)
    assert lines[0] == (
        '{"index":"c\\"s","generation":"first","id":"1\\"\\n\\u0000","version":7,'
        '"document":{"n": 1.50,"s":"ä\\n"}}\n'
    )
    assert lines[1] == '{"index":"c\\"s","generation":"first","id":"2","version":7,"document":null}\n'
    assert json.loads(lines[2])["document"] == {"a": 1, "b": "x"}
    assert len(lines) == 3


def test_a_stream_keeps_no_documents_and_says_so() -> None:
    sink = StdoutDocumentSink(StdoutConfig(io.BytesIO()))
    assert sink.local
    assert not sink.keeps
    assert sink.write(batch_of(1, {})) == DocumentReport()
    sink.publish("i", MARKER)
    assert sink.seeded("i") is None
    with pytest.raises(UsageError, match="standard output"):
        sink.read("i")
    sink.drop("i")
    sink.close()

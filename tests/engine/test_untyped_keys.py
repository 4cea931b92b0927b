"""A key that is the number 1 and a key that is the text '1' are two keys, and never become one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.capture.sqlite.capture import SqliteCapture
from tailrace.capture.sqlite.config import SqliteConfig
from tailrace.model.errors import DataError
from tailrace.model.net import net
from tailrace.model.views import net_view
from tailrace.sinks.contract import Progress
from tailrace.sinks.delta.config import DeltaConfig
from tailrace.sinks.delta.sink import DeltaSink
from tests.support.shop import Shop


def test_a_mirror_refuses_numbers_in_a_key_of_text_and_takes_them_once_typed(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.run("CREATE TABLE t (k PRIMARY KEY, v TEXT)", "INSERT INTO t VALUES (1, 'number'), (2, 'other')")
    sink = DeltaSink(DeltaConfig(str(tmp_path / "lake")))
    for types, fits in (({}, False), ({"t.k": "long"}, True)):
        capture = SqliteCapture(SqliteConfig.from_url(shop.url, {"types": types}))
        ref = capture.resolve(["t"])[0]
        chunk = capture.plan(ref, rows_per_chunk=100)[0]
        changes = net(list(capture.snapshot(capture.describe(ref), chunk, position=1, seq=1)))
        capture.close()
        if fits:
            sink.apply("t", changes, Progress("p", 0, 1))
            assert sorted(sink.read("t")["k"].to_pylist()) == [1, 2]
            continue
        with pytest.raises(DataError, match="key column k") as caught:
            sink.apply("t", changes, Progress("p", 0, 1))
        assert '"t.k" = "long"' in str(caught.value.remedy)
        with pytest.raises(DataError, match="key column k"):
            net_view(changes)

"""Several writers of one Delta table, and killed ones: nothing is lost, doubled or left behind."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tailrace.model.errors import Transient
from tailrace.model.net import NetChanges
from tailrace.sinks.contract import Progress
from tailrace.sinks.delta import DeltaConfig, DeltaSink
from tailrace.sinks.memory import MemoryTableSink
from tests.sinks.deltas import TABLE, change, changes, content, log, row, version


def test_a_conflicting_commit_is_looked_at_again(
    sink: DeltaSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.apply("orders", changes(change("c", 1, None, row(1))), log(0, 1))
    sink.apply("orders", changes(change("c", 2, None, row(2))), log(1, 2))
    target = sink._target("orders")
    merge = target.merge
    met: list[int] = []

    def interfere(*args: Any) -> Any:
        if not met:
            met.append(1)
            twin = DeltaSink(DeltaConfig(str(tmp_path)))
            twin.apply("orders", changes(change("u", 3, None, row(1, "y"))), log(2, 3))
        return merge(*args)

    monkeypatch.setattr(target, "merge", interfere)
    report = sink.apply("orders", changes(change("u", 3, None, row(1, "y"))), log(2, 3))
    assert met
    assert report.skipped, "the twin's commit holds the batch already"
    assert content(sink) == [row(1, "y"), row(2)]


def test_writers_that_never_stop_make_it_transient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = DeltaSink(DeltaConfig(str(tmp_path), attempts=2))
    sink.apply("orders", changes(change("c", 1, None, row(1))), log(0, 1))
    target = sink._target("orders")
    merge = target.merge

    def interfere(*args: Any) -> Any:
        DeltaTable(tmp_path / "orders").update({"name": "'other'"})
        return merge(*args)

    monkeypatch.setattr(target, "merge", interfere)
    with pytest.raises(Transient):
        sink.apply("orders", changes(change("u", 2, None, row(1, "y"))), log(1, 2))


def test_twins_that_create_a_table_at_once_do_not_lose_the_later_ones_rows(
    sink: DeltaSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = sink._target("orders")
    start = target.start
    met: list[int] = []
    batch = changes(change("c", 1, None, row(1)))

    def interfere(*args: Any) -> Any:
        met.append(1)
        twin = DeltaSink(DeltaConfig(str(tmp_path)))
        twin.apply("orders", batch, log(0, 1))
        twin.apply("orders", changes(change("c", 2, None, row(2))), log(1, 2))
        return start(*args)

    monkeypatch.setattr(target, "start", interfere)
    assert sink.apply("orders", batch, log(0, 1)).skipped
    assert met == [1]
    assert content(sink) == [row(1), row(2)]


def test_twins_that_fill_an_empty_table_at_once_do_not_double_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, twin = DeltaSink(DeltaConfig(str(tmp_path))), DeltaSink(DeltaConfig(str(tmp_path)))
    sink.ensure("orders", TABLE)
    target = sink._target("orders")
    write = target.write
    met: list[int] = []
    batch = changes(change("c", 1, None, row(1)))

    def interfere(*args: Any) -> Any:
        if not met:
            met.append(1)
            twin.apply("orders", batch, log(0, 1))
        return write(*args)

    monkeypatch.setattr(target, "write", interfere)
    sink.apply("orders", batch, log(0, 1))
    assert met
    assert content(sink) == [row(1)]


CHILD = """
import os, signal, sys
from tests.sinks.test_delta_writers import *
sink = DeltaSink(DeltaConfig(sys.argv[1]))
batch = changes(change("u", 2, None, row(1, "new")), change("c", 2, None, row(2)))
sink.apply("orders", batch, log(1, 2))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_killed_after_the_commit_and_before_its_reply_repeats_harmlessly(
    sink: DeltaSink, tmp_path: Path, root: Path
) -> None:
    sink.apply("orders", changes(change("c", 1, None, row(1))), log(0, 1))
    ended = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path)], cwd=root, check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    before = version(tmp_path)
    batch = changes(change("u", 2, None, row(1, "new")), change("c", 2, None, row(2)))
    assert sink.apply("orders", batch, log(1, 2)).skipped
    assert version(tmp_path) == before
    assert content(sink) == [row(1, "new"), row(2)]


def numbered(i: int) -> tuple[NetChanges, Progress]:
    """Batch i of a life of 60: a new row, a changed one, now and then a deleted one."""
    items = [change("c", i, None, row(i, "new")), change("u", i, None, row(i // 2, f"at {i}"))]
    if i % 5 == 0:
        items.append(change("d", i, row(i - 3)))
    return changes(*items), log(i - 1, i)


ENDLESS = """
import sys
from tests.sinks.test_delta_writers import *
sink = DeltaSink(DeltaConfig(sys.argv[1], maintain_every=7, retention_hours=0))
for i in range(1, 61):
    sink.apply("orders", *numbered(i))
    print(i, flush=True)
sys.stdin.read()
"""


def test_a_process_killed_anywhere_leaves_a_table_that_a_replay_completes(tmp_path: Path, root: Path) -> None:
    kills = 0
    for after in (1, 9, 20):
        child = subprocess.Popen(
            [sys.executable, "-c", ENDLESS, str(tmp_path)],
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        for _ in range(after):
            child.stdout.readline()
        threading.Event().wait(random.uniform(0, 0.03))
        child.kill()
        child.stdin.close()
        child.stdout.close()
        kills += child.wait(60) == -signal.SIGKILL
    assert kills == 3
    sink, oracle = DeltaSink(DeltaConfig(str(tmp_path))), MemoryTableSink()
    for i in range(1, 61):
        sink.apply("orders", *numbered(i))
        oracle.apply("orders", *numbered(i))
    assert content(sink) == content(oracle)


def test_files_and_log_stay_bounded(tmp_path: Path) -> None:
    sink = DeltaSink(DeltaConfig(str(tmp_path), maintain_every=5, retention_hours=0))
    orphan = tmp_path / "orders" / "part-of-a-killed-writer.parquet"
    for i in range(1, 24):
        if i == 2:
            orphan.write_bytes(b"")
        report = sink.apply(
            "orders",
            changes(change("c", i, None, row(i)), change("u", i, None, row(1, str(i)))),
            log(i - 1, i),
        )
        assert report.notes == ()
    assert not orphan.exists()
    assert content(sink) == sorted(
        [row(1, "23"), *(row(i) for i in range(2, 24))], key=lambda r: str(r["id"])
    )
    assert len(list((tmp_path / "orders").glob("*.parquet"))) <= 5
    assert len(list((tmp_path / "orders" / "_delta_log").glob("*.json"))) <= 12
    assert list((tmp_path / "orders" / "_delta_log").glob("*.checkpoint*.parquet"))
    assert (
        DeltaSink(DeltaConfig(str(tmp_path)))
        .apply("orders", changes(change("c", 1, None, row(1))), log(0, 1))
        .skipped
    )

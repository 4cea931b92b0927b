"""Where a start begins: every row of its table, and the configuration that is judged before."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tailrace.capture.scripted import ALL, ScriptedCapture
from tailrace.model.errors import ConfigError, IdentityMismatch, LogLost, SchemaDrift, StateUnreadable
from tailrace.runtime.checkpoint import Checkpoint, Cursor
from tests.runtime.support import Bench, drain, row, rows_of


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def _half_read(bench: Bench, **settings: Any) -> None:
    """Four rows, a snapshot of chunks of two, and a life that confirmed the first chunk."""
    bench.source.insert(bench.items, *(row(number) for number in range(4)))
    runtime = bench.started(mode="snapshot_then_changes", max_rows=3, rows_per_chunk=2, **settings)
    delivery = runtime.poll()
    assert rows_of(delivery) == [("s", None), ("r", 0), ("r", 1)]
    assert delivery is not None
    runtime.acknowledge(delivery.token)
    runtime.force_stop()


def test_no_checkpoint_and_nothing_to_snapshot_streams_from_now_which_is_recorded_first(bench: Bench) -> None:
    bench.source.insert(bench.items, row(1))
    runtime = bench.runtime(mode="changes")
    assert runtime.start().how == "stream from now"
    assert bench.stored().position.version == 1
    bench.source.insert(bench.items, row(2))
    assert drain(runtime) == [("c", 2)]
    runtime.stop()


def test_no_checkpoint_and_tables_snapshots_them_and_streams_from_before(bench: Bench) -> None:
    bench.source.insert(bench.items, row(1))
    runtime = bench.runtime(mode="snapshot_then_changes")
    assert runtime.start().how == "snapshot"
    assert bench.stored().snapshotting
    assert bench.stored().position.version == 1
    assert drain(runtime) == [("s", None), ("r", 1)]
    bench.source.insert(bench.items, row(2))
    assert drain(runtime) == [("c", 2)]
    runtime.stop()


@pytest.mark.parametrize("mode", ["changes", "snapshot_then_changes"])
def test_a_stream_position_streams_from_it_without_a_snapshot(bench: Bench, mode: str) -> None:
    bench.source.insert(bench.items, row(1))
    bench.write(Checkpoint("scripted", bench.source.at(1), generations={"main.items": "1"}))
    bench.source.insert(bench.items, row(2))
    runtime = bench.runtime(mode=mode)
    assert runtime.start().how == "stream"
    assert drain(runtime) == [("c", 2)]
    runtime.stop()


@pytest.mark.parametrize("order", ["interleaved", "first"])
def test_a_snapshot_position_goes_on_from_its_chunk_and_streams_from_its_position(
    bench: Bench, order: str
) -> None:
    _half_read(bench, order=order)
    bench.source.insert(bench.items, row(9))
    runtime = bench.runtime(mode="snapshot_then_changes", order=order, rows_per_chunk=2)
    assert runtime.start().how == "snapshot goes on"
    found = drain(runtime)
    assert ("s", None) not in found
    assert sorted(found) == [("c", 9), ("r", 2), ("r", 3), ("r", 9)]
    runtime.stop()
    assert not bench.stored().snapshotting


def test_a_snapshot_that_cannot_be_resumed_is_taken_again_with_a_warning(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    _half_read(bench)
    bench.capture = ScriptedCapture(bench.source, capabilities=replace(ALL, resumable_snapshot=False))
    runtime = bench.runtime(mode="snapshot_then_changes")
    with caplog.at_level(logging.WARNING):
        assert runtime.start().how == "snapshot again"
    assert "cannot resume a snapshot" in caplog.text
    assert bench.observer.count("runtime.start.snapshot_again") == 1
    assert drain(runtime) == [("s", None), ("r", 0), ("r", 1), ("r", 2), ("r", 3)]
    runtime.stop()


def test_a_snapshot_position_without_tables_is_a_configuration_error(bench: Bench) -> None:
    _half_read(bench)
    for settings in ({"tables": [], "mode": "snapshot_then_changes"}, {"mode": "changes"}):
        runtime = bench.runtime(**settings)
        with pytest.raises(ConfigError, match=r"must be named: main.items"):
            runtime.start()
        assert runtime.state == "idle"


def test_a_snapshot_position_with_another_table_only_is_a_configuration_error(bench: Bench) -> None:
    _half_read(bench)
    other = bench.source.table("other")
    with pytest.raises(ConfigError, match=r"must be named: main.items"):
        bench.runtime([other], mode="snapshot_then_changes").start()


@pytest.mark.parametrize(("stored", "configured"), [("first", "interleaved"), ("interleaved", "first")])
def test_the_two_orders_do_not_mix(bench: Bench, stored: str, configured: str) -> None:
    _half_read(bench, order=stored)
    runtime = bench.runtime(mode="snapshot_then_changes", order=configured)
    with pytest.raises(ConfigError, match=r"orders do not mix"):
        runtime.start()
    assert bench.observer.count("runtime.start.begin") == 1


def test_chunk_cursors_and_a_stream_position_both_go_on(bench: Bench) -> None:
    bench.source.insert(bench.items, *(row(number) for number in range(4)))
    settings: dict[str, Any] = {"mode": "snapshot_then_changes", "max_rows": 3, "rows_per_chunk": 2}
    runtime = bench.started(**settings)
    bench.source.insert(bench.items, row(5))
    delivery = runtime.poll()
    assert rows_of(delivery) == [("c", 5)]
    assert delivery is not None
    runtime.acknowledge(delivery.token)
    second = runtime.poll()
    assert rows_of(second) == [("s", None), ("r", 0), ("r", 1)]
    assert second is not None
    runtime.acknowledge(second.token)
    runtime.force_stop()
    stored = bench.stored()
    assert (stored.position.version, stored.cursors[bench.items].next) == (2, 1)
    bench.source.insert(bench.items, row(6))
    runtime = bench.runtime(**settings)
    runtime.start()
    assert drain(runtime) == [("c", 6), ("r", 2), ("r", 3), ("r", 5), ("r", 6)]
    runtime.stop()


def test_asking_for_both_orders_is_a_configuration_error_before_anything_is_opened(bench: Bench) -> None:
    runtime = bench.runtime(mode="snapshot_then_changes", order=("interleaved", "first"))
    with pytest.raises(ConfigError, match=r"not both"):
        runtime.start()
    assert bench.observer.count("runtime.start.config") == 1
    assert bench.source.cursors == {}
    assert not (bench.path / "runtime").exists()


@pytest.mark.parametrize(
    "settings",
    [{"mode": "sometimes"}, {"mode": "snapshot", "order": "last"}, {"mode": "snapshot", "tables": []}],
)
def test_a_configuration_without_sense_is_refused(bench: Bench, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        bench.runtime(**settings).start()


def test_capabilities_are_asked(bench: Bench) -> None:
    bench.capture = ScriptedCapture(bench.source, capabilities=replace(ALL, snapshot=False))
    with pytest.raises(ConfigError, match=r"snapshot"):
        bench.runtime(mode="snapshot").start()
    bench.capture = ScriptedCapture(bench.source, capabilities=replace(ALL, interleaved_snapshot=False))
    with pytest.raises(ConfigError, match=r"interleave"):
        bench.runtime(mode="snapshot_then_changes").start()
    bench.started(mode="snapshot_then_changes", order="first").close()


def test_without_tables_every_capturable_one_is_streamed(bench: Bench) -> None:
    other = bench.source.table("other")
    runtime = bench.started(tables=[])
    bench.source.insert(other, row(1))
    bench.source.insert(bench.items, row(2))
    assert drain(runtime) == [("c", 1), ("c", 2)]
    runtime.stop()


def test_an_unreadable_checkpoint_is_an_error_and_never_none(bench: Bench) -> None:
    bench.started().stop()
    bench.checkpoint_file.write_bytes(bench.checkpoint_file.read_bytes()[:-7])
    runtime = bench.runtime()
    with pytest.raises(StateUnreadable):
        runtime.start()
    assert bench.observer.count("runtime.start.checkpoint") == 1
    assert runtime.state == "idle"


def test_a_committed_count_that_is_none_stops_the_start_under_its_name(bench: Bench) -> None:
    bench.started().stop()
    broken = replace(bench.stored(), committed=-5)
    bench.write(broken)
    with pytest.raises(StateUnreadable, match=r"committed"):
        bench.runtime().start()
    assert bench.observer.count("runtime.start.committed_count") == 1


def test_a_position_beyond_the_log_is_refused(bench: Bench) -> None:
    bench.write(Checkpoint("scripted", bench.source.at(7), generations={"main.items": "1"}))
    with pytest.raises(StateUnreadable, match=r"beyond the log"):
        bench.runtime().start()


def test_another_source_is_refused_by_identity(bench: Bench) -> None:
    bench.started().stop()
    bench.source.name = "another"
    with pytest.raises(IdentityMismatch, match=r"another answers"):
        bench.runtime().start()


def test_a_source_restored_from_a_backup_is_refused(bench: Bench) -> None:
    runtime = bench.started()
    for number in range(3):
        bench.source.insert(bench.items, row(number))
        drain(runtime)
    runtime.stop()
    bench.source.cursors["test"] = 0
    with pytest.raises(IdentityMismatch, match=r"restored from an older copy"):
        bench.runtime().start()


def test_a_purged_log_stops_the_start_with_its_first_available_position(bench: Bench) -> None:
    bench.started().stop()
    for number in range(3):
        bench.source.insert(bench.items, row(number))
    bench.source.prune(2)
    runtime = bench.runtime()
    with pytest.raises(LogLost, match=r"begins after 2"):
        runtime.start()
    assert (runtime.state, bench.capture.open_lives) == ("idle", 0)


def test_a_table_whose_capture_began_anew_is_read_again(bench: Bench) -> None:
    bench.source.insert(bench.items, row(1))
    runtime = bench.started(mode="snapshot_then_changes")
    drain(runtime)
    runtime.stop()
    bench.source.recreate(bench.items)
    runtime.start()
    assert bench.observer.count("runtime.start.table_again") == 1
    assert drain(runtime) == [("s", None), ("r", 1)]
    runtime.stop()
    assert bench.stored().generations == {"main.items": "2"}
    runtime.start()
    assert drain(runtime) == []
    runtime.stop()


def test_a_table_whose_capture_began_anew_stops_a_stream_of_changes(bench: Bench) -> None:
    bench.started(mode="changes").stop()
    bench.source.recreate(bench.items)
    with pytest.raises(SchemaDrift, match=r"main\.items began anew"):
        bench.runtime(mode="changes").start()


def test_a_table_that_is_new_in_the_configuration_is_read(bench: Bench) -> None:
    bench.source.insert(bench.items, row(1))
    runtime = bench.started(mode="snapshot_then_changes")
    drain(runtime)
    runtime.stop()
    other = bench.source.table("other")
    bench.source.insert(other, row(7))
    runtime = bench.started(tables=[bench.items, other], mode="snapshot_then_changes")
    assert [change for change in drain(runtime) if change[0] in "sr"] == [("s", None), ("r", 7)]
    runtime.stop()


def test_a_missing_retention_of_schema_history_is_reported_loudly(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.capture = ScriptedCapture(bench.source, capabilities=replace(ALL, schema_events=True))
    bench.started().close()
    assert "grows without end" in caplog.text
    assert bench.observer.count("runtime.start.schema_retention") == 1
    bench.capture = ScriptedCapture(bench.source, capabilities=replace(ALL, schema_events=True))
    bench.started(schema_retention=86400.0).close()
    assert bench.observer.count("runtime.start.schema_retention") == 1


def test_a_cursor_that_contradicts_itself_is_unreadable(bench: Bench) -> None:
    bench.write(
        Checkpoint(
            "scripted", bench.source.at(0), cursors={bench.items: Cursor(bench.items, "p", next=3, of=2)}
        )
    )
    with pytest.raises(StateUnreadable, match=r"contradicts itself"):
        bench.store().load()

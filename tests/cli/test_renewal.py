"""When a running pipeline begins again with its file as it is now, and when it does not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tailrace.app import Renewal, pipeline_spec, renewal
from tailrace.capture.sqlite import SqliteCapture
from tailrace.changelog.filesystem import open_filesystem
from tailrace.config import load_config
from tailrace.model.errors import Transient
from tailrace.model.table import TableRef
from tailrace.runtime.observer import Recorder
from tailrace.spark.plans import PlanStore
from tests.cli.command import MIRRORS, make_shop

ORDERS = '\n[[table]]\nname = "orders"\n'
LOOSE = TableRef("main", "loose")


class Running:
    """A run that mirrors the customers, as far as its renewal goes."""

    def __init__(self, directory: Path) -> None:
        make_shop(directory / "shop.db")
        self.file = directory / "tailrace.toml"
        self.file.write_text(MIRRORS.replace(ORDERS, ""))
        self.state = directory / ".tailrace"
        self.plans = PlanStore(*open_filesystem(str(self.state)))
        self.observer = Recorder()
        config = load_config(self.file)
        self.renewal = Renewal(config, pipeline_spec(config), self.observer)

    def due(self) -> bool:
        """Whether it begins again; what it is to run is another only then."""
        before = self.renewal.config, self.renewal.spec
        due = self.renewal.due()
        assert due == (self.renewal.spec is not before[1])
        assert due == (self.renewal.config is not before[0])
        return due


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Running:
    monkeypatch.setattr(renewal, "LOOK_SECONDS", 0.0)
    return Running(tmp_path)


def test_a_request_for_a_table_that_the_file_has_now_begins_the_run_again_once(run: Running) -> None:
    assert not run.due()
    run.file.write_text(MIRRORS)
    run.plans.request(TableRef("main", "orders"))
    assert run.due()
    assert not run.due()
    assert run.observer.count("pipeline.renewed") == 1


def test_a_request_that_the_file_cannot_serve_is_told_once_and_the_run_goes_on(run: Running) -> None:
    run.plans.request(LOOSE)
    assert [run.due() for _ in range(3)] == [False] * 3
    assert run.observer.count("pipeline.renewal_refused") == 1
    told = run.observer.fields("pipeline.renewal_refused")
    assert "main.loose" in told["message"]
    assert "[[table]]" in told["remedy"]


def test_a_request_that_nobody_can_serve_does_not_hide_one_that_the_file_can(run: Running) -> None:
    run.plans.request(LOOSE)
    run.plans.request(TableRef("main", "orders"))
    run.file.write_text(MIRRORS)
    assert run.due()
    assert "main.loose" in run.observer.fields("pipeline.renewal_refused")["message"]
    assert not run.due()


def test_a_signal_takes_up_the_file_whatever_its_tables(run: Running) -> None:
    run.renewal.ask()
    assert run.due()


def test_what_an_index_asked_for_ends_with_its_table_and_what_a_person_asked_for_waits(run: Running) -> None:
    run.plans.request(LOOSE, remembered=True)
    assert not run.due()
    assert run.plans.requests() == {}
    assert run.observer.count("pipeline.renewal_refused") == 0
    for remembered in (True, False, True):
        run.plans.request(LOOSE, remembered=remembered)
    assert not run.due()
    assert [one.table for one in run.plans.requests().values()] == [LOOSE]


def test_what_passes_by_itself_is_told_once_and_waited_for(
    run: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = True

    def resolve(capture: SqliteCapture, names: Sequence[str]) -> list[TableRef]:
        if away:
            raise Transient("the source does not answer")
        return resolved(capture, names)

    resolved = SqliteCapture.resolve
    monkeypatch.setattr(SqliteCapture, "resolve", resolve)
    run.file.write_text(MIRRORS)
    run.renewal.ask()
    assert [run.due() for _ in range(3)] == [False] * 3
    assert run.observer.count("pipeline.renewal_waits") == 1
    assert run.observer.count("pipeline.renewal_refused") == 0
    away = False
    assert run.due()
    assert not run.due()


def test_requests_that_cannot_be_read_do_not_end_the_run_and_are_looked_for_again(run: Running) -> None:
    request = run.plans.request(TableRef("main", "orders"))
    run.file.write_text(MIRRORS)
    whole = (run.state / "requests" / f"{request}.json").read_bytes()
    (run.state / "requests" / f"{request}.json").write_bytes(whole[:20])
    assert not run.due()
    (run.state / "requests" / f"{request}.json").write_bytes(whole)
    assert run.due()

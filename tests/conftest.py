"""What holds for every test: in CI a test may be skipped only because something is not available there.

A skip's reason starts with `unavailable: ` and names the missing thing. With CI=true any other skip fails the
session, so that a test cannot quietly stop running.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.sparks import spark

__all__ = ["spark"]

ALLOWED = "unavailable: "
ROOT = Path(__file__).resolve().parent.parent

_unexplained: list[str] = []


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where a run is spread over processes, what needs Spark comes first, whatever the order of the rest.

    Each process begins with its share of the list and then takes from the end of another's: so one of them
    starts the session that these tests share, and no long test is begun when the others have ended.
    """
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("spark") is None)


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def _note(report: pytest.TestReport | pytest.CollectReport) -> None:
    # An expected failure is reported as skipped too, and explains itself.
    if report.skipped and not hasattr(report, "wasxfail") and not _reason(report).startswith(ALLOWED):
        _unexplained.append(f"{report.nodeid}: {_reason(report)}")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _note(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    _note(report)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if _unexplained and os.environ.get("CI") == "true" and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _unexplained and os.environ.get("CI") == "true":
        terminalreporter.section("skipped without a reason that CI accepts", red=True)
        for line in _unexplained:
            terminalreporter.line(line)
        terminalreporter.line(f'A skip is accepted when its reason starts with "{ALLOWED}".')


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's directory."""
    return ROOT

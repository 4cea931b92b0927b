"""A plugin of pytest that writes down what became of the tests that prove the fault matrix.

    python -m pytest -p tests.faults.recording --record-faults tests/faults/results.json …

Outcomes are merged into the file, by the test's id: a run of a part leaves the rest as it was. What a run has
chosen counts as `not run` from its beginning, so nothing of a run before is taken for its own. Beside it,
`run.json` says of which commit the results are, and whether all of them are of one run.

With `--left` only what has not passed by that record is run: what a run that was broken off left over. With
`--again` too, what had failed and passes now is written down as `passed alone`.

With `--list-tests FILE` the ids of all tests that are collected are written down, and whether each is long.

    python -m tests.faults.recording

drops what is no longer there from the record, and writes down as `not run` what has no result yet.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from bench import results
from tests.faults.matrix import function_of
from tests.faults.rows import named_tests

RESULTS = Path(__file__).with_name("results.json")
RUN = RESULTS.with_name("run.json")
ROOT = Path(__file__).resolve().parents[2]
NOT_RUN, ALONE = "not run", "passed alone"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("faults")
    group.addoption("--record-faults", metavar="FILE", help="merge outcomes of the fault matrix into a file")
    group.addoption("--left", action="store_true", help="leave out what the record says has passed")
    group.addoption("--again", action="store_true", help="with --left: what failed is tried again, alone")
    group.addoption("--list-tests", metavar="FILE", help="write the ids of the tests that are collected")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        # Whoever deals the tests out hears of all of them.
        return
    if file := config.getoption("--record-faults"):
        left, again = config.getoption("--left"), config.getoption("--again")
        config.pluginmanager.register(Recorder(Path(file), fresh=not left, again=again))
    if file := config.getoption("--list-tests"):
        config.pluginmanager.register(Lister(Path(file)))


_NOTHING_LEFT = pytest.StashKey[bool]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not (config.getoption("--left") and (file := config.getoption("--record-faults"))):
        return
    known = read(Path(file))
    passed = [item for item in items if has_passed(known.get(item.nodeid))]
    config.hook.pytest_deselected(items=passed)
    config.stash[_NOTHING_LEFT] = bool(items) and len(passed) == len(items)
    items[:] = [item for item in items if not has_passed(known.get(item.nodeid))]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.stash.get(_NOTHING_LEFT, False):
        session.exitstatus = pytest.ExitCode.OK


class Lister:
    """What is collected, before anything of it is deselected."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        found = {item.nodeid: item.get_closest_marker("long") is not None for item in items}
        self._file.write_text(json.dumps(found))


class Recorder:
    """What the controller of a run hears of each test."""

    def __init__(self, file: Path, *, fresh: bool, again: bool) -> None:
        self._file, self._fresh, self._known = file, fresh, False
        before = read(file) if again else {}
        self._failed = {id_ for id_, outcome in before.items() if outcome == "failed"}
        self._heard: dict[str, str] = {}
        self._began = time.monotonic()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._chosen([item.nodeid for item in getattr(session, "items", ())])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._chosen(ids)

    def _chosen(self, ids: Iterable[str]) -> None:
        if self._known or not (chosen := wanted(ids)):
            return
        self._known, run = True, self._file.with_name(RUN.name)
        commit = results.commit("src", "tests/*.py")
        if self._fresh:
            write(self._file, {**read(self._file), **dict.fromkeys(chosen, NOT_RUN)})
            whole = {function_of(id_) for id_ in chosen} == named_tests()
            write_run(run, commit, whole=whole, tests=len(chosen))
        elif commit != read_run(run)["commit"]:
            write_run(run, commit, whole=False)

    def pytest_sessionfinish(self) -> None:
        run = self._file.with_name(RUN.name)
        if self._fresh and self._known:
            seconds = round(time.monotonic() - self._began)
            write_run(run, **{**read_run(run), "seconds": seconds})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if function_of(report.nodeid) not in named_tests():
            return
        if report.failed:
            self._heard[report.nodeid] = "failed"
        elif report.skipped:
            text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self._heard[report.nodeid] = f"skipped: {text.removeprefix('Skipped: ')}"
        elif report.when == "call":
            self._heard.setdefault(report.nodeid, ALONE if report.nodeid in self._failed else "passed")
        # At once: a run that is broken off has told what it knew. What a worker died of has no teardown.
        if report.failed or report.when == "teardown":
            write(self._file, {**read(self._file), **self._heard})


def has_passed(outcome: str | None) -> bool:
    """Whether it counts as passed."""
    return outcome in ("passed", ALONE)


def collected() -> dict[str, bool]:
    """The ids of all tests in the files that the matrix names, and whether each is long."""
    files = sorted({function.partition("::")[0] for function in named_tests()})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "tests.faults.recording"]
    command += ["-p", "no:randomly", "-p", "no:xdist", "-p", "no:cacheprovider"]
    with tempfile.TemporaryDirectory() as place:
        found = Path(place, "ids.json")
        command += ["--list-tests", str(found), *files]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        ids: dict[str, bool] = json.loads(found.read_text())
    return ids


def wanted(ids: Iterable[str]) -> set[str]:
    """Those of these ids that the matrix wants a result of."""
    return {id_ for id_ in ids if function_of(id_) in named_tests()}


def read(file: Path = RESULTS) -> dict[str, str]:
    """What is on record, by the test's id."""
    found: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
    return found


def write(file: Path, found: dict[str, str]) -> None:
    file.write_text(json.dumps(dict(sorted(found.items())), indent=0) + "\n")


def read_run(file: Path = RUN) -> dict[str, Any]:
    """Of which commit the last results are, and whether all are of that run."""
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"commit": "", "whole": False}
    return found


def write_run(file: Path, commit: str, *, whole: bool, **more: int) -> None:
    """`more`: how many tests it had, and how long it took; a run that was broken off does not know."""
    file.write_text(json.dumps({"commit": commit, "whole": whole, **more}) + "\n")


if __name__ == "__main__":
    known = read()
    write(RESULTS, {id_: known.get(id_, NOT_RUN) for id_ in wanted(collected())})

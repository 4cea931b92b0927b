"""The page says what the record says, and a change of either makes it stale."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.bugs import BUGS
from tests.faults.matrix import Proof, Row
from tests.faults.page import APART, NO, OPEN, YES, mark, page, told
from tests.faults.recording import ALONE, NOT_RUN, Recorder, read, read_run, write, write_run
from tests.faults.rows import ROWS, named_tests

TEST = "test_kills.py::test_a_kill_inside_a_chunk_resumes_at_that_chunk"
ID = f"tests/faults/{TEST}"
ROW = Row(
    1,
    "a fault",
    "P",
    "an outcome",
    (Proof(TEST, ("sqlite", "postgres", "delta")),),
    apart={"feed": "no feed"},
    open={"store": "not tried", "opensearch": "not tried"},
)
GOOD = {f"{ID}[sqlite]": "passed", f"{ID}[postgres]": "passed"}


def test_a_cell_is_what_every_run_for_its_target_came_to() -> None:
    assert [mark(ROW, target, GOOD) for target in ("sqlite", "postgres", "delta")] == [YES, YES, YES]
    assert (mark(ROW, "feed", GOOD), mark(ROW, "store", GOOD)) == (APART, OPEN)
    half = {**GOOD, f"{ID}[postgres]": "failed"}
    assert [mark(ROW, target, half) for target in ("sqlite", "postgres", "delta")] == [YES, NO, NO]
    assert mark(ROW, "postgres", {f"{ID}[sqlite]": "passed"}) == "not run"
    assert mark(ROW, "sqlite", {f"{ID}[sqlite]": "skipped: unavailable: a server"}) == "1 skipped"


def test_a_test_of_many_rows_proves_each_by_its_own_runs() -> None:
    ids = [f"{ID}[sqlite-row1-initial]", f"{ID}[sqlite-row2-chunk]"]
    (proof,) = ROW.proofs
    assert ROW.runs(proof, ids, "sqlite") == ids[:1]
    assert replace(ROW, number=2).runs(proof, ids, "sqlite") == ids[1:]


@pytest.mark.parametrize(
    "results",
    [
        {**GOOD, f"{ID}[postgres]": "failed"},
        {f"{ID}[sqlite]": "passed"},
        {},
    ],
)
def test_another_record_is_another_page(results: dict[str, str]) -> None:
    assert page(results, [ROW]) != page(GOOD, [ROW])


def test_another_row_or_test_is_another_page() -> None:
    before = page(GOOD, [ROW])
    renamed = replace(ROW, proofs=(replace(ROW.proofs[0], test=f"{TEST}_again"),))
    for row in (replace(ROW, outcome="another"), replace(ROW, apart={"feed": "else"}), renamed):
        assert page(GOOD, [row]) != before
    assert page(GOOD, [ROW], BUGS[:1]) != before


def test_the_page_has_every_row_and_every_bug() -> None:
    text = page({})
    assert all(f"### {row.number}. {row.fault}" in text for row in ROWS)
    assert all(f"`{bug.name}`" in text for bug in BUGS)
    assert told([]) == "not run"


def report(id_: str, outcome: str, when: str = "call") -> pytest.TestReport:
    return pytest.TestReport(id_, ("", 0, ""), {}, outcome, None, when)  # type: ignore[arg-type]


def test_a_recorded_run_is_merged_and_an_error_after_the_call_is_a_failure(tmp_path: Path) -> None:
    assert ID in named_tests()
    file = tmp_path / "results.json"
    write(file, {f"{ID}[sqlite]": "failed", f"{ID}[postgres]": "passed"})
    recorder = Recorder(file, fresh=False, again=False)
    for id_ in (f"{ID}[sqlite]", "tests/other.py::test_other"):
        recorder.pytest_runtest_logreport(report(id_, "passed"))
        recorder.pytest_runtest_logreport(report(id_, "passed", "teardown"))
    assert read(file) == GOOD
    again = Recorder(file, fresh=False, again=False)
    again.pytest_runtest_logreport(report(f"{ID}[sqlite]", "passed"))
    again.pytest_runtest_logreport(report(f"{ID}[sqlite]", "failed", "teardown"))
    assert read(file)[f"{ID}[sqlite]"] == "failed"


def test_what_a_run_has_chosen_has_not_run_before_it_is_heard_of(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    write(file, GOOD)
    Recorder(file, fresh=False, again=False).pytest_xdist_node_collection_finished(list(GOOD))
    assert read(file) == GOOD
    recorder = Recorder(file, fresh=True, again=False)
    for _ in range(2):
        # Once for each worker, and the second may come after the first results.
        recorder.pytest_xdist_node_collection_finished([f"{ID}[sqlite]", "tests/other.py::test_other"])
        assert read(file) == {**GOOD, f"{ID}[sqlite]": NOT_RUN}
    # A worker that dies leaves a report of no phase, and no teardown.
    recorder.pytest_runtest_logreport(report(f"{ID}[sqlite]", "failed", "???"))
    assert read(file)[f"{ID}[sqlite]"] == "failed"


def test_a_run_says_of_which_commit_it_is_and_whether_it_was_all(tmp_path: Path) -> None:
    file, run = tmp_path / "results.json", tmp_path / "run.json"
    recorder = Recorder(file, fresh=True, again=False)
    recorder.pytest_xdist_node_collection_finished(list(named_tests()))
    whole = read_run(run)
    assert whole["whole"]
    assert whole["commit"]
    assert f"one run, of commit {whole['commit']}." in page({}, run=whole)
    recorder.pytest_sessionfinish()
    whole = read_run(run)
    assert f"of commit {whole['commit']}: {len(named_tests())} tests in 0 minutes." in page({}, run=whole)
    # What is left of a run is of the same run, unless the code is another by then.
    Recorder(file, fresh=False, again=True).pytest_xdist_node_collection_finished([ID])
    assert read_run(run) == whole
    write_run(run, "another", whole=True)
    Recorder(file, fresh=False, again=False).pytest_xdist_node_collection_finished([ID])
    assert read_run(run) == {"commit": whole["commit"], "whole": False}
    Recorder(file, fresh=True, again=False).pytest_xdist_node_collection_finished([ID])
    assert "several runs" in page({}, run=read_run(run))


def test_what_passed_at_the_second_try_is_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    write(file, {f"{ID}[sqlite]": "failed", f"{ID}[postgres]": NOT_RUN})
    recorder = Recorder(file, fresh=False, again=True)
    for id_ in GOOD:
        recorder.pytest_runtest_logreport(report(id_, "passed"))
        recorder.pytest_runtest_logreport(report(id_, "passed", "teardown"))
    assert read(file) == {**GOOD, f"{ID}[sqlite]": ALONE}
    assert mark(ROW, "sqlite", read(file)) == YES
    assert "1 passed, 1 passed alone" in page(read(file), [ROW])

"""The table of faults tells the truth about its tests, and the page about the last recorded run."""

from __future__ import annotations

from pathlib import Path

from tests.faults.bugs import BUGS
from tests.faults.matrix import CAPTURES, TARGETS, function_of
from tests.faults.page import page
from tests.faults.recording import NOT_RUN, RESULTS, collected, has_passed, read, read_run, wanted
from tests.faults.rows import ROWS, named_tests

# Spark itself, servers of their own, or seconds of patience: too slow for every run.
LONG_ONLY = {"sqlite": {5, 25}, "postgres": {5, 15, 16, 22, 25, 37, 38, 39, 40}}


def test_the_forty_rows_are_there_once() -> None:
    assert [row.number for row in ROWS] == list(range(1, 41))


def test_every_row_says_of_every_target_what_proves_it_or_why_nothing_does() -> None:
    wrong = []
    for row in ROWS:
        for target in TARGETS:
            said = [bool(row.proofs_of(target)), target in row.apart, target in row.open]
            if sum(said) != 1:
                wrong.append(f"row {row.number}, {target}")
    assert wrong == []


def test_ten_bugs_are_seeded() -> None:
    assert len({bug.name for bug in BUGS} - {"nothing killed"}) >= 10


# One test, for they share what is collected, and a run may be spread over processes.
def test_every_named_test_exists_and_its_result_is_on_record_and_on_the_page(root: Path) -> None:
    ids = collected()
    functions = {function_of(id_) for id_ in ids}
    assert sorted(named_tests() - functions) == [], "tests that the table names and nobody has"
    missing = [
        f"row {row.number}, {target}: {proof.test}"
        for row in ROWS
        for target in TARGETS
        for proof in row.proofs_of(target)
        if not row.runs(proof, ids, target)
    ]
    assert missing == [], "tests that do not run on what they are said to prove"
    for kind in CAPTURES:
        runs = {
            row.number: [id_ for one in row.proofs_of(kind) for id_ in row.runs(one, ids, kind)]
            for row in ROWS
        }
        long = {number for number, found in runs.items() if found and all(ids[id_] for id_ in found)}
        assert long == LONG_ONLY[kind], kind
    results = read(RESULTS)
    # A test that was skipped is no evidence either.
    left = {id_: results.get(id_, NOT_RUN) for id_ in sorted(wanted(ids))}
    left = {id_: outcome for id_, outcome in left.items() if not has_passed(outcome)}
    assert left == {}, "not seen to pass: make faults LEFT=1"
    assert sorted(results.keys() - wanted(ids)) == [], "a result of a test that is not there: make faults"
    text = (root / "docs/faults.md").read_text(encoding="utf-8")
    assert page(results, run=read_run()) in text, "the page is stale: make docs"

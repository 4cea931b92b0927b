"""A ratio that got worse by more than a fifth is told, in both directions, and nothing else is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench import __main__ as command
from bench import baseline, results
from bench.measure import Figure, Outcome

NOW = results.origin()


def _result(*figures: Figure, arguments: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "benchmark": "postgres",
        "arguments": list(arguments),
        "code": results.code(),
        "figures": [figure.to_json() for figure in figures],
        "problems": [],
        "details": [],
    }


def _worse(before: Figure, now: Figure) -> list[str]:
    saved = {"postgres": baseline.ratios(_result(before))}
    return [one.what for one in baseline.compare(saved, [_result(now)]) if one.worse]


@pytest.mark.parametrize(("now", "told"), [(0.81, False), (0.79, True), (0.8, False), (3.0, False)])
def test_a_ratio_that_should_be_high_is_worse_when_it_is_lower(now: float, told: bool) -> None:
    assert _worse(Figure("a", 1.0, "×"), Figure("a", now, "×")) == (["a"] if told else [])


@pytest.mark.parametrize(("now", "told"), [(1.19, False), (1.21, True), (1.2, False), (0.2, False)])
def test_a_ratio_that_should_be_low_is_worse_when_it_is_higher(now: float, told: bool) -> None:
    low = Figure("a", 1.0, "×", lower=True)
    assert _worse(low, Figure("a", now, "×", lower=True)) == (["a"] if told else [])


def test_a_ratio_that_is_gone_is_worse_and_a_new_one_is_not() -> None:
    assert _worse(Figure("a", 1.0, "×"), Figure("b", 1.0, "×")) == ["a"]


def test_only_ratios_that_say_something_are_saved() -> None:
    figures = [
        Figure("rate", 5.0, "/s"),
        Figure("", 1.0, "×"),
        Figure("rounds", 1.0, "×", compared=False),
        Figure("ratio", 2.0, "×"),
    ]
    assert list(baseline.ratios(_result(*figures))["ratios"]) == ["ratio"]


def test_results_that_were_measured_otherwise_are_not_compared() -> None:
    saved = {"postgres": baseline.ratios(_result(Figure("a", 1.0, "×")))}
    assert baseline.comparable(saved, _result(Figure("a", 1.0, "×")))
    assert not baseline.comparable(saved, _result(Figure("a", 1.0, "×"), arguments=("--quick",)))
    assert not baseline.comparable(saved, None)


def test_results_of_other_code_are_not_compared() -> None:
    saved = {"postgres": baseline.ratios(_result(Figure("a", 1.0, "×")))}
    assert not baseline.comparable(saved, _result(Figure("a", 1.0, "×")) | {"code": "another"})


@pytest.fixture
def _places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    monkeypatch.setattr(baseline, "BASELINE", tmp_path / "baseline.json")


@pytest.mark.usefixtures("_places")
@pytest.mark.parametrize(
    ("measured", "code", "runs"),
    [([1.0], 0, 1), ([0.5, 1.0], 0, 2), ([0.5, 0.5], 1, 2)],
    ids=["as before", "worse once", "worse twice"],
)
def test_check_measures_what_is_worse_once_more(
    measured: list[float], code: int, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, ran = list(measured), []

    def outcome(console: Console, name: str, arguments: list[str]) -> Outcome:
        ran.append((name, arguments))
        return Outcome([Figure("a", left.pop(0), "×")])

    monkeypatch.setattr(command, "_outcome", outcome)
    baseline.BASELINE.write_text(
        json.dumps({"postgres": baseline.ratios(_result(Figure("a", 1.0, "×"), arguments=("--quick",)))})
    )
    assert command.main(["check"]) == code
    assert ran == [("postgres", ["--quick"])] * runs


@pytest.mark.usefixtures("_places")
def test_a_baseline_is_saved_of_the_last_results_and_leaves_out_what_failed() -> None:
    results.save("postgres", [], Outcome([Figure("a", 1.25, "×")]), 1.0, NOW)
    results.save("sqlite", [], Outcome([Figure("b", 1.0, "×")], problems=["it fell over"]), 1.0, NOW)
    assert command.main(["baseline"]) == 1
    saved = baseline.saved()
    assert list(saved) == ["postgres"]
    assert saved["postgres"]["ratios"] == {"a": {"values": [1.25], "better": "higher"}}


@pytest.mark.usefixtures("_places")
def test_the_last_three_runs_are_kept_and_the_one_in_the_middle_is_compared_with() -> None:
    for value in (9.0, 1.0, 5.0, 2.0):
        results.save("postgres", [], Outcome([Figure("a", value, "×")]), 1.0, NOW)
        assert command.main(["baseline"]) == 0
    saved = baseline.saved()
    assert saved["postgres"]["ratios"]["a"]["values"] == [1.0, 5.0, 2.0]
    assert [one.before for one in baseline.compare(saved, [_result(Figure("a", 2.0, "×"))])] == [2.0]


@pytest.mark.usefixtures("_places")
def test_a_baseline_loses_no_ratio_and_takes_none_of_a_run_with_options_unless_forced() -> None:
    results.save("postgres", [], Outcome([Figure("a", 1.0, "×"), Figure("b", 1.0, "×")]), 1.0, NOW)
    assert command.main(["baseline"]) == 0
    results.save("postgres", [], Outcome([Figure("a", 2.0, "×")]), 1.0, NOW)
    assert command.main(["baseline"]) == 1
    results.save("postgres", ["--quick"], Outcome([Figure("a", 3.0, "×"), Figure("b", 3.0, "×")]), 1.0, NOW)
    assert command.main(["baseline", "postgres"]) == 1
    assert [ratio["values"] for ratio in baseline.saved()["postgres"]["ratios"].values()] == [[1.0]] * 2
    assert command.main(["baseline", "--force"]) == 0
    assert [ratio["values"] for ratio in baseline.saved()["postgres"]["ratios"].values()] == [[3.0]] * 2


@pytest.mark.usefixtures("_places")
def test_a_benchmark_that_gives_up_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []

    class Module:
        @staticmethod
        def run(_: Console, arguments: list[str]) -> Outcome:
            ran.append(arguments)
            raise SystemExit("the server did not start")

    monkeypatch.setattr("importlib.import_module", lambda _: Module)
    assert command.main(["sqlite", "postgres", "--quick"]) == 1
    assert len(ran) == 2
    saved = results.load("postgres")
    assert saved is not None
    assert "did not start" in saved["problems"][0]


@pytest.mark.usefixtures("_places")
def test_who_tells_a_run_to_end_ends_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Module:
        @staticmethod
        def run(*_: object) -> Outcome:
            raise SystemExit(command.TOLD_TO_END)

    monkeypatch.setattr("importlib.import_module", lambda _: Module)
    with pytest.raises(SystemExit):
        command.main(["sqlite", "postgres", "--quick"])


@pytest.mark.usefixtures("_places")
@pytest.mark.parametrize("word", ["--help", "--no-such-option"])
def test_asking_for_help_or_a_wrong_option_leaves_the_results_as_they_were(word: str) -> None:
    before = results.save("latency", [], Outcome([Figure("a", 1.0, "×")]), 1.0, NOW)
    with pytest.raises(SystemExit):
        command.main(["latency", word])
    assert results.load("latency") == before


@pytest.mark.usefixtures("_places")
def test_a_bar_that_nobody_could_measure_is_no_ratio_to_save() -> None:
    results.save("postgres", [], Outcome([Figure("a", 1.0, "×")]), 1.0, NOW)
    assert command.main(["baseline"]) == 0
    results.save("postgres", [], Outcome([Figure("a", 0.0, "×")]), 1.0, NOW)
    assert command.main(["baseline"]) == 1
    assert command.main(["check", "--once"]) == 1
    assert baseline.saved()["postgres"]["ratios"]["a"]["values"] == [1.0]


@pytest.mark.usefixtures("_places")
def test_results_are_of_the_code_that_was_there_when_they_were_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome(*_: object) -> Outcome:
        monkeypatch.setattr(results, "code", lambda: "edited meanwhile")
        return Outcome([Figure("a", 1.0, "×")])

    monkeypatch.setattr(command, "_outcome", outcome)
    command.main(["postgres", "--quick"])
    saved = results.load("postgres")
    assert saved is not None
    assert saved["code"] != "edited meanwhile"


@pytest.mark.usefixtures("_places")
def test_without_a_baseline_check_says_so() -> None:
    assert command.main(["check"]) == 2


def test_the_saved_baseline_has_ratios_only_and_known_benchmarks() -> None:
    for name, one in baseline.saved().items():
        assert name in command.NAMES
        assert one["ratios"]
        assert all(set(ratio) == {"values", "better"} for ratio in one["ratios"].values())

"""What grows is told, what is flat is not, and a life too short says nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from tests.life.plot import svg
from tests.life.resources import COLUMNS, MEASURES, ROLES, Meter, Record, Sample, judged, read, unjudged


def sample(at: float, **values: float | None) -> Sample:
    told = {"at": at, "idle": 1.0, "age": 900.0, "chapter": 0.0, "steady": 1.0, "queries": 1.0}
    return {**dict.fromkeys(COLUMNS, 50.0), **told, **values}


def grown(**values: float) -> set[str]:
    """Measures that grow when these have so much more in the last quarter."""
    samples = [sample(at) for at in range(0, 3000, 60)]
    samples += [sample(at, **values) for at in range(3000, 3600, 60)]
    return {verdict.measure.name for verdict in judged(samples) if not verdict.flat}


def test_a_flat_life_is_flat() -> None:
    assert grown() == set()
    assert grown(jvm_mb=54.0, handles=60.0, memory_mb=54.9) == set()


def test_each_measure_that_grows_is_named() -> None:
    assert grown(jvm_mb=70.0) == {"jvm_mb"}
    assert grown(memory_mb=56.0) == {"memory_mb"}
    assert grown(driver_mb=500.0, handles=1000.0, threads=300.0) == {"driver_mb", "handles", "threads"}
    assert grown(capture_mb=90.0, workers_mb=90.0, state_mb=90.0, retained=1e9) == {
        "capture_mb",
        "workers_mb",
        "state_mb",
        "retained",
    }


def test_the_lake_may_grow_for_its_files_of_the_last_hour_are_kept() -> None:
    assert grown(lake_mb=500.0) == set()


def test_moments_of_work_do_not_count_and_one_idle_point_is_no_median() -> None:
    samples = [sample(at) for at in range(0, 3600, 60)]
    samples += [sample(at + 1, idle=0.0, jvm_mb=900.0) for at in range(0, 3600, 60)]
    samples.append(sample(3599, jvm_mb=900.0))
    assert all(verdict.flat for verdict in judged(samples))


def test_too_few_idle_points_say_nothing() -> None:
    assert judged([sample(at) for at in range(0, 600, 60)]) == []
    assert judged([]) == []


def test_processes_are_judged_where_nobody_ends_them_and_disk_with_the_kills_too() -> None:
    """Storms fill the first half; in the steady one a leak of a process shows, over its own quarters."""
    stormy = [sample(at, steady=0.0) for at in range(0, 1800, 60)]
    steady = [sample(at, jvm_mb=50.0 + (at - 1800) / 20) for at in range(1800, 3600, 60)]
    found = {verdict.measure.name: verdict for verdict in judged([*stormy, *steady])}
    assert {name for name, verdict in found.items() if not verdict.flat} == {"jvm_mb"}
    assert found["jvm_mb"].second > 60
    assert sum(found["jvm_mb"].points) < sum(found["state_mb"].points)


def test_a_run_that_began_a_moment_ago_is_not_what_an_old_one_is_compared_with() -> None:
    """One began again in the second quarter, so that its memory was small there."""
    samples = [sample(at, jvm_mb=90.0) for at in range(0, 3600, 30)]
    for one in samples[30:56]:
        one |= {"age": (one["at"] or 0.0) - 900, "jvm_mb": 90.0 if (one["at"] or 0.0) > 1080 else 40.0}
    found = {verdict.measure.name: verdict for verdict in judged(samples)}
    assert found["jvm_mb"].second == 90.0
    assert found["jvm_mb"].flat


def test_each_chapter_is_judged_by_itself() -> None:
    first = [sample(at) for at in range(0, 3600, 60)]
    second = [sample(at, chapter=1.0, handles=50.0 + max(0, at - 4500)) for at in range(3600, 7200, 60)]
    assert [(one.measure.name, one.chapter) for one in judged([*first, *second]) if not one.flat] == [
        ("handles", 1)
    ]


def test_what_no_restart_takes_away_is_judged_over_all_chapters() -> None:
    """By a twentieth in each of eight hours: flat in every one of them."""
    hours = [
        sample(at + 3600 * hour, chapter=float(hour), state_mb=50.0 * 1.05**hour)
        for hour in range(8)
        for at in range(0, 3600, 60)
    ]
    assert [one.measure.name for one in judged(hours) if not one.flat] == ["state_mb"]
    # What goes with its process may begin anew with more.
    other = [{**one, "state_mb": 50.0, "jvm_mb": one["state_mb"]} for one in hours]
    assert all(one.flat for one in judged(other))


def test_what_has_no_verdict_in_a_chapter_is_told_with_the_chapter() -> None:
    whole = [sample(at) for at in range(0, 3600, 60)]
    assert unjudged(whole, judged(whole)) == []
    short = whole + [sample(3600 + at, chapter=1.0) for at in range(0, 120, 60)]
    wanted = [one.name for one in MEASURES if one.judged]
    processes = [one.name for one in MEASURES if one.judged and one.process]
    assert unjudged(short, judged(short)) == [f"{name}, chapter 2" for name in processes]
    assert unjudged([], []) == wanted


def test_what_nobody_could_measure_is_not_flat() -> None:
    blind = [sample(at, retained=None) for at in range(0, 3600, 60)]
    assert unjudged(blind, judged(blind)) == ["retained"]


def test_what_was_never_steady_says_nothing_of_processes() -> None:
    found = {verdict.measure for verdict in judged([sample(at, steady=0.0) for at in range(0, 3600, 60)])}
    assert not any(measure.process for measure in found)
    assert {measure.name for measure in found} >= {"state_mb", "retained"}


def test_one_worker_more_in_sparks_pool_is_no_growth_and_each_that_grows_is() -> None:
    def grows(workers: float, each: float, largest: float) -> set[str]:
        before = {"workers": 9.0, "workers_mb": 9 * 58.0, "worker_mb": 94.0}
        after = {"workers": workers, "workers_mb": workers * each, "worker_mb": largest}
        samples = [sample(at, **(before if at < 3000 else after)) for at in range(0, 3600, 60)]
        return {verdict.measure.name for verdict in judged(samples) if not verdict.flat}

    assert grows(10.0, 59.0, 100.0) == set()
    assert grows(9.0, 64.0, 100.0) == {"workers_mb"}
    assert grows(11.0, 58.0, 94.0) == {"workers"}
    # One of nine keeps 20 MB more.
    assert grows(9.0, 58.0 + 20 / 9, 114.0) == {"worker_mb"}


def test_what_spark_keeps_of_each_query_is_not_judged_and_what_is_more_is() -> None:
    def grows(each: float, threads: float = 0.0) -> set[str]:
        samples = [
            sample(at, queries=at / 30, handles=500.0 + each * at / 30, threads=400.0 + threads * at / 30)
            for at in range(0, 3600, 60)
        ]
        return {verdict.measure.name for verdict in judged(samples) if not verdict.flat}

    assert grows(3.0) == set()
    assert grows(5.0) == {"handles"}
    assert grows(3.0, threads=1.0) == {"threads"}


def test_a_record_has_what_this_process_uses_and_is_read_as_it_was_written(tmp_path: Path) -> None:
    record = Record(tmp_path / "resources.csv")
    meter = Meter(record, lambda: (3, os.getpid(), 1.5), {"state_mb": lambda: 7.0, "retained": lambda: None})
    meter.sample(idle=True)
    record.close()
    (one,) = read(record.path)
    assert (one["run"], one["idle"], one["state_mb"], one["retained"]) == (3, 1, 7, None)
    assert (one["driver_mb"] or 0) > 10
    together = sum(one[f"{role}_mb"] or 0.0 for role in ROLES)
    assert abs((one["memory_mb"] or 0.0) - together) < 0.1
    assert (one["handles"] or 0) > 2
    assert (one["threads"] or 0) >= 1


def test_a_record_tells_how_many_workers_there_are_and_how_large_the_largest_is(tmp_path: Path) -> None:
    # A run of its own: what runs this test may have a Spark with workers below it.
    two = (
        "import subprocess, sys\n"
        "waits = [sys.executable, '-c', 'print(flush=True); input()']\n"
        "pipe = subprocess.PIPE\n"
        "workers = [subprocess.Popen(waits, stdin=pipe, stdout=pipe) for _ in range(2)]\n"
        "for worker in workers: worker.stdout.readline()\n"
        "print(flush=True); input()\n"
        "for worker in workers: worker.communicate(b'\\n')\n"
    )
    record = Record(tmp_path / "resources.csv")
    with subprocess.Popen([sys.executable, "-c", two], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        try:
            assert run.stdout is not None
            run.stdout.readline()
            Meter(record, lambda: (1, run.pid, 1.0), {}).sample()
        finally:
            run.communicate(b"\n")
    record.close()
    (one,) = read(record.path)
    assert one["workers"] == 2
    assert 0 < (one["worker_mb"] or 0) < (one["workers_mb"] or 0)


def test_the_picture_is_well_formed_and_has_a_line_for_each_measure() -> None:
    tree = ElementTree.fromstring(svg([sample(at, idle=float(at % 2 == 0)) for at in range(10)], "a < b"))  # noqa: S314
    names = [element.tag.rpartition("}")[2] for element in tree.iter()]
    assert names.count("polyline") == len(MEASURES)
    assert names.count("circle") == 5 * len(MEASURES)
    assert svg([], "nothing").startswith("<svg")

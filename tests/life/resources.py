"""What a life uses: memory, handles, threads, disk and kept log, recorded all the time and judged at the end.

The judge compares idle points: the median of the last quarter with that of the second one. The first quarter
is for warming up. Of what processes use, the quarters are those of the steady part of a chapter, in which
nobody ends the run: one that was begun anew a minute ago would be flat whatever it leaks. Of what stays on
disk and in the source's log, which no restart takes away, they are those of the whole life, with its kills.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import psutil

Sample = dict[str, float | None]
ROLES = ("driver", "jvm", "capture", "workers")
MEGA = 1024 * 1024
RATIO = 1.1
SECONDS = 5.0
# Fewer idle points than these in a quarter say nothing.
POINTS = 4
# A run that had to begin again in the steady part, after a fault that a supervisor mends, is young so long.
WARM_SECONDS = 180.0


@dataclass(frozen=True)
class Measure:
    """A column of the record: how it is called, and what it may grow by beside a tenth."""

    name: str
    unit: str
    slack: float = 0.0
    judged: bool = True
    # Used by processes, and gone with them.
    process: bool = False
    # What Spark's JVM keeps of every query that it began, though that has ended; it is not judged.
    each_query: float = 0.0
    # A column that says how many share it: what one of them has is judged.
    among: str = ""

    def of(self, sample: Sample) -> float | None:
        """What a sample has of it, as far as it is judged."""
        found = sample.get(self.name)
        if found is None:
            return None
        found -= self.each_query * (sample.get("queries") or 0.0)
        return found / (sample.get(self.among) or 1.0) if self.among else found


MEASURES = (
    # Of all together, and strictly: what one role takes and another one gives back comes out even.
    Measure("memory_mb", "MB", process=True),
    *(Measure(f"{role}_mb", "MB", slack=10.0, process=True) for role in ROLES if role != "workers"),
    # Spark keeps an idle worker for a minute, so there is now one more and now one less. Judged are what each
    # has, how many there are, and the largest of them; all of their memory is within that of all processes.
    Measure("workers_mb", "MB", process=True, among="workers"),
    Measure("workers", "", slack=1.0, process=True),
    Measure("worker_mb", "MB", slack=10.0, process=True),
    # A selector with its event, and the socket at which it waited for the process that reads the source.
    Measure("handles", "", slack=20.0, process=True, each_query=3.0),
    Measure("threads", "", slack=10.0, process=True),
    Measure("state_mb", "MB", slack=1.0),
    Measure("documents_mb", "MB", slack=4.0),
    Measure("retained", "rows or bytes", slack=0.0),
    # Files of the last hour are kept for readers, and Spark's log is for people to remove.
    Measure("lake_mb", "MB", judged=False),
    Measure("spark_log_mb", "MB", judged=False),
)
# Other work of the server writes to PostgreSQL's log too.
RETAINED_SLACK = {"sqlite": 2000.0, "postgres": 4.0 * MEGA}
COLUMNS = (
    "at",
    "idle",
    "run",
    "age",
    "chapter",
    "steady",
    "queries",
    *(measure.name for measure in MEASURES),
)


def processes_of(pid: int) -> dict[str, list[psutil.Process]]:
    """The processes of a run by their role."""
    found: dict[str, list[psutil.Process]] = {role: [] for role in ROLES}
    with contextlib.suppress(psutil.NoSuchProcess):
        main = psutil.Process(pid)
        found["driver"].append(main)
        for child in main.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                found[_role(child)].append(child)
    return found


def _role(process: psutil.Process) -> str:
    if "java" in process.name():
        return "jvm"
    return "capture" if "python_streaming_source_runner" in " ".join(process.cmdline()) else "workers"


def memory_of(process: psutil.Process) -> float:
    """Bytes in memory; of what several processes share, a part each."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return float(line.split()[1]) * 1024
    with contextlib.suppress(psutil.Error):
        return float(process.memory_info().rss)
    return 0.0


def size_of(path: Path, *, without: Iterable[str] = ()) -> float:
    """Bytes of a file, or of everything in a directory."""
    if path.is_file():
        return float(path.stat().st_size)
    total, left_out = 0.0, set(without)
    for directory, _, names in os.walk(path):
        for name in names:
            if name not in left_out:
                with contextlib.suppress(OSError):
                    total += Path(directory, name).stat().st_size
    return total


class Record:
    """Samples in memory and in a CSV file, line by line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.samples: list[Sample] = []
        self._file: TextIO = path.open("w", newline="")
        self._writer = csv.DictWriter(self._file, COLUMNS)
        self._writer.writeheader()
        self._lock = threading.Lock()

    def add(self, sample: Sample) -> None:
        with self._lock:
            self.samples.append(sample)
            shown = {name: "" if value is None else round(value, 2) for name, value in sample.items()}
            self._writer.writerow(shown)
            self._file.flush()

    def close(self) -> None:
        self._file.close()


def read(path: Path) -> list[Sample]:
    """The samples of a file."""
    with path.open(newline="") as file:
        return [
            {name: float(value) if value else None for name, value in row.items()}
            for row in csv.DictReader(file)
        ]


class Meter:
    """Takes samples: every few seconds, and at idle points when told."""

    def __init__(
        self,
        record: Record,
        running: Callable[[], tuple[int, int, float] | None],
        places: Mapping[str, Callable[[], float | None]],
    ) -> None:
        """`running` gives number, process id and age of the run; `places` what is no process's."""
        self._record, self._running, self._places = record, running, places
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Meter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(timeout=30)

    def _run(self) -> None:
        while not self._ended.wait(SECONDS):
            self.sample()

    def sample(self, *, idle: bool = False) -> None:
        """What is used now."""
        found = self._running()
        taken: Sample = {"at": time.monotonic() - self._began, "idle": float(idle)}
        if found is not None:
            number, pid, age = found
            taken |= {"run": float(number), "age": age, **_usage(pid)}
        taken |= {name: place() for name, place in self._places.items()}
        self._record.add({name: taken.get(name) for name in COLUMNS})


def _usage(pid: int) -> Sample:
    found = processes_of(pid)
    sizes = {role: [memory_of(process) / MEGA for process in found[role]] for role in ROLES}
    together: Sample = {f"{role}_mb": sum(sizes[role]) for role in ROLES}
    handles = threads = 0
    for process in itertools.chain.from_iterable(found.values()):
        with contextlib.suppress(psutil.Error):
            handles += process.num_fds()
            threads += process.num_threads()
    return {
        "memory_mb": sum(map(sum, sizes.values())),
        **together,
        "workers": float(len(sizes["workers"])),
        "worker_mb": max(sizes["workers"], default=0.0),
        "handles": float(handles),
        "threads": float(threads),
    }


@dataclass(frozen=True)
class Verdict:
    """Second quarter against the last one, of one measure in one chapter."""

    measure: Measure
    second: float
    last: float
    limit: float
    chapter: int = 0
    # How many idle points each of the two has.
    points: tuple[int, int] = (0, 0)

    @property
    def flat(self) -> bool:
        return not self.measure.judged or self.last <= self.limit

    def __str__(self) -> str:
        word = ("flat" if self.flat else "GROWS") if self.measure.judged else "not judged"
        unit = f" {self.measure.unit}" if self.measure.unit else ""
        unit += " each" if self.measure.among else ""
        went = f"{self.second:.1f} to {self.last:.1f}{unit}"
        points = f"{self.points[0]} and {self.points[1]} idle points"
        chapter = f"chapter {self.chapter + 1}, " if self.chapter else ""
        return f"{self.measure.name}: {went} ({word}, limit {self.limit:.1f}, {chapter}{points})"


def judged(samples: Sequence[Sample], source: str = "sqlite") -> list[Verdict]:
    """How each measure went, by chapters or over all; those with too few idle points to say are left out."""
    idle = [sample for sample in samples if sample["idle"] and sample.get("driver_mb")]
    verdicts = []
    for chapter in sorted({sample["chapter"] or 0.0 for sample in idle}):
        steady = [one for one in idle if (one["chapter"] or 0.0) == chapter and one["steady"]]
        warm = [[one for one in part if (one["age"] or 0.0) >= WARM_SECONDS] for part in _quarters(steady)]
        verdicts += [_verdict(one, warm, 0.0, int(chapter)) for one in MEASURES if one.process]
    for one in MEASURES:
        if not one.process:
            more = RETAINED_SLACK[source] if one.name == "retained" else 0.0
            verdicts.append(_verdict(one, _quarters(idle), more))
    return [verdict for verdict in verdicts if verdict is not None]


def _verdict(
    measure: Measure, parts: Iterable[Sequence[Sample]], more: float, chapter: int = 0
) -> Verdict | None:
    second, last = ([one for one in part if measure.of(one) is not None] for part in parts)
    points = (len(second), len(last))
    if min(points) < POINTS:
        return None
    before, after = (_median(part, measure) for part in (second, last))
    limit = before * RATIO + measure.slack + more
    return Verdict(measure, before, after, limit, chapter=chapter, points=points)


def unjudged(samples: Sequence[Sample], verdicts: Sequence[Verdict]) -> list[str]:
    """The measures that were to be judged, those of processes in every chapter, and have no verdict."""
    known = {(verdict.measure.name, verdict.chapter) for verdict in verdicts}
    chapters = sorted({int(sample["chapter"] or 0.0) for sample in samples} or {0})
    return [
        f"{one.name}, chapter {chapter + 1}" if len(chapters) > 1 and one.process else one.name
        for chapter in chapters
        for one in MEASURES
        if one.judged and (one.process or chapter == chapters[0]) and (one.name, chapter) not in known
    ]


def _quarters(idle: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
    """The second and the last one, by time."""
    if not idle:
        return [], []
    begin, end = _at(idle[0]), _at(idle[-1])
    quarter = (end - begin) / 4

    def within(number: int) -> list[Sample]:
        low, high = begin + number * quarter, begin + (number + 1) * quarter
        return [sample for sample in idle if low <= _at(sample) <= high]

    return within(1), within(3)


def _at(sample: Sample) -> float:
    return sample["at"] or 0.0


def _median(samples: Sequence[Sample], measure: Measure) -> float:
    return float(statistics.median(value for one in samples if (value := measure.of(one)) is not None))

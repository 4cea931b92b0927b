"""What processes cost while something runs: CPU seconds and peak memory, by looking at them again and again.

The peak of one process is the kernel's own high-water mark, reset at the beginning, so a short peak between
two looks counts too. CPU seconds are those of the last look; a process that ends loses less than an interval.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field
from pathlib import Path

import psutil


@dataclass
class Watch:
    """The processes below `pid` and itself; with `word` only those that have it in their command line."""

    pid: int
    word: str | None = None
    peak: int = 0
    peak_sum: int = 0
    _first: dict[int, float] = field(default_factory=dict)
    _last: dict[int, float] = field(default_factory=dict)
    _chosen: dict[int, bool] = field(default_factory=dict)

    @property
    def cpu(self) -> float:
        """Seconds, user and system, since the first look."""
        return sum(seconds - self._first.get(pid, 0.0) for pid, seconds in self._last.items())

    def look(self, tree: list[psutil.Process], *, first: bool) -> None:
        """Take the figures of now."""
        total = 0
        for process in tree:
            with contextlib.suppress(psutil.Error, OSError):
                if not self._wanted(process):
                    continue
                if first:
                    with contextlib.suppress(OSError):
                        Path(f"/proc/{process.pid}/clear_refs").write_text("5")
                times = process.cpu_times()
                self._last[process.pid] = times.user + times.system
                if first:
                    self._first[process.pid] = times.user + times.system
                resident, highest = _memory(process)
                total += resident
                self.peak = max(self.peak, highest)
        # Of one process the highest is known, also between two looks; of all together only what was seen.
        self.peak_sum = max(self.peak_sum, total, self.peak)

    def _wanted(self, process: psutil.Process) -> bool:
        # A process's name may be set a moment after its start, so only a yes is final.
        if self.word is None or self._chosen.get(process.pid):
            return True
        self._chosen[process.pid] = any(self.word in part for part in process.cmdline())
        return self._chosen[process.pid]


class Sampler:
    """Looks at its watches while the block runs."""

    def __init__(self, *watches: Watch, every: float = 0.2) -> None:
        self._watches, self._every = watches, every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sampler:
        self._look(first=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._look(first=False)

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            self._look(first=False)

    def _look(self, *, first: bool) -> None:
        trees: dict[int, list[psutil.Process]] = {}
        for watch in self._watches:
            with contextlib.suppress(psutil.Error):
                if watch.pid not in trees:
                    top = psutil.Process(watch.pid)
                    trees[watch.pid] = [top, *top.children(recursive=True)]
                watch.look(trees[watch.pid], first=first)


class Machine:
    """The whole machine, from now on."""

    def __init__(self) -> None:
        self._busy, self._all = _machine()

    def others(self, ours: float) -> float:
        """The share of all processors' time that went to others than us, who took `ours` seconds."""
        busy, everything = _machine()
        return max(0.0, busy - self._busy - ours) / max(everything - self._all, 1e-9)


def _machine() -> tuple[float, float]:
    times = psutil.cpu_times()
    free = times.idle + getattr(times, "iowait", 0.0)
    # A guest's time is in the user's time too.
    twice = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    everything = sum(times) - twice
    return everything - free, everything


def _memory(process: psutil.Process) -> tuple[int, int]:
    """Resident bytes now and at most."""
    found = {}
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith(("VmRSS:", "VmHWM:")):
            found[line[:5]] = int(line.split()[1]) * 1024
    return found.get("VmRSS", 0), found.get("VmHWM", 0)

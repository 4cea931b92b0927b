"""A pipeline, its application and its oracles, put together for one test.

    rig = Rig(tmp_path, ledger)             # database, empty lake, stand-in for Spark
    rig.points.arm("apply.after")           # before the act
    rig.start(); rig.points.struck("apply.after"); rig.kill()
    rig.start(); rig.settle()               # O1, O2, O4; O3 was sampled all the time

The pipeline is a process tree of its own. `kill` freezes all of it and then sends SIGKILL, so that no part
outlives another long enough to tidy up.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Literal

from deltalake import DeltaTable

from tests.faults import child, oracles
from tests.faults.databases import Ledger, Sqlite
from tests.faults.documents import Documents, Search
from tests.faults.oracles import Sampler
from tests.faults.pipe import ROOT, Pipe, environment
from tests.faults.points import VARIABLE, Points
from tests.faults.source import BUG, CAPTURE, LEASE
from tests.support.waiting import wait_until


class Rig:
    """See the module's text. Use as a context: nothing it started survives it."""

    def __init__(
        self,
        directory: Path,
        ledger: Ledger,
        engine: Literal["loop", "spark"] = "loop",
        *,
        rows: int = 0,
        state: Path | None = None,
        checkpoint: Path | None = None,
        master: str = "local[2]",
        late: bool = False,
        manners: dict[str, Any] | None = None,
        seed_bug: str | None = None,
        lease: float | None = None,
        capture: dict[str, Any] | None = None,
        tables: tuple[str, ...] = (),
        documents: str | None = None,
        store: dict[str, Any] | None = None,
        search: Search | None = None,
        writing: dict[str, str] | None = None,
        receiver: str | None = None,
        **options: Any,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.ledger = ledger
        self.lake = directory / "lake" / "ledger"
        self.feed = directory / "feed.ndjson"
        self.state = state or directory / "state"
        self.checkpoint = checkpoint or directory / "checkpoint"
        self.points = Points(directory / "points")
        self._writing = writing or {}
        self._variables = {VARIABLE: str(directory / "points")}
        if seed_bug:
            self._variables[BUG] = seed_bug
        if lease is not None:
            self._variables[LEASE] = str(lease)
        if capture:
            self._variables[CAPTURE] = json.dumps(capture)
        self.settings: dict[str, Any] = {
            "engine": engine,
            "directory": str(directory),
            "url": ledger.url,
            "schema": ledger.schema,
            "tables": ["ledger", *tables],
            "checkpoint": str(self.checkpoint),
            "master": master,
            "late": late,
            "manners": manners or {},
            "store": store or {},
            "search": search.settings if search is not None else None,
            "receiver": receiver,
            "once": False,
            "options": {
                "stateDir": str(self.state),
                "consumer": ledger.consumer,
                **{name: str(value) for name, value in options.items()},
            },
        }
        self._sentinel = 0
        self._pipes: list[Pipe] = []
        self._writers: list[subprocess.Popen[str]] = []
        self.journals: list[Path] = []
        self._slow = 6.0 if engine == "spark" else 1.0
        self.sampler = Sampler(ledger, self.checkpoint, self.lake, self.feed)
        self.documents: Documents | None = None
        if documents is not None:
            self.documents = Documents(directory, ledger, documents, search, (store or {}).get("path"))
        if rows:
            self.insert(1_000_000, rows)

    @property
    def pipe(self) -> Pipe:
        """The newest run."""
        return self._pipes[-1]

    def __enter__(self) -> Rig:
        self.sampler.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers:
            writer.kill()
            writer.communicate()
        for pipe in self._pipes:
            if pipe.process.poll() is None:
                pipe.process.kill()
                pipe.process.wait(timeout=30)
            pipe.clear()
        self.sampler.__exit__()
        self.ledger.close()

    @property
    def database(self) -> Path:
        """The file of a SQLite source."""
        assert isinstance(self.ledger, Sqlite)
        return self.ledger.path

    def connect(self) -> Any:
        """A connection of the application's, in autocommit mode."""
        return self.ledger.connect()

    def run(self, *statements: str) -> None:
        """One transaction of the application's."""
        self.ledger.run(*statements)

    def insert(self, first: int, count: int, note: str = ":bulk") -> None:
        """So many rows in one transaction."""
        self.ledger.insert(first, count, note)

    def impatient(self) -> None:
        """Have a server let go of a frozen client's slot after two seconds; by default it takes a minute."""
        if self.settings["url"].startswith("postgres"):
            self.settings["url"] += "&options=-c%20wal_sender_timeout%3D2000"

    def freeze(self, pipe: Pipe) -> None:
        """Freeze a process until its lease has run out: before that a successor is refused."""
        pipe.signal(signal.SIGSTOP)
        lease = float(self._variables[LEASE])

        def over() -> bool:
            owners = (self.state / "changelog" / "owner").glob("*.json")
            return time.time() - max(path.stat().st_mtime for path in owners) > lease

        wait_until(over, what="the end of a lease")

    def start(self, *, once: bool = False, **settings: Any) -> Pipe:
        """Start the pipeline, or go on from where it was."""
        pipe = Pipe(self.directory, {**self.settings, "once": once, **settings}, self._variables)
        self._pipes.append(pipe)
        return pipe

    def struck(self, point: str, timeout: float = 60.0) -> dict[str, Any]:
        """Wait until the pipeline is at an armed point. Fails at once if it ended without coming there."""
        pipe = self.pipe

        def ended() -> int | None:
            return pipe.process.returncode if self._ended() else None

        def over() -> bool:
            return self.points.met(point) or ended() not in (None, -signal.SIGKILL)

        wait_until(over, timeout=timeout, interval=0.01, what=f"coming to {point}")
        assert self.points.met(point), f"it ended with {ended()} before {point}\n{pipe.tail()}"
        return self.points.facts(point)

    def once(self) -> dict[str, Any]:
        """Run until caught up in this process, without kills; how it ended."""
        return child.run(self.settings, once=True)

    def write(self, *, seed: int = 1, keys: int = 40, limit: int = 100_000) -> subprocess.Popen[str]:
        """Start a writer; it has written something when this returns."""
        number = len(self._writers)
        journal = self.directory / f"journal-{number}.ndjson"
        self.journals.append(journal)
        command = [sys.executable, "-m", "tests.faults.writer", self.ledger.address(), str(journal)]
        writer = subprocess.Popen(
            [*command, str(seed), str(1 + number * 1000), str(keys), str(limit)],
            cwd=ROOT,
            env=environment(self._writing),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._writers.append(writer)
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        return writer

    def finish(self) -> None:
        """Wait until the writers have done as many transactions as they were told."""
        for writer in self._writers:
            assert writer.wait(timeout=60) == 0

    def hush(self) -> None:
        """End the writers, each after its transaction."""
        for writer in self._writers:
            if writer.poll() is None:
                writer.communicate("end\n", timeout=60)
            assert writer.returncode in (0, -signal.SIGKILL)

    def sabotage_writer(self, dice: random.Random) -> None:
        """Kill one writer wherever it is: what it was about to commit has an unknown outcome."""
        living = [writer for writer in self._writers if writer.poll() is None]
        if living:
            victim = dice.choice(living)
            victim.kill()
            victim.communicate()

    def sentinel(self) -> int:
        """A row that shows how far the pipeline is."""
        self._sentinel -= 1
        self.run(f"INSERT INTO ledger VALUES ({self._sentinel}, {-self._sentinel}, ':sentinel')")
        return self._sentinel

    def arrived(self, key: int, timeout: float = 60.0) -> None:
        """Wait until a row is in the mirror."""

        def there() -> bool:
            try:
                table = DeltaTable(str(self.lake))
                found = table.to_pyarrow_table(columns=["key"], filters=[("key", "=", key)])
                return bool(found.num_rows)
            except Exception:
                return False

        try:
            wait_until(
                lambda: there() or self._ended(),
                timeout=timeout,
                interval=0.05,
                what=f"row {key} in the mirror",
            )
        except AssertionError as error:
            tails = "\n".join(pipe.tail() for pipe in self._pipes[-1:])
            raise oracles.Violation("arrival", f"{error}\n{tails}") from error
        if self._ended():
            raise oracles.Violation("end", f"the pipeline ended: {self.pipe.ended()}")

    def _ended(self) -> bool:
        return bool(self._pipes) and all(pipe.process.poll() is not None for pipe in self._pipes)

    def settle(self, timeout: float = 60.0) -> None:
        """O1 to O4, while the pipeline runs and the writers rest."""
        self.hush()
        # The sentinel must come by the log, after everything else, and not in a chunk that is read late.
        wait_until(
            lambda: oracles.snapshot_left(self.checkpoint) == 0 or self._ended(),
            timeout=timeout,
            what="the whole snapshot",
        )
        self.arrived(self.sentinel(), timeout)
        # First the acknowledgement: while the sentinel is in the mirror its batch may still write more.
        self.caught_up(timeout)
        oracles.final_state(self.ledger, self.lake, self.feed)
        oracles.history(self.journals, self.feed, self.lake)
        assert self.sampler.samples > 0, "nobody looked at the acknowledgement"
        self.sampler.check()
        if self.documents is not None:
            self.documents.check()

    def caught_up(self, timeout: float = 60.0) -> None:
        """O4: the acknowledged position reaches the newest write."""
        mark = self.ledger.mark
        try:
            wait_until(lambda: (self.cursor() or -1) >= mark, timeout=timeout, what="no lag")
        except AssertionError as error:
            raise oracles.Violation("O4", f"{self.cursor()} of {mark}: {error}") from error

    def cursor(self) -> int | None:
        """What the source has on record for the pipeline."""
        return self.ledger.cursor()

    def commits(self) -> set[int]:
        """The batches that are committed."""
        folder = self.checkpoint / "commits"
        return {int(p.name) for p in folder.iterdir() if p.name.isdigit()} if folder.exists() else set()

    def delta_version(self) -> int:
        """The newest version of the mirror."""
        return max(int(path.stem) for path in (self.lake / "_delta_log").glob("*.json"))

    def stays(self, condition: Any, seconds: float = 0.5) -> None:
        """Something that must not change while nothing may move."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            assert condition()
            time.sleep(0.02)

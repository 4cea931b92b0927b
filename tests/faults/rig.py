"""A pipeline, its application and its oracles, put together for one test.

    rig = Rig(tmp_path)                     # database, empty lake, stand-in for Spark
    rig.points.arm("apply.after")           # before the act
    rig.start(); rig.points.struck("apply.after"); rig.kill()
    rig.start(); rig.settle()               # O1, O2, O4; O3 was sampled all the time

The pipeline is a process tree of its own. `kill` freezes all of it and then sends SIGKILL, so that no part
outlives another long enough to tidy up.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import psutil
from deltalake import DeltaTable

from tests.faults import child, oracles
from tests.faults.oracles import Sampler
from tests.faults.points import VARIABLE, Points
from tests.faults.source import BUG, LEASE
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
CONSUMER = "rig"
MARK = "TAILRACE_RIG"
TABLE = "CREATE TABLE ledger (key INTEGER PRIMARY KEY, number INTEGER NOT NULL, note TEXT)"


class Pipe:
    """One run of the pipeline: a process tree that can be killed as a whole."""

    def __init__(self, directory: Path, settings: dict[str, Any], variables: dict[str, str]) -> None:
        self._mark = uuid.uuid4().hex
        self._directory = directory
        path = directory / f"settings-{self._mark[:8]}.json"
        path.write_text(json.dumps(settings))
        self.log = directory / f"child-{self._mark[:8]}.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.child", str(path)],
                cwd=ROOT,
                env=environment(variables | {MARK: self._mark}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def tree(self) -> list[psutil.Process]:
        """Every process of this run: Spark puts the JVM and its workers into sessions of their own."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get(MARK) == self._mark:
                    found.append(process)
        return found

    def kill(self) -> None:
        """SIGKILL for everything. A pipeline that had ended by itself fails the test."""
        assert self.process.poll() is None, f"nothing to kill: it ended\n{self.tail()}"
        tree = self.tree
        assert self.process.pid in {process.pid for process in tree}
        self.signal(signal.SIGSTOP, tree)
        self.signal(signal.SIGKILL, tree)
        assert self.process.wait(timeout=30) == -signal.SIGKILL
        self.clear()

    def signal(self, number: signal.Signals, tree: Iterable[psutil.Process] | None = None) -> None:
        """A signal for everything."""
        for process in self.tree if tree is None else tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def clear(self) -> None:
        """Nothing of it is left."""

        def gone() -> bool:
            left = [process for process in self.tree if process.status() != psutil.STATUS_ZOMBIE]
            self.signal(signal.SIGKILL, left)
            return not left

        with contextlib.suppress(psutil.NoSuchProcess):
            wait_until(gone, timeout=30, what="the end of the process tree")

    def died(self, timeout: float = 60.0) -> None:
        """It killed itself at a point it was armed for."""
        assert self.process.wait(timeout=timeout) == -signal.SIGKILL, self.tail()
        self.clear()

    def terminate(self, timeout: float = 60.0) -> dict[str, Any]:
        """SIGTERM, as an operator's stop; how it ended."""
        self.process.send_signal(signal.SIGTERM)
        return self.ended(timeout)

    def ended(self, timeout: float = 60.0) -> dict[str, Any]:
        """Wait for its end; how it ended."""
        try:
            code = self.process.wait(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end within {timeout:g} s\n{self.tail()}") from None
        path = self._directory / f"outcome-{self.process.pid}.json"
        assert path.exists(), f"it ended with {code} and left no outcome\n{self.tail()}"
        outcome: dict[str, Any] = json.loads(path.read_text())
        assert code == outcome["exit"]
        return outcome

    def tail(self) -> str:
        """The end of what it wrote."""
        return self.log.read_text(errors="replace")[-3000:]


class Rig:
    """See the module's text. Use as a context: nothing it started survives it."""

    def __init__(
        self,
        directory: Path,
        engine: Literal["loop", "spark"] = "loop",
        *,
        rows: int = 0,
        state: Path | None = None,
        master: str = "local[2]",
        late: bool = False,
        manners: dict[str, Any] | None = None,
        seed_bug: str | None = None,
        lease: float | None = None,
        **options: Any,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.database = directory / "shop.db"
        self.lake = directory / "lake" / "ledger"
        self.feed = directory / "feed.ndjson"
        self.state = state or directory / "state"
        self.checkpoint = directory / "checkpoint"
        self.points = Points(directory / "points")
        self._variables = {VARIABLE: str(directory / "points")}
        if seed_bug:
            self._variables[BUG] = seed_bug
        if lease is not None:
            self._variables[LEASE] = str(lease)
        self.settings: dict[str, Any] = {
            "engine": engine,
            "directory": str(directory),
            "url": f"sqlite:{self.database}",
            "checkpoint": str(self.checkpoint),
            "master": master,
            "late": late,
            "manners": manners or {},
            "once": False,
            "options": {
                "stateDir": str(self.state),
                "consumer": CONSUMER,
                **{name: str(value) for name, value in options.items()},
            },
        }
        self._sentinel = 0
        self._pipes: list[Pipe] = []
        self._writers: list[subprocess.Popen[str]] = []
        self.journals: list[Path] = []
        self._slow = 6.0 if engine == "spark" else 1.0
        self.sampler = Sampler(self.database, CONSUMER, self.checkpoint, self.lake)
        with closing(self.connect()) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(TABLE)
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

    def connect(self) -> sqlite3.Connection:
        """A connection of the application's, in autocommit mode."""
        return sqlite3.connect(self.database, timeout=60, isolation_level=None)

    def run(self, *statements: str) -> None:
        """One transaction of the application's."""
        with closing(self.connect()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for statement in statements:
                connection.execute(statement)
            connection.execute("COMMIT")

    def insert(self, first: int, count: int, note: str = ":bulk") -> None:
        """So many rows in one transaction."""
        self.run(
            f"WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {count}) "
            f"INSERT INTO ledger SELECT {first} + i, 1, '{note}' FROM n"
        )

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
        command = [sys.executable, "-m", "tests.faults.writer", str(self.database), str(journal)]
        writer = subprocess.Popen(
            [*command, str(seed), str(1 + number * 1000), str(keys), str(limit)],
            cwd=ROOT,
            env=environment({}),
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
        self.run(f"INSERT INTO ledger VALUES ({self._sentinel}, 1, ':sentinel')")
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
            raise oracles.Violation("O1", f"{error}\n{tails}") from error
        if self._ended():
            raise oracles.Violation("O4", f"the pipeline ended: {self.pipe.ended()}")

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
        # First the acknowledgement: with the sentinel in the mirror its batch is not over, and may write more.
        self.caught_up()
        oracles.final_state(self.database, self.lake, self.feed)
        oracles.history(self.journals, self.feed, self.lake)
        self.sampler.check()
        assert self.sampler.samples > 0

    def caught_up(self, timeout: float = 30.0) -> None:
        """O4: the acknowledged position reaches the source's newest."""
        try:
            wait_until(lambda: oracles.lag(self.database, CONSUMER) == 0, timeout=timeout, what="no lag")
        except AssertionError as error:
            raise oracles.Violation("O4", f"lag {oracles.lag(self.database, CONSUMER)}: {error}") from error

    def cursor(self) -> int | None:
        """What the source has on record for the pipeline."""
        with closing(self.connect()) as connection:
            return oracles.cursor_of(connection, CONSUMER)

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


def environment(variables: dict[str, str]) -> dict[str, str]:
    """For processes of the rig: they import the product and these tests."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return {**os.environ, "PYTHONPATH": paths, "PYTHONWARNINGS": "default", **variables}

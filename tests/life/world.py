"""Lives actions on the real product: `tailrace run` as a process, commands as a person gives them.

A person also does what a message tells: a pipeline that stops because its table was altered is set up and
started again. Whatever else ends by itself is a failure of the product, as is what an oracle says no to.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from tailrace.changelog.filesystem import open_filesystem
from tailrace.engine.documents.state import States
from tailrace.engine.progress import committed
from tailrace.model import errors
from tailrace.spark.plans import PlanStore
from tests.cli.command import COMMAND, tailrace
from tests.faults.oracles import Violation
from tests.faults.pipe import MARK, ROOT, Pipe, environment
from tests.life.grounds import Cluster, PostgresGround, ground_of
from tests.life.model import BULK, MIRRORED, Engine, Model, Variant
from tests.life.oracles import Book, Watch, mirror_differs
from tests.life.trace import Action
from tests.support.documents.pipelines import Home
from tests.support.waiting import wait_until

# A heap that shrinks again shows at an idle point what is really held. Everything that a JVM fills because it
# may is bounded, so that an hour is long enough to see what it fills because it must.
HEAP = "512m"
JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UseG1GC -XX:G1PeriodicGCInterval=5000 -XX:-G1PeriodicGCInvokesConcurrent"
    " -XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=30"
    " -XX:MaxMetaspaceSize=256m -XX:ReservedCodeCacheSize=64m -XX:MaxDirectMemorySize=128m"
)
# How long a fault's end may be ago before there must be no lag.
LIVELY_SECONDS = 420.0
PASSING, ACT = 4, 3
# How often a run may end because of one altered table: a mirror may notice it, and an index after it.
EXCUSED = 2
# What is said of lost log, of another source or state, and of a successor: no altered table does that.
WORSE = ("--on-data-loss", "state directory", "restored from", "taken over")
STARVED = "Python worker failed to connect back"


# How long an operator waits for the end of a run that was asked to stop.
STOP_SECONDS = 240.0


def lively(seconds: float = LIVELY_SECONDS) -> float:
    """How long that is now: on a machine with more to do than it has processors, up to four times as long."""
    return seconds * min(4.0, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


def told_to_read(text: str) -> list[str]:
    """The tables of which a message asks for a snapshot; it names the configuration too where it must."""
    return sorted(set(re.findall(r"tailrace snapshot [^\n]*?--table '?([\w.]+)", text)))


def complaint(text: str) -> str:
    """What a run wrote besides its events, of which many name tables."""
    return "\n".join(line for line in text.splitlines() if '"event":' not in line)


def excused(said: str, drifted: Counter[str]) -> list[str]:
    """The altered tables that a message is about, where they may be why a run ended; else none."""
    if any(words in said for words in WORSE):
        return []
    named = [table for table in drifted if re.search(rf"\b{re.escape(table)}\b", said)]
    return named if any(drifted[table] > 0 for table in named) else []


class Ended(Exception):
    """The pipeline ended by itself. Not an assertion: who waits for a condition takes these for "not yet"."""


class Run(Pipe):
    """A run of the pipeline: a process tree of its own, its feed in a file, its log in another."""

    def __init__(self, number: int, home: Home, engine: Engine) -> None:
        self._mark = uuid.uuid4().hex
        self._directory = home.directory
        self.number, self.began = number, time.monotonic()
        self.log = home.directory / f"run-{number:05}.log"
        self.feed = home.directory / f"feed-{number:05}.ndjson"
        # Spark's log goes on from run to run.
        self._spark_log = home.state / "spark.log"
        self._spark_from = self._spark_log.stat().st_size if self._spark_log.exists() else 0
        stand_in = [sys.executable, "-m", "tests.documents.living", str(home.directory)]
        command = [*COMMAND, "run", "-c", str(home.path), "--log-format", "json"]
        with self.log.open("wb") as log, self.feed.open("wb") as feed:
            self.process = subprocess.Popen(
                stand_in if engine == "loop" else command,
                cwd=ROOT,
                env=environment({MARK: self._mark}),
                stdin=subprocess.DEVNULL,
                stdout=feed,
                stderr=log,
                start_new_session=True,
            )

    def code(self) -> int:
        """What it ended with, as the command tells it; the stand-in ends with the error itself."""
        code = int(self.process.returncode)
        names = re.findall(r"^tailrace\.model\.errors\.(\w+):", self.log.read_text(errors="replace"), re.M)
        return int(getattr(errors, names[-1]).exit_code) if code == 1 and names else code

    def starved(self) -> bool:
        """Whether Spark gave up on a worker that had no time to start: a busy machine, as good as a kill."""
        if not self._spark_log.exists():
            return False
        with self._spark_log.open("rb") as file:
            file.seek(self._spark_from)
            told = file.read().decode(errors="replace")
        return STARVED in told.rpartition("terminated with error")[2]

    def events(self, name: str) -> int:
        """How often an event was told."""
        return self.log.read_text(errors="replace").count(f'"event": "{name}"')


class LifeHome(Home):
    """The pipeline's directory: mirrors and a feed beside the documents."""

    spark: ClassVar[Mapping[str, str]] = {
        "spark.driver.extraJavaOptions": JAVA,
        "spark.driver.memory": HEAP,
    }

    @property
    def lake(self) -> Path:
        return self.directory / "lake"

    def arrange(self, model: Model) -> None:
        """The configuration as it is to be now."""
        tables = "".join(f'[[table]]\nname = "{table}"\n' for table in MIRRORED)
        extra = f'[sinks.lake]\ntype = "delta"\npath = "lake"\n{tables}[[feed]]\ntables = ["ledger"]\n'
        self.configure(model.indexes, disabled=model.disabled, extra=extra)

    def position(self) -> int | None:
        """The end of the last committed batch, where every snapshot and filling is complete by then.

        A table may have been read since for another index alone, or in part.
        """
        last = committed(str(self.state / "checkpoint"))
        if last is None or PlanStore(*open_filesystem(str(self.state))).requests():
            return None
        states = States(str(self.state))
        known = [states.get(self.store.prefix + index) for index in self.enabled]
        filled = all(one is not None and one.complete and not one.again for one in known)
        whole = filled and all(cursor.complete for cursor in last[1].snapshots.values())
        return last[1].position.version if whole else None


class World:
    """A source, a pipeline and its sinks, and what happens to them. Use as a context."""

    def __init__(
        self,
        directory: Path,
        variant: Variant,
        *,
        strict: bool = True,
        said: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Not `strict`: statements that miss what others made are passed over, as in a part of a trace."""
        self.model = Model(variant)
        self.counts: Counter[str] = Counter()
        self.run: Run | None = None
        # Called at every idle point.
        self.idle: Callable[[], None] = lambda: None
        self._strict, self._said = strict, said
        self._runs: list[Run] = []
        self._dirty = False
        # How many ends of a run are still excused by the altering of a table.
        self._drifted: Counter[str] = Counter()
        self._patience = 0
        self._pause = threading.Event()
        self._stack = contextlib.ExitStack()
        name = f"life{uuid.uuid4().hex[:8]}"
        self.ground = ground_of(variant, directory / "source", name)
        self._stack.callback(self.ground.close)
        self.cluster = Cluster(variant)
        self._stack.callback(self.cluster.close)
        self.home = LifeHome(directory / "home", name, self.ground.app, self.cluster.store("a"))
        self.book = Book()
        self.watch = Watch(self.ground, self.home.state / "checkpoint", self.home.lake / "ledger")

    def __enter__(self) -> World:
        self.watch.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.watch.__exit__()
        for run in self._runs:
            if run.process.poll() is None:
                run.process.kill()
                run.process.wait(timeout=30)
            run.clear()
        self._stack.close()

    def do(self, one: Action) -> bool:
        """Live an action; False where it makes no sense now. Violation is what is wrong."""
        if not self.model.allows(one):
            return False
        began = time.monotonic()
        try:
            getattr(self, f"_do_{one.do}")(one)
        except Ended as error:
            raise Violation("O4", str(error)) from None
        self.model.take(one)
        self.counts[one.do] += 1
        self._said(f"{one}: {time.monotonic() - began:.1f} s")
        return True

    @property
    def running(self) -> tuple[int, int, float] | None:
        """Number, process id and age of the run."""
        run = self.run
        if run is None or run.process.poll() is not None:
            return None
        return run.number, run.process.pid, time.monotonic() - run.began

    @property
    def queries(self) -> int:
        """How many queries the run has begun so far."""
        run = self.run
        return run.events("pipeline.started") if run is not None and run.log.exists() else 0

    # The pipeline.

    def _do_start(self, _: Action) -> None:
        self._begin()

    def _begin(self) -> None:
        self.run = Run(len(self._runs), self.home, self.model.variant.engine)
        self._runs.append(self.run)

    def _do_kill(self, one: Action) -> None:
        self._wait_for(one["after"])
        self._end_by_force()

    def _end_by_force(self) -> None:
        run = self._now()
        if run.process.poll() is None:
            # The stand-in tells of nothing, and is at work at once.
            at_work = self.model.variant.engine == "loop" or run.events("pipeline.started")
            self.counts["killed_at_work"] += bool(at_work)
            run.kill()
            self.counts["killed"] += 1
        self._dirty, self.run = True, None

    def _do_term(self, one: Action) -> None:
        self._wait_for(one["after"])
        self._end_kindly()

    def _end_kindly(self) -> None:
        """As an operator does. It ends with 0, unless something else was about to end it."""
        run = self._now()
        run.process.send_signal(signal.SIGTERM)
        patience = lively(STOP_SECONDS)
        try:
            code = run.process.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            raise Violation("O4", f"it did not stop within {patience:.0f} s\n{run.tail()}") from None
        run.clear()
        if code != 0:
            # It may not have its handler yet: the command has it once it tells of Spark's start.
            deaf = self.model.variant.engine == "loop" or not run.events("spark.starting")
            if not (deaf and code == -signal.SIGTERM):
                self._judge_end(run)
            self._dirty = True
        self.run = None

    def _do_freeze(self, one: Action) -> None:
        run = self._now()
        tree = run.tree
        run.signal(signal.SIGSTOP, tree)
        self._pause.wait(one["seconds"])
        run.signal(signal.SIGCONT, tree)

    def _do_wait(self, one: Action) -> None:
        self._wait_for(one["seconds"])

    def _wait_for(self, seconds: float) -> None:
        # The stand-in starts, and does everything else, in a fraction of Spark's time.
        self._pause.wait(seconds * (0.15 if self.model.variant.engine == "loop" else 1.0))
        self._alive()

    def _now(self) -> Run:
        assert self.run is not None
        return self.run

    def _alive(self) -> None:
        """Whoever watches over the pipeline starts it again where that is right; Ended where it is not."""
        run = self.run
        if run is None or run.process.poll() is None:
            return
        starved = self._judge_end(run)
        run.clear()
        # How often a machine has no time for it says nothing about it; how long it may is O4's to say.
        self._patience += not starved
        if self._patience > 6:
            raise Ended(f"it ended again and again\n{run.tail()}")
        self._begin()

    def _judge_end(self, run: Run) -> bool:
        """Ended, unless a supervisor or a person would have gone on from here; whether it had no time to."""
        code = run.code()
        self._dirty = True
        if run.starved():
            self.counts["starved"] += 1
            return True
        if code == PASSING:
            self.counts["passing"] += 1
            return False
        told = run.log.read_text(errors="replace")
        # Not just any error that a person must act on: one about a table that was altered.
        said = complaint(run.tail())
        if code == ACT and (named := excused(said, self._drifted)):
            self._drifted.subtract(named)
            self.counts["drift"] += 1
            if self.model.variant.source == "sqlite":
                self._command("setup")
            for table in told_to_read(told):
                self._command("snapshot", "--table", table)
            return False
        raise Ended(f"it ended with {code}\n{run.tail()}")

    def _command(self, *words: str) -> None:
        """A command of the product, given again after a passing fault."""
        for _ in range(4):
            done = tailrace(self.home.directory, *words)
            if done.returncode != PASSING:
                break
        if done.returncode != 0:
            raise Violation("O4", f"tailrace {' '.join(words)}: {done.returncode}\n{done.stderr[-2000:]}")

    # The application.

    def _do_create(self, one: Action) -> None:
        self.ground.transaction(one["tables"])
        self.ground.transaction(one["rows"])
        self.ground.publish()
        self.model.indexes = dict(one["indexes"])
        self.home.arrange(self.model)

    def _do_write(self, one: Action) -> None:
        for transaction in one["transactions"]:
            try:
                self.ground.transaction(transaction["statements"], commit=transaction["end"] == "commit")
            except self.ground.errors:
                if self._strict:
                    raise
            self.counts["transactions"] += 1

    def _do_ledger(self, one: Action) -> None:
        book = self.book
        for transaction in one["transactions"]:
            ops, end = transaction["ops"], transaction["end"]
            lost = ops if end == "rollback" else ops[: len(ops) // 2] if end == "savepoint" else []
            kept = ops[len(lost) :]
            statements = book.statements(ops)
            if end == "savepoint":
                inner = ["SAVEPOINT a", *book.statements(lost), "ROLLBACK TO SAVEPOINT a"]
                statements = [*inner, *book.statements(kept)]
            # Before the commit: the feed may tell of it at once.
            book.failed(lost)
            self.ground.transaction(statements, commit=end != "rollback")
            book.committed(kept)
            self.counts["transactions"] += 1

    def _do_grow(self, one: Action) -> None:
        count = one["rows"]
        numbers = f"generate_series(0, {count - 1}) AS n(i)"
        head = ""
        if self.model.variant.source == "sqlite":
            limit = f"i + 1 < {count}"
            head = f"WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE {limit}) "
            numbers = "n"
        self.ground.transaction(
            [f"{head}INSERT INTO ledger SELECT {one['first']} + i, 1, 'bulk' FROM {numbers}"]
        )
        self.book.committed(["put", one["first"] + number, 1] for number in range(count))

    def _do_fell(self, _: Action) -> None:
        self.ground.transaction([f"DELETE FROM ledger WHERE key >= {BULK}"])
        self.book.committed(["del", key, 0] for key in self.book.bulk())

    def _do_add(self, one: Action) -> None:
        """On SQLite a pipeline that sees it stops, and a person sets it up again."""
        self.ground.transaction([f"ALTER TABLE {one['table']} ADD COLUMN {one['column']} TEXT"])
        self._drifted[one["table"]] = EXCUSED
        if self.model.variant.source == "sqlite" and self.run is None:
            self._command("setup")

    def _do_drop(self, one: Action) -> None:
        """SQLite refuses while a trigger uses the column: a person follows the documentation."""
        statement = f"ALTER TABLE {one['table']} DROP COLUMN {one['column']}"
        self._drifted[one["table"]] = EXCUSED
        if self.model.variant.source != "sqlite":
            self.ground.transaction([statement])
            return
        was_running = self.run is not None
        if was_running:
            self._end_kindly()
        self._command("teardown", "--table", one["table"], "--yes")
        self.ground.transaction([statement])
        self._command("setup")
        if was_running:
            self._begin()

    # What is around it.

    def _do_cut(self, one: Action) -> None:
        assert isinstance(self.ground, PostgresGround)
        if one["after"]:
            self.ground.proxy.cut_after(one["after"])
        else:
            self.ground.proxy.cut()

    def _do_restart_server(self, one: Action) -> None:
        self._server_down(one["seconds"], crash=False)

    def _do_crash_server(self, one: Action) -> None:
        self._server_down(one["seconds"], crash=True)

    def _server_down(self, seconds: float, *, crash: bool) -> None:
        assert isinstance(self.ground, PostgresGround)
        server = self.ground.server
        server.kill() if crash else server.stop()
        self._pause.wait(seconds)
        server.start()
        self.ground.renew()

    def _do_crash_store(self, one: Action) -> None:
        server = self.cluster.server
        assert server is not None
        server.kill()
        self._pause.wait(one["seconds"])
        server.start()

    # What a person asks for.

    def _do_pause(self, _: Action) -> None:
        self._command("snapshot", "--pause")

    def _do_resume(self, _: Action) -> None:
        self._command("snapshot", "--resume")

    def _do_request(self, one: Action) -> None:
        where = ["--where", one["where"]] if one["where"] else []
        self._command("snapshot", "--table", one["table"], *where)

    def _do_reindex(self, one: Action) -> None:
        self._command("reindex", one["index"])

    def _do_schema(self, one: Action) -> None:
        self.model.indexes[one["index"]] = one["tree"]
        self._renew(one["how"])

    def _do_rest(self, one: Action) -> None:
        changed = Model(self.model.variant, indexes=self.model.indexes, disabled=set(self.model.disabled))
        changed.take(one)
        self._renew(one["how"], changed)

    def _do_swap(self, one: Action) -> None:
        self.home.store = self.cluster.store(one["store"])
        self._renew(one["how"])

    def _renew(self, how: str, model: Model | None = None) -> None:
        """The configuration is another one; a running pipeline hears of it."""
        self.home.arrange(model or self.model)
        run = self.run
        if run is None:
            return
        self.counts[f"by_{how}"] += 1
        if how == "signal" and self.model.variant.engine == "spark":
            self._signal()
            return
        if how == "kill":
            self._end_by_force()
        else:
            self._end_kindly()
        self._begin()

    def _signal(self) -> None:
        """SIGHUP, once it listens; a run that ended meanwhile is begun anew, with the new file."""

        def started(number: int) -> bool:
            self._alive()
            return self._now() is not run or self._now().events("pipeline.started") >= number

        run = self._now()
        wait_until(lambda: started(1), timeout=lively(), interval=0.1, what="the start")
        before, refused = run.events("pipeline.started"), run.events("pipeline.renewal_refused")
        if self._now() is not run:
            return
        run.process.send_signal(signal.SIGHUP)

        def taken_up() -> bool:
            return started(before + 1) or run.events("pipeline.renewal_refused") > refused

        wait_until(taken_up, timeout=lively(), interval=0.1, what="the renewal")
        if run.events("pipeline.renewal_refused") > refused:
            raise Violation("O4", f"the new configuration was refused\n{run.tail()}")

    # The oracles.

    def _do_check(self, _: Action) -> None:
        """An idle point: O1 to O4."""
        if self.run is None:
            self._begin()
        if self.model.paused:
            self._command("snapshot", "--resume")
        if isinstance(self.ground, PostgresGround):
            self.ground.proxy._cut_after = None
        self._patience = 0
        self.ground.app.mark()
        self._settle()
        self._mirrors()
        for run in self._runs[:-1]:
            if run.feed.exists():
                self.book.read(run.feed, ended=True)
        self.book.read(self._now().feed, ended=False)
        self.book.settle(clean=not self._dirty)
        self._acknowledged()
        self.watch.judge(self.book.told)
        self._dirty = False
        self.idle()

    def _settle(self) -> None:
        """O4 and O1 of documents."""

        def alive() -> None:
            # Who looks all the time takes the processor from whoever is looked at.
            self._pause.wait(0.1)
            self._alive()

        try:
            self.home.settle(alive, timeout=lively())
        except AssertionError as error:
            oracle = "O4" if "did not hold" in str(error) else "O1"
            raise Violation(oracle, f"{str(error)[:4000]}\n{self._now().tail()}") from None

    def _mirrors(self) -> None:
        deadline = time.monotonic() + 30
        while lines := self._wrong():
            at = self.home.position()
            sure = at is not None and self.home.app.surely(at)
            self._alive()
            # What was wrong while it was not sure may have become right since.
            if time.monotonic() > deadline or (sure and (lines := self._wrong())):
                raise Violation("O1", "\n".join(lines)[:4000])

    def _wrong(self) -> list[str]:
        lake = self.home.lake
        return [line for table in MIRRORED for line in mirror_differs(self.ground, table, lake / table)]

    def _acknowledged(self) -> None:
        """O4: the source hears of it too."""
        mark = self.ground.mark()

        def heard() -> bool:
            self._alive()
            return (self.ground.cursor() or -1) >= mark

        try:
            wait_until(heard, timeout=lively(), interval=0.1, what="the acknowledgement")
        except AssertionError as error:
            raise Violation("O4", f"{self.ground.cursor()} of {mark}: {error}") from None

    def facts(self) -> dict[str, Any]:
        """What happened, in numbers."""
        return {**self.counts, "runs": len(self._runs), "changes": self.book.changes}

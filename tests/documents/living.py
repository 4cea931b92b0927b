"""Pipelines that live: random indexes over random rows, random changes, runs that are stopped and killed.

    world = World(dice, app, directory, engine)
    world.live()        # a run with changes before, in and after it, at whose idle points everything is equal

Everything falls by one dice, but when a kill comes. `tailrace run` is a process; so is the stand-in for Spark
(`python -m tests.documents.living DIRECTORY`), which starts in a second instead of ten.
"""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import Any, Literal

from tests.cli.command import COMMAND
from tests.faults.pipe import MARK, ROOT, Pipe, environment
from tests.support.documents import grammar
from tests.support.documents.pipelines import MARKS_TABLE, App, Home, PostgresApp, Store

Engine = Literal["loop", "spark"]
# Keys fall from so many, so that they meet often.
KEYS = 9
IDENTITIES = ("DEFAULT", "DEFAULT", "FULL")


class Ended(Exception):
    """A run ended by itself."""


class Run(Pipe):
    """A run of a configured pipeline: a process tree of its own."""

    def __init__(self, home: Home, engine: Engine) -> None:
        self._mark = uuid.uuid4().hex
        self._directory = home.directory
        self.log = home.directory / f"run-{self._mark[:8]}.log"
        stand_in = [sys.executable, "-m", "tests.documents.living", str(home.directory)]
        command = [*COMMAND, "run", "-c", str(home.path)] if engine == "spark" else stand_in
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment({MARK: self._mark}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def alive(self) -> None:
        if self.process.poll() is not None:
            raise Ended(f"it ended with {self.process.returncode}\n{self.tail()}")

    def stop(self) -> None:
        """As an operator does."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=120)
        self.clear()
        if code != 0:
            raise Ended(f"stopped, it ended with {code}\n{self.tail()}")


class Writing:
    """Random statements, as an application may make them."""

    def __init__(self, dice: random.Random, app: App) -> None:
        self._dice, self._app = dice, app
        self._truncates = isinstance(app, PostgresApp)

    def transaction(self) -> list[str]:
        """A transaction; parts of it are taken back."""
        dice = self._dice
        made = [self.statement() for _ in range(dice.choice((1, 1, 2, 3, 8)))]
        if dice.random() < 0.2:
            made = ["SAVEPOINT a", *made[:1], "ROLLBACK TO SAVEPOINT a", *made[1:], self.statement()]
        return made

    def statement(self) -> str:
        dice = self._dice
        table = dice.choice(list(grammar.TABLES))
        fall = dice.random()
        if fall < 0.35:
            row = grammar.draw(dice, table, dice.randint(1, KEYS))
            return grammar.insertion(table, row) + " ON CONFLICT DO NOTHING"
        if fall < 0.65:
            return f"UPDATE {table} SET {self._sets(table)} WHERE {self._where(table)}"
        if fall < 0.72:
            return self._moved(table)
        if fall < 0.98:
            return f"DELETE FROM {table} WHERE {self._where(table)}"
        return f"{'TRUNCATE' if self._truncates and dice.random() < 0.5 else 'DELETE FROM'} {table}"

    def _sets(self, table: str) -> str:
        dice = self._dice
        key = grammar.KEYS.get(table, ["id"])
        row = {name: value for name, value in grammar.draw(dice, table, 1).items() if name not in key}
        names = dice.sample(sorted(row), min(len(row), dice.randint(1, 3)))
        return ", ".join(f"{name} = {grammar.literal(row[name])}" for name in names)

    def _where(self, table: str) -> str:
        """One row, mostly, or those that point at one."""
        dice = self._dice
        pointers = [name for name in grammar.columns_of(table) if name in grammar.POINTERS]
        if pointers and dice.random() < 0.15:
            return f"{dice.choice(pointers)} = {dice.choice((1, 2, 3, 5))}"
        return _keyed(self._key(table))

    def _key(self, table: str) -> dict[str, Any]:
        row = grammar.draw(self._dice, table, self._dice.randint(1, KEYS))
        return {name: row[name] for name in grammar.KEYS.get(table, ["id"])}

    def _moved(self, table: str) -> str:
        """A row gets another key, where that is free."""
        old, new = self._key(table), self._key(table)
        sets = ", ".join(f"{name} = {grammar.literal(value)}" for name, value in new.items())
        free = f"NOT EXISTS (SELECT 1 FROM {table} AS o WHERE {_keyed(new, 'o.')})"
        return f"UPDATE {table} SET {sets} WHERE {_keyed(old)} AND {free}"


def _keyed(key: dict[str, Any], alias: str = "") -> str:
    return " AND ".join(f"{alias}{name} = {grammar.literal(value)}" for name, value in key.items())


class Noted:
    """What is executed, for later."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    def execute(self, statement: str) -> None:
        self.statements.append(statement)


class World:
    """A database, a pipeline's directory, and what happens to them."""

    def __init__(
        self,
        dice: random.Random,
        app: App,
        directory: Path,
        name: str,
        engine: Engine,
        *,
        store: Store | None = None,
    ) -> None:
        self.dice, self.app, self.engine = dice, app, engine
        self.home = Home(directory, name, app, store)
        self.writing = Writing(dice, app)
        self.journal: list[str] = []
        self.kills = self.checks = 0
        self._slow = 8.0 if engine == "spark" else 1.0
        self._pause = threading.Event()
        self._runs: list[Run] = []
        self._former: list[dict[str, Any]] = []
        self._disabled: set[str] = set()
        self._indexes: dict[str, dict[str, Any]] = {}
        for table, columns in grammar.TABLES.items():
            self._do(f"CREATE TABLE {table} ({columns})")
            if isinstance(app, PostgresApp):
                self._do(f"ALTER TABLE {table} REPLICA IDENTITY {dice.choice(IDENTITIES)}")
        self._do(MARKS_TABLE)
        rows = Noted()
        grammar.fill(dice, rows)
        self._do(*rows.statements)
        self.write()
        for at in range(3):
            self._indexes[f"i{at}"] = self._schema()
        self._configure()

    def _do(self, *statements: str) -> None:
        self.journal.append(";\n".join(statements) + ";")
        self.app.run(*statements)

    def _schema(self) -> dict[str, Any]:
        made = grammar.schema(self.dice)
        self._former.append(made)
        return made

    def _configure(self) -> None:
        dice = self.dice
        extra = f"[batch]\nmax_rows = {dice.choice((1, 7, 100_000))}"
        if self.engine == "spark" and dice.random() < 0.3:
            extra += "\n[snapshot]\nrows_per_second = 20"
        told = {
            name: ("disabled " if name in self._disabled else "") + str(schema["table"])
            for name, schema in self._indexes.items()
        }
        self.journal.append(f"-- configured: {told}, {extra!r}")
        self.home.configure(self._indexes, disabled=self._disabled, extra=extra)

    def change_indexes(self) -> None:
        """Another schema, a former one, an index less, one more, one that rests or goes on."""
        dice = self.dice
        name = dice.choice(list(self._indexes))
        fall = dice.random()
        if fall < 0.35:
            self._indexes[name] = self._schema()
        elif fall < 0.55:
            self._indexes[name] = dice.choice(self._former)
        elif fall < 0.75:
            self._disabled ^= {name}
        elif fall < 0.9 and len(self._indexes) < 5:
            self._indexes[f"i{dice.randint(0, 6)}"] = self._schema()
        elif len(self._indexes) > 1:
            del self._indexes[name]
        self._disabled &= set(self._indexes)
        self._configure()

    def write(self, most: int = 12) -> None:
        """Some transactions."""
        for _ in range(self.dice.randint(1, most)):
            self._do(*self.writing.transaction())

    def live(self) -> None:
        """A run that is killed, perhaps; one that is idle now and then; and what comes before and after."""
        dice = self.dice
        if self._runs and dice.random() < 0.4:
            self.change_indexes()
        self._start()
        if dice.random() < 0.3:
            # Killed wherever it is, in its start, in the filling, in a batch.
            self.write(4)
            self._pause.wait(dice.uniform(0.3, 2.5) * self._slow)
            self._kill()
            if dice.random() < 0.5:
                self.write()
            self._start()
        for _ in range(dice.randint(1, 3)):
            self.write()
            self.check()
        if dice.random() < 0.5:
            self.write(4)
        if dice.random() < 0.5:
            self._stop()
        else:
            self._pause.wait(dice.uniform(0, 0.3))
            self._kill()
        if dice.random() < 0.5:
            self.write()

    def check(self) -> None:
        """At an idle point every sink equals the oracle."""
        self.journal.append("-- idle?")
        self.app.mark()
        try:
            self._settle()
        except (AssertionError, Ended) as error:
            said = [str(error), *self.journal[-80:], f"-- in {self.home.directory}", self._runs[-1].tail()]
            raise AssertionError("\n".join(said)) from None
        self.checks += 1

    def _settle(self) -> None:
        timeout = 300 + 30 * self._slow
        for _ in range(3):
            try:
                return self.home.settle(self._runs[-1].alive, timeout=timeout)
            except Ended:
                if not self._starved():
                    raise
                self._start()
        return self.home.settle(self._runs[-1].alive, timeout=timeout)

    def _starved(self) -> bool:
        """Whether Spark gave up on a worker that had no time to start: a busy machine, as good as a kill."""
        log = self.home.state / "spark.log"
        told = log.read_text(errors="replace")[-20_000:] if log.exists() else ""
        return "Python worker failed to connect back" in told.rpartition("terminated with error")[2]

    def _start(self) -> None:
        self.journal.append("-- run")
        self._runs.append(Run(self.home, self.engine))

    def _stop(self) -> None:
        self.journal.append("-- stop")
        try:
            self._runs[-1].stop()
        except Ended:
            if not self._starved():
                raise

    def _kill(self) -> None:
        self.journal.append("-- kill")
        run = self._runs[-1]
        if run.process.poll() is None or not self._starved():
            run.alive()
            run.kill()
            self.kills += 1

    def close(self) -> None:
        """Nothing that it started survives."""
        for run in self._runs:
            if run.process.poll() is None:
                run.process.kill()
                run.process.wait(timeout=30)
            run.clear()


def main(directory: str) -> int:
    """The configured pipeline on the stand-in for Spark, in small chunks."""
    from tailrace import app
    from tailrace.app.belonging import claim
    from tailrace.app.parts import captured_tables
    from tailrace.config import load_config
    from tailrace.engine.pipeline import Pipeline
    from tailrace.spark.source import TailraceSource
    from tests.faults.microbatch import StandIn

    config = load_config(Path(directory) / "tailrace.toml")
    spec = app.pipeline_spec(config)
    app.refuse_while_running(config, patience=10)
    spec = dataclasses.replace(spec, options={**spec.options, "chunkRows": "3"})
    with app.opened(config) as capture:
        claim(config, captured_tables(config, capture))
    spark: Any = StandIn()
    spark.dataSource.register(TailraceSource)
    pipeline = Pipeline(spec, spark, release=app.release(config))
    signal.signal(signal.SIGTERM, lambda *_: pipeline.request_stop())
    try:
        pipeline.run()
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stdout.flush()
    # Threads of a reader that is on its way out are not waited for.
    os._exit(code)

"""A pipeline that keeps documents, seen from outside: its files, how far it is, what is wrong in its sink.

home = Home(directory, "shop", app)
home.configure({"people": schema})          # tailrace.toml and a file for each schema
...                                         # whoever runs it
app.run("DELETE FROM orders WHERE id = 1")  # one transaction
home.settle()                               # idle at the end of it, and each sink equals the oracle
"""

from __future__ import annotations

import json
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Any, ClassVar

import yaml

from tailrace.changelog.filesystem import open_filesystem
from tailrace.engine.documents.state import States
from tailrace.engine.progress import committed
from tailrace.sinks.contract import DocumentSink
from tailrace.sinks.opensearch import OpenSearchConfig, OpenSearchSink
from tailrace.sinks.sqlite import SqliteSink, SqliteStoreConfig
from tailrace.spark.plans import PlanStore
from tests.support.documents.compare import compare
from tests.support.documents.oracle import rebuild
from tests.support.postgres import Database
from tests.support.sparks import QUICK
from tests.support.waiting import wait_until

Tree = Mapping[str, Any]
# Every pipeline keeps this small index too: a change of it shows how far the pipeline is.
MARKS = "marks"
MARKS_TABLE = "CREATE TABLE marks (id INTEGER PRIMARY KEY, n BIGINT)"
MARKS_SCHEMA: Tree = {"version": 1, "table": MARKS, "primary_key": "id", "fields": [{"long": "n"}]}


class App(ABC):
    """The application: its transactions, and where the last one stands in the log."""

    schema: str
    url: str

    def __init__(self) -> None:
        self._marks = 0

    @abstractmethod
    def run(self, *statements: str) -> None:
        """One transaction."""

    @abstractmethod
    def reader(self) -> AbstractContextManager[Any]:
        """A connection for the oracle."""

    @abstractmethod
    def reached(self, position: int) -> bool:
        """Whether a committed position is, as far as can be told, behind the last transaction."""

    @abstractmethod
    def surely(self, position: int) -> bool:
        """Whether it is for sure."""

    def mark(self) -> None:
        """A transaction that shows how far a pipeline is."""
        self._marks += 1
        self.run("DELETE FROM marks", f"INSERT INTO marks VALUES (1, {self._marks})")


class PostgresApp(App):
    """A database of a server."""

    schema = "public"

    def __init__(self, database: Database) -> None:
        super().__init__()
        self.database = database
        self._reader = database.connect()
        self._reader.prepared_max = None
        self.url = database.superuser_url()
        self._before = self._after = 0

    def reader(self) -> AbstractContextManager[Any]:
        return nullcontext(self._reader)

    def run(self, *statements: str) -> None:
        with self.database.app.transaction():
            for statement in statements:
                self.database.app.execute(statement.encode())
            self._before = self._written("insert")
        self._after = self._written("flush")

    def _written(self, what: str) -> int:
        ((found,),) = self.database.rows(f"SELECT (pg_current_wal_{what}_lsn() - '0/0')::int8")
        return int(found)

    def reached(self, position: int) -> bool:
        # The commit ends behind this.
        return position > self._before

    def surely(self, position: int) -> bool:
        # It ends here, unless the server has written something since.
        return position >= self._after


class SqliteApp(App):
    """A file. No connection stays open: it would keep the WAL from being reset."""

    schema = "main"

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.url = f"sqlite:{path}"
        with closing(self.connect()) as connection:
            connection.execute("PRAGMA journal_mode=WAL")

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=60, isolation_level=None)
        connection.execute("PRAGMA synchronous=OFF")
        return connection

    def run(self, *statements: str) -> None:
        with closing(self.connect()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for statement in statements:
                connection.execute(statement)
            connection.execute("COMMIT")

    def reader(self) -> AbstractContextManager[Any]:
        return closing(self.connect())

    def reached(self, position: int) -> bool:
        with closing(self.connect()) as connection:
            try:
                return position >= int(connection.execute("SELECT seq FROM _tailrace_meta").fetchone()[0])
            except sqlite3.OperationalError:
                return False

    def surely(self, position: int) -> bool:
        return self.reached(position)


class Store:
    """Where the documents are kept: a file of the pipeline's directory."""

    prefix = ""

    def section(self) -> str:
        """The sink, as `tailrace.toml` has it."""
        return '[sinks.store]\ntype = "sqlite"\npath = "docs.db"'

    def sink(self, directory: Path) -> DocumentSink:
        """One that reads what is there."""
        return SqliteSink(SqliteStoreConfig(str(directory / "docs.db")))


class OpenSearchStore(Store):
    """Indexes of a cluster of one node, all of whose names begin alike."""

    def __init__(self, url: str, prefix: str) -> None:
        self._url, self.prefix = url, prefix

    def section(self) -> str:
        return f'[sinks.store]\ntype = "opensearch"\nurl = "{self._url}"\nreplicas = 0'

    def sink(self, directory: Path) -> DocumentSink:  # noqa: ARG002
        return OpenSearchSink(OpenSearchConfig(self._url, replicas=0))


class Home:
    """The directory of a pipeline."""

    # Settings of its session.
    spark: ClassVar[Mapping[str, str]] = QUICK

    def __init__(self, directory: Path, name: str, app: App, store: Store | None = None) -> None:
        self.directory, self.name, self.app = directory, name, app
        self.store = store or Store()
        self.state = directory / ".tailrace"
        self.path = directory / "tailrace.toml"
        self.indexes: dict[str, Tree] = {}
        self.enabled: set[str] = set()
        directory.mkdir(parents=True, exist_ok=True)

    def configure(
        self, indexes: Mapping[str, Tree], *, disabled: Collection[str] = (), extra: str = ""
    ) -> None:
        """Write the files. The index of marks comes by itself."""
        self.indexes = {**indexes, MARKS: MARKS_SCHEMA}
        self.enabled = set(self.indexes).difference(disabled)
        lines = [
            f'name = "{self.name}"',
            f'prefix = "{self.store.prefix}"',
            "[source]",
            f"url = {json.dumps(self.app.url)}",
            self.store.section(),
            "[spark]",
            *(f'"{name}" = "{value}"' for name, value in self.spark.items()),
            '"spark.ui.enabled" = "false"',
            extra,
        ]
        for index, schema in self.indexes.items():
            path = self.directory / f"{index}.schema.yml"
            # Parts that are the same object would be written as references.
            tree = json.loads(json.dumps(schema))
            path.write_text(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True))
            lines.append(f'[[index]]\nname = "{index}"\nschema = "{path.name}"')
            if index in disabled:
                lines.append("enabled = false")
        self.path.write_text("\n".join(lines))

    def position(self) -> int | None:
        """The end of the last committed batch, where every index is filled by then; None before that."""
        last = committed(str(self.state / "checkpoint"))
        if last is None or PlanStore(*open_filesystem(str(self.state))).requests():
            return None
        states = States(str(self.state))
        for index in self.enabled:
            known = states.get(self.store.prefix + index)
            cursor = last[1].snapshots.get(f"{self.app.schema}.{self.indexes[index]['table']}")
            if known is None or cursor is None or not (known.complete and cursor.complete):
                return None
            if known.plan != cursor.plan:
                return None
        return last[1].position.version

    def wrong(self) -> list[str]:
        """What the sink has and the oracle has not, and the other way round."""
        lines: list[str] = []
        with closing(self.store.sink(self.directory)) as sink, self.app.reader() as connection:
            for index in sorted(self.enabled):
                expected = rebuild(self.indexes[index], connection, prepared=True)
                found = sink.read(self.store.prefix + index)
                lines += [f"{index}: {line}" for line in compare(expected, found)]
        return lines

    def settle(self, alive: Callable[[], None] = lambda: None, timeout: float = 300.0) -> None:
        """Wait until everything is with the sink, and compare. `alive` raises where nobody works any more."""

        def idle() -> bool:
            alive()
            found = self.position()
            return found is not None and self.app.reached(found)

        wait_until(idle, timeout=timeout, interval=0.01, what="idling")
        deadline = time.monotonic() + 30
        while lines := self.wrong():
            at = self.position()
            sure = at is not None and self.app.surely(at)
            alive()
            # What was wrong while it was not sure may have become right since.
            if time.monotonic() > deadline or (sure and (lines := self.wrong())):
                raise AssertionError("\n".join(lines))

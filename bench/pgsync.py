"""Documents in OpenSearch beside PGSync: filling an index, and changes of rows that documents hold.

One PostgreSQL, one OpenSearch, and a Redis for PGSync. Both are run as their users run them: a command with a
configuration file, whose start counts. A document is a customer with orders, their items and the products of
these. Each change is one of an order, in transactions of ten; a burst counts from its first statement until
as many documents are found by what was written.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console

from bench import documents_data
from bench.measure import Figure, Outcome
from bench.postgres_server import ROLE, Server, running
from bench.snapshot import cpu
from bench.usage import Sampler, Watch
from tests.support.opensearch import Client, unavailable
from tests.support.opensearch import Server as Search

CUSTOMERS, QUICK_CUSTOMERS = 50_000, 3_000
CHANGES, QUICK_CHANGES = 2_000, 300
BURSTS = 3
TAILRACE, PGSYNC = "tailrace", "pgsync"
INDEX = "customers"
PATIENCE = 600.0
SETUP = Path(__file__).parent.parent / "scripts" / "pgsync"
# PGSync finds relations by foreign keys.
KEYS = (
    "ALTER TABLE orders ADD FOREIGN KEY (customer_id) REFERENCES customers (id)",
    "ALTER TABLE items ADD FOREIGN KEY (order_id) REFERENCES orders (id)",
    "ALTER TABLE items ADD FOREIGN KEY (product_id) REFERENCES products (id)",
)
BURST = """
DO $$ BEGIN
    FOR n IN 0..{changes} - 1 LOOP
        UPDATE orders SET total = {mark} WHERE id = (n * 7919::bigint + {mark}) % {rows} + 1;
        IF n % 10 = 9 THEN COMMIT; END IF;
    END LOOP;
END $$
"""
SCHEMA = """\
version: 1
table: customers
primary_key: id
fields:
  - long: id
  - text: name
  - keyword: email
  - boolean: active
  - timestamp: since
  - has_many: orders
    table: orders
    primary_key: id
    foreign_key: customer_id
    fields:
      - long: id
      - decimal: total
      - timestamp: placed
      - has_many: items
        table: items
        primary_key: id
        foreign_key: order_id
        fields:
          - long: id
          - integer: quantity
          - belongs_to: product
            table: products
            primary_key: id
            column: product_id
            fields:
              - text: title
              - decimal: price
"""
CONFIG = """\
name = "beside_pgsync"
[source]
url = "{source}"
[sinks.search]
type = "opensearch"
url = "{search}"
replicas = 0
[[index]]
name = "customers"
schema = "customers.schema.yml"
"""


@dataclass(frozen=True)
class Result:
    """What one contestant did once. CPU seconds: its own, PostgreSQL's and OpenSearch's meanwhile."""

    what: str
    contestant: str
    count: int
    unit: str
    seconds: float
    cpu_seconds: float
    server_cpu_seconds: float
    search_cpu_seconds: float
    tree_peak_mb: float

    @property
    def rate(self) -> float:
        """Documents or changes a second."""
        return self.count / self.seconds


class Stage:
    """The servers, and an index that is looked at."""

    def __init__(self, home: Path, server: Server, search: Search, customers: int) -> None:
        self.home, self.server, self.search, self.customers = home, server, search, customers
        self.client = Client(search.url)
        self._marks = 10_000_000

    @property
    def database(self) -> str:
        """The database of all customers."""
        return documents_data.database(self.customers)

    def mark(self) -> int:
        """A total that no order ever had: what another contestant's burst left behind must not be found."""
        self._marks += 1
        return self._marks

    def count(self, query: Mapping[str, Any]) -> int:
        """How many documents match now; none where there is no index."""
        with contextlib.suppress(AssertionError):
            self.client.do("POST", f"/{INDEX}/_refresh")
            return int(self.client.do("POST", f"/{INDEX}/_count", {"query": dict(query)})["count"])
        return 0

    def wait(self, query: Mapping[str, Any], wanted: int, process: subprocess.Popen[bytes]) -> None:
        """Until so many documents match."""
        deadline = time.monotonic() + PATIENCE
        while (found := self.count(query)) < wanted:
            if process.poll() is not None:
                raise RuntimeError(f"it ended with {process.returncode} after {found:,} of {wanted:,}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{found:,} of {wanted:,} after {PATIENCE:.0f} seconds")
            time.sleep(0.05)


class Contestant:
    """A command that fills the index and ends, and one that goes on."""

    name: str

    def __init__(self, stage: Stage) -> None:
        self.stage, self.home = stage, stage.home / self.name
        self.home.mkdir()
        self.environment = dict(os.environ)

    def fill(self) -> list[list[str]]:
        """The commands, one after the other."""
        raise NotImplementedError

    def live(self) -> list[str]:
        """The command that goes on."""
        raise NotImplementedError

    def query(self, mark: int) -> dict[str, Any]:
        """What finds documents one of whose orders has this total."""
        raise NotImplementedError

    @contextmanager
    def started(self, command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
        """A command while the block runs."""
        with (self.home / "log").open("ab") as log:
            process = subprocess.Popen(command, cwd=self.home, env=self.environment, stdout=log, stderr=log)
        try:
            yield process
        finally:
            if process.poll() is None:
                below = psutil.Process(process.pid).children(recursive=True)
                process.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(30)
                for one in below:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        one.kill()
                process.kill()
            process.wait()

    def said(self) -> str:
        """The end of its log."""
        return "\n".join((self.home / "log").read_text(errors="replace").splitlines()[-15:])


class Tailrace(Contestant):
    """`tailrace run`."""

    name = TAILRACE

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        source = f"postgresql://{ROLE}@127.0.0.1:{stage.server.port}/{stage.database}"
        (self.home / "tailrace.toml").write_text(CONFIG.format(source=source, search=stage.search.url))
        (self.home / "customers.schema.yml").write_text(SCHEMA)

    def fill(self) -> list[list[str]]:
        return [[*self.live(), "--once"]]

    def live(self) -> list[str]:
        return [sys.executable, "-m", "tailrace.cli", "run"]

    def query(self, mark: int) -> dict[str, Any]:
        return {"nested": {"path": "orders", "query": {"term": {"orders.total": mark}}}}


class Pgsync(Contestant):
    """`bootstrap`, then `pgsync`; its relations are objects, as it makes them by itself."""

    name = PGSYNC

    def __init__(self, stage: Stage, program: Path, redis: int) -> None:
        super().__init__(stage)
        self._programs = program / "bin"
        product = {"table": "products", "label": "product", "columns": ["title", "price"]}
        items = {"table": "items", "columns": ["id", "quantity"]}
        orders = {"table": "orders", "columns": ["id", "total", "placed"]}
        product["relationship"] = {"variant": "object", "type": "one_to_one"}
        items["relationship"] = {"variant": "object", "type": "one_to_many"}
        orders["relationship"] = {"variant": "object", "type": "one_to_many"}
        nodes = {
            "table": "customers",
            "columns": ["id", "name", "email", "active", "since"],
            "children": [{**orders, "children": [{**items, "children": [product]}]}],
        }
        (self.home / "schema.json").write_text(
            json.dumps([{"database": stage.database, "index": INDEX, "nodes": nodes}])
        )
        self.environment |= {
            "PG_HOST": "127.0.0.1",
            "PG_PORT": str(stage.server.port),
            "PG_USER": ROLE,
            "PG_PASSWORD": "none",
            "REDIS_HOST": "127.0.0.1",
            "REDIS_PORT": str(redis),
            "ELASTICSEARCH": "false",
            "OPENSEARCH": "true",
            "ELASTICSEARCH_SCHEME": "http",
            "ELASTICSEARCH_HOST": "127.0.0.1",
            "ELASTICSEARCH_PORT": str(stage.search.port),
            "ELASTICSEARCH_TIMEOUT": "120",
            "CHECKPOINT_PATH": str(self.home),
        }

    def fill(self) -> list[list[str]]:
        return [self._command("bootstrap"), self._command("pgsync")]

    def live(self) -> list[str]:
        return [*self._command("pgsync"), "--daemon"]

    def query(self, mark: int) -> dict[str, Any]:
        return {"term": {"orders.total": mark}}

    def _command(self, name: str) -> list[str]:
        return [str(self._programs / "python"), str(self._programs / name), "--config", "schema.json"]


class Run:
    """All contestants, one after the other."""

    def __init__(self, console: Console, options: argparse.Namespace, stage: Stage) -> None:
        self._console, self._options, self._stage = console, options, stage
        self.results: list[Result] = []
        self.problems: list[str] = []

    def contestant(self, made: Contestant) -> None:
        """Fill an index, then bursts."""
        stage, name = self._stage, made.name
        try:
            self._fill(made)
            found = stage.count({"match_all": {}})
            if found != stage.customers:
                raise RuntimeError(f"{found:,} documents instead of {stage.customers:,}")
            self._bursts(made)
        except RuntimeError as error:
            self.problems.append(f"{name}: {error}\n{made.said()}")
            self._console.print(f"{name}: {error}\n{made.said()}", markup=False, highlight=False)
        finally:
            # The next one begins with no index and no slot.
            aliased = stage.client.aliases(INDEX)
            for index in {INDEX, *(one for found in aliased.values() for one in found)}:
                stage.client.ask("DELETE", f"/{index}")
            _drop_slots(stage.server)

    def _fill(self, made: Contestant) -> None:
        commands = made.fill()
        begun = time.perf_counter()
        # Whose figures are its own: the processes come and go, so they are added up.
        before = self._costs()
        mine, peak = 0.0, 0
        for command in commands:
            with made.started(command) as process:
                whole = Watch(process.pid)
                with Sampler(whole):
                    code = _ended(process)
                mine, peak = mine + whole.cpu, max(peak, whole.peak_sum)
            if code:
                raise RuntimeError(f"{' '.join(command[-3:])} ended with {code}")
        seconds = time.perf_counter() - begun
        self._note("filling", made.name, (self._stage.customers, "documents"), seconds, (mine, peak, before))

    def _bursts(self, made: Contestant) -> None:
        stage, changes = self._stage, self._options.changes
        with made.started(made.live()) as process, stage.server.connect(stage.database) as connection:
            connection.execute("SET synchronous_commit = off")
            for number in range(BURSTS + 1):
                # The first is one change: it goes on only when the contestant listens.
                mark, count = stage.mark(), changes if number else 10
                before, whole = self._costs(), Watch(process.pid)
                with Sampler(whole):
                    begun = time.perf_counter()
                    connection.execute(BURST.format(changes=count, mark=mark, rows=stage.customers))
                    stage.wait(made.query(mark), count, process)
                    seconds = time.perf_counter() - begun
                if number:
                    costs = (whole.cpu, whole.peak_sum, before)
                    self._note("burst", made.name, (count, "changes"), seconds, costs)

    def _costs(self) -> tuple[float, float]:
        return cpu(self._stage.server.pid), cpu(self._stage.search.pid or 0)

    def _note(
        self,
        what: str,
        name: str,
        counted: tuple[int, str],
        seconds: float,
        costs: tuple[float, int, tuple[float, float]],
    ) -> None:
        mine, peak, before = costs
        after = self._costs()
        result = Result(
            what=what,
            contestant=name,
            count=counted[0],
            unit=counted[1],
            seconds=seconds,
            cpu_seconds=mine,
            server_cpu_seconds=after[0] - before[0],
            search_cpu_seconds=after[1] - before[1],
            tree_peak_mb=peak / 1e6,
        )
        self.results.append(result)
        self._console.print(f"{name}, {what}: {result.rate:,.0f} {result.unit}/s", highlight=False)


def run(console: Console, arguments: list[str]) -> Outcome:
    """Both, on the same servers."""
    options = _options(arguments)
    if (reason := unavailable()) is not None:
        return Outcome([], problems=[f"{reason}: scripts/opensearch"])
    setup = subprocess.run([str(SETUP)], capture_output=True, text=True, check=False)
    problems = []
    if setup.returncode:
        problems.append(f"not compared with PGSync: {setup.stderr.strip().splitlines()[-1]}")
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        server = stack.enter_context(running())
        documents_data.make(server, options.customers)
        with server.connect(documents_data.database(options.customers)) as connection:
            for statement in KEYS:
                connection.execute(statement)
        search = Search(**{"indices.breaker.total.use_real_memory": "false"})
        stack.callback(search.remove)
        stage = Stage(home, server, search, options.customers)
        made = Run(console, options, stage)
        if TAILRACE in options.only:
            made.contestant(Tailrace(stage))
        if PGSYNC in options.only and not setup.returncode:
            redis = stack.enter_context(_redis(home))
            made.contestant(Pgsync(stage, Path(setup.stdout.strip()), redis))
    return Outcome(
        _figures(made.results),
        [asdict(one) for one in made.results],
        [*problems, *made.problems],
        bars=not options.no_bars,
        versions=_versions(Path(setup.stdout.strip())) if not setup.returncode else {},
    )


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog='make bench BENCH="pgsync …"', description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--customers", type=int, default=CUSTOMERS, help=f"documents ({CUSTOMERS})")
    parser.add_argument("--changes", type=int, default=CHANGES, help=f"changes of a burst ({CHANGES})")
    parser.add_argument("--only", choices=(TAILRACE, PGSYNC), help="one of the two")
    parser.add_argument("--quick", action="store_true", help=f"only {QUICK_CUSTOMERS} documents")
    parser.add_argument("--no-bars", action="store_true", help="there are none")
    options = parser.parse_args(arguments)
    options.only = (options.only,) if options.only else (TAILRACE, PGSYNC)
    if options.quick:
        options.customers, options.changes = QUICK_CUSTOMERS, QUICK_CHANGES
    if options.changes > options.customers or options.changes % 10 or options.customers % 7919 == 0:
        parser.error("--changes must be tens and at most --customers, which is no multiple of 7919")
    return options


def _ended(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"it had not ended after {PATIENCE:.0f} seconds") from None


@contextmanager
def _redis(home: Path) -> Iterator[int]:
    """A server that keeps nothing, on a free port."""
    program = shutil.which("redis-server")
    assert program is not None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(home)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if time.monotonic() > deadline:
                raise RuntimeError("Redis did not start")
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(30)


def _drop_slots(server: Server) -> None:
    with server.connect() as connection:
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active"
        )


def _versions(place: Path) -> dict[str, str]:
    asked = "import importlib.metadata as m; print(m.version('pgsync'))"
    pgsync = subprocess.run(
        [str(place / "bin/python"), "-c", asked], capture_output=True, text=True, check=True
    )
    redis = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True)
    number = re.search(r"v=([\d.]+)", redis.stdout)
    return {"PGSync": pgsync.stdout.strip(), "Redis": number[1] if number else "?"}


def _figures(results: Sequence[Result]) -> list[Figure]:
    figures = []
    for what in ("filling", "burst"):
        rates = {
            name: sorted(one.rate for one in results if (one.what, one.contestant) == (what, name))
            for name in (TAILRACE, PGSYNC)
        }
        middle = {name: found[len(found) // 2] for name, found in rates.items() if found}
        if len(middle) == 2:
            ratio = middle[TAILRACE] / middle[PGSYNC]
            figures.append(Figure(f"{what}, {TAILRACE} against {PGSYNC}", ratio, "×"))
    return figures

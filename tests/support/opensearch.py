"""A real OpenSearch for the tests: one for all processes of a run, a prefix of its own for each test.

`scripts/opensearch` has put its jars into the cache. It is a single node with a small heap, which listens on
the loopback interface alone and keeps its files in a temporary directory. The first test that asks starts it,
the last process that used it ends it. It does what a new cluster does: an index that does not exist is made
by whoever writes to it. A test that breaks the server takes `own_opensearch`, one for itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psutil
import pytest
import urllib3

from tests.support.installed import CACHE
from tests.support.waiting import wait_until

INSTALLED = CACHE / "tailrace" / "opensearch-2.19.1"
PLUGIN = "org.opensearch.plugin.analysis.icu.AnalysisICUPlugin"
SETTINGS = {
    "network.host": "127.0.0.1",
    "discovery.type": "single-node",
    # How full the disk of this machine is says nothing about what is tested.
    "cluster.routing.allocation.disk.threshold_enabled": "false",
    "cluster.max_shards_per_node": "20000",
    "action.destructive_requires_name": "false",
}
JAVA = ["-Xms512m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
LOGGING = """
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1.} %m%n
"""
# The node takes no higher port.
LAST_PORT = 9299


class Refused(AssertionError):
    """An answer that the test did not expect."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(f"status {status}: {body}")
        self.status, self.body = status, body


class Ended(Exception):
    """The server ended by itself; what it said last."""


class Client:
    """Requests to a server, or to a proxy in front of it. Threads may share it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._pool = urllib3.PoolManager(retries=False, timeout=urllib3.Timeout(60), maxsize=8)

    def ask(self, method: str, path: str, body: Any = None, **parameters: Any) -> tuple[int, Any]:
        """Status and answer. A list as the body is sent as lines."""
        data: bytes | None = None
        if isinstance(body, bytes):
            data = body
        elif isinstance(body, list):
            data = b"".join(json.dumps(line).encode() + b"\n" for line in body)
        elif body is not None:
            data = json.dumps(body).encode()
        said = "application/x-ndjson" if isinstance(body, list | bytes) else "application/json"
        query = {name: _text(value) for name, value in parameters.items()}
        # Parameters go into the address whatever the method is.
        url = self.url + path + (f"?{urlencode(query)}" if query else "")
        response = self._pool.request(method, url, body=data, headers={"Content-Type": said})
        text = response.data
        if "json" in response.headers.get("Content-Type", "") and text:
            return response.status, json.loads(text)
        return response.status, text.decode()

    def do(self, method: str, path: str, body: Any = None, **parameters: Any) -> Any:
        """The answer to a request that must succeed."""
        status, answer = self.ask(method, path, body, **parameters)
        if status >= 400:
            raise Refused(status, answer)
        return answer

    def create(self, index: str, body: Mapping[str, Any]) -> None:
        self.do("PUT", f"/{index}", dict(body))

    def put(self, index: str, documents: Mapping[str, Any]) -> dict[str, str]:
        """Documents by their id, as objects or as texts. Returns why some of them were refused, by id."""
        lines: list[bytes] = []
        for name, document in documents.items():
            text = document if isinstance(document, str) else json.dumps(document)
            lines += [json.dumps({"index": {"_id": name}}).encode(), text.encode()]
        done = self.do("POST", f"/{index}/_bulk", b"\n".join(lines) + b"\n", refresh=True)
        found = [item["index"] for item in done["items"]]
        return {item["_id"]: _reason(item["error"]) for item in found if "error" in item}

    def search(self, index: str, query: Any = None, *, sort: Any = None, **more: Any) -> list[str]:
        """The ids of the documents that match, in the order of the answer."""
        body = {"query": query or {"match_all": {}}, "size": 1000, "_source": False, **more}
        if sort is not None:
            body["sort"] = sort
        return [hit["_id"] for hit in self.do("POST", f"/{index}/_search", body)["hits"]["hits"]]

    def documents(self, index: str) -> dict[str, str]:
        """The texts of all documents, as they were sent, by id."""
        body = {"query": {"match_all": {}}, "size": 10_000}
        hits = self.do("POST", f"/{index}/_search", body)["hits"]["hits"]
        return {hit["_id"]: hit["_source"] for hit in hits}

    def indexes(self, prefix: str = "") -> list[str]:
        """The names of all indexes that begin so."""
        found = self.do("GET", f"/_cat/indices/{prefix}*", format="json", h="index", expand_wildcards="all")
        return sorted(row["index"] for row in found)

    def aliases(self, prefix: str = "") -> dict[str, list[str]]:
        """The indexes behind each alias whose name begins so."""
        found: dict[str, list[str]] = {}
        for row in self.do("GET", f"/_cat/aliases/{prefix}*", format="json"):
            found.setdefault(row["alias"], []).append(row["index"])
        return {name: sorted(indexes) for name, indexes in found.items()}

    def drop(self, prefix: str) -> None:
        """Remove every index that begins so."""
        if found := self.indexes(prefix):
            self.do("DELETE", "/" + ",".join(found), ignore_unavailable=True)

    def close(self) -> None:
        self._pool.clear()


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _reason(error: Mapping[str, Any]) -> str:
    said = f"{error['type']}: {error['reason']}"
    cause = error.get("caused_by")
    return f"{said} ({_reason(cause)})" if isinstance(cause, dict) and "type" in cause else said


def java() -> str | None:
    """The program that runs it."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(str(Path(home) / "bin/java")) if home else shutil.which("java")


def unavailable() -> str | None:
    """Why there can be none; None where there can."""
    if not (INSTALLED / "jars").is_dir():
        return "unavailable: OpenSearch (scripts/opensearch fetches it)"
    return None if java() else "unavailable: Java, which OpenSearch runs on"


class Server:
    """One server, its files, and what can happen to it."""

    def __init__(self, **settings: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="tailrace-opensearch-"))
        self.settings = {**SETTINGS, "path.repo": str(self.directory / "backups"), **settings}
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """Its process; None while it is not running."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def log(self) -> Path:
        return self.directory / "log"

    def client(self) -> Client:
        return Client(self.url)

    def start(self) -> None:
        """Start it, on the port that it had, and wait until it answers."""
        for last in (False, False, True):
            self.port = self.port or _free_port()
            try:
                return self._start()
            except (AssertionError, Ended):
                self.kill()
                # Somebody else may have taken the port in between.
                if last or "BindTransportException" not in self.log.read_text():
                    raise
                self.port = 0
        return None

    def _start(self) -> None:
        files = self.directory / "config"
        files.mkdir(exist_ok=True)
        (files / "opensearch.yml").write_text("".join(f"{k}: {v}\n" for k, v in self.settings.items()))
        (files / "log4j2.properties").write_text(LOGGING)
        (self.directory / "tmp").mkdir(exist_ok=True)
        program = java()
        assert program is not None
        command = [program, *JAVA, f"-Djava.io.tmpdir={self.directory / 'tmp'}"]
        command += ["-cp", str(INSTALLED / "jars" / "*"), "org.codelibs.opensearch.runner.OpenSearchRunner"]
        # It adds the number of the node to the port.
        command += ["-numOfNode", "1", "-baseHttpPort", str(self.port - 1), "-clusterName", "tests"]
        command += [
            "-basePath",
            str(self.directory / "node"),
            "-confPath",
            str(files),
            "-pluginTypes",
            PLUGIN,
        ]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self.directory, stdout=log, stderr=log, start_new_session=True
            )
        wait_until(self._answers, timeout=180, interval=0.1, what="the start of OpenSearch")

    def _answers(self) -> bool:
        if self.pid is None:
            raise Ended(self.log.read_text()[-3000:])
        with contextlib.suppress(urllib3.exceptions.HTTPError), contextlib.closing(self.client()) as client:
            status, _ = client.ask("GET", "/_cluster/health", wait_for_status="yellow", timeout="1s")
            return status == 200
        return False

    def stop(self) -> None:
        """Let it end by itself."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(60)

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
        if self._process is not None:
            self._process.wait(30)

    def freeze(self) -> None:
        if self.pid is not None:
            os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        if self.pid is not None:
            os.kill(self.pid, signal.SIGCONT)

    def leave(self) -> None:
        """It goes on, and somebody else ends it."""
        if self._process is not None:
            self._process.returncode = 0
            self._process = None

    def remove(self) -> None:
        """End it and remove its files."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


def _free_port() -> int:
    """A free port that the node takes. The dice are the system's: `random` falls alike in every process."""
    dice = random.SystemRandom()
    while True:
        port = dice.randrange(3_000, LAST_PORT)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Shared:
    """The server of a whole run, however many processes it is spread over.

    Each process that uses it holds a lock on a file, which the system takes away from one that dies. Who
    finds at its end that nobody else holds it ends the server.
    """

    def __init__(self, run: str) -> None:
        self.directory = Path(tempfile.gettempdir()) / f"tailrace-opensearch-of-{run}"
        self.directory.mkdir(exist_ok=True)
        self._using = (self.directory / "using").open("a+b")
        self._started: Server | None = None
        with self._turn():
            fcntl.lockf(self._using, fcntl.LOCK_SH)
            told = self.directory / "server.json"
            if not told.exists():
                # Who started it need not be who ends it.
                self._started = Server()
                found = {"port": self._started.port, "pid": self._started.pid}
                told.write_text(json.dumps({**found, "files": str(self._started.directory)}))
            self._told = json.loads(told.read_text())

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        with (self.directory / "turn").open("a+b") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            yield

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._told['port']}"

    @property
    def port(self) -> int:
        return int(self._told["port"])

    def close(self) -> None:
        with self._turn():
            try:
                fcntl.lockf(self._using, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._using.close()
                if self._started is not None:
                    self._started.leave()
                return
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(self._told["pid"])
                if any("OpenSearchRunner" in word for word in process.cmdline()):
                    process.kill()
                    wait_until(lambda: _gone(process), what="the end of OpenSearch")
            if self._started is not None:
                self._started.remove()
            shutil.rmtree(self._told["files"], ignore_errors=True)
            self._using.close()
            shutil.rmtree(self.directory, ignore_errors=True)


def _gone(process: psutil.Process) -> bool:
    """Whether it has ended; who started it may not have noticed."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


_shared: list[Shared] = []
_users = 0
_lock = threading.Lock()


@pytest.fixture(scope="session")
def opensearch_server() -> Iterator[Shared]:
    """The run's server: leave it running, and as it is."""
    global _users  # noqa: PLW0603 - several conftests have the fixture, and there is one server
    if (reason := unavailable()) is not None:
        pytest.skip(reason)
    with _lock:
        if not _shared:
            _shared.append(Shared(os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid.uuid4().hex))
        _users += 1
    yield _shared[0]
    with _lock:
        _users -= 1
        if _users == 0:
            _shared.pop().close()


@pytest.fixture
def opensearch(opensearch_server: Shared) -> Iterator[Client]:
    """A client of the run's server."""
    client = Client(opensearch_server.url)
    yield client
    client.close()


@pytest.fixture
def prefix(opensearch: Client) -> Iterator[str]:
    """What the names of the test's indexes begin with; those that do are removed after it."""
    name = f"t{uuid.uuid4().hex[:10]}_"
    yield name
    opensearch.drop(name)


@pytest.fixture
def own_opensearch() -> Iterator[Server]:
    """A server for one test, which may break it."""
    if (reason := unavailable()) is not None:
        pytest.skip(reason)
    server = Server()
    yield server
    server.thaw()
    server.remove()

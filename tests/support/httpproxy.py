"""An HTTP proxy in front of a real server that goes wrong by a script, request by request.

    with http_proxy_to(server.url) as proxy:
        proxy.next("_bulk", Answer(429, retry_after=1), CutAfter())   # the next two bulk requests
        proxy.always("_search", Wait(0.2))                             # and every search
        Sink(proxy.url).write(...)
        assert proxy.seen("_bulk") == 3

What no rule speaks of passes as it is. A connection is served by a thread of its own.
"""

from __future__ import annotations

import contextlib
import gzip
import http.client
import http.server
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

_OF_CONNECTION = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


@dataclass(frozen=True)
class Request:
    """What a client asked for."""

    method: str
    target: str
    headers: dict[str, str]
    raw: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def parameters(self) -> dict[str, str]:
        """The query, the last value of each."""
        return {name: found[-1] for name, found in parse_qs(urlsplit(self.target).query).items()}

    @property
    def body(self) -> bytes:
        """What was sent, unpacked."""
        packed = self.headers.get("content-encoding") == "gzip"
        return gzip.decompress(self.raw) if packed else self.raw

    def items(self) -> list[Item]:
        """The items of a bulk request."""
        lines = iter([line for line in self.body.split(b"\n") if line])
        found: list[Item] = []
        for line in lines:
            ((action, said),) = json.loads(line).items()
            found.append(Item(action, said, line, None if action == "delete" else next(lines)))
        return found


@dataclass(frozen=True)
class Item:
    """One item of a bulk request: its action, what the action says, and the lines that it is."""

    action: str
    said: dict[str, Any]
    line: bytes
    document: bytes | None

    @property
    def id(self) -> str:
        return str(self.said.get("_id"))

    @property
    def lines(self) -> bytes:
        return self.line + b"\n" + (self.document + b"\n" if self.document is not None else b"")


@dataclass(frozen=True)
class Answer:
    """Answer at once; the server never hears of it."""

    status: int
    body: Any = None
    retry_after: float | str | None = None


@dataclass(frozen=True)
class CutBefore:
    """Break the connection off; the server never hears of it."""


@dataclass(frozen=True)
class CutAfter:
    """Let the server do it, then break the connection off: the reply is lost. `passed` bytes of it arrive."""

    passed: int = 0


@dataclass(frozen=True)
class Rewrite:
    """Let the server do it, and change its reply."""

    change: Callable[[Any], Any]


@dataclass(frozen=True)
class Wait:
    """Wait so many seconds, or for an event, before or after the server has done it.

    `then` changes the reply that came after the wait.
    """

    until: float | threading.Event
    after: bool = False
    then: Rewrite | None = None


Verdict = tuple[int, str, str]


@dataclass(frozen=True)
class Refuse:
    """Keep single items of a bulk request from the server, and say why in their place of the reply.

    `judge` gives status, type and reason for an item, or None where it shall pass.
    """

    judge: Callable[[Item], Verdict | None]


Action = Answer | CutBefore | CutAfter | Wait | Rewrite | Refuse
Rule = Callable[[Request], Action | None]


class _Cut(Exception):
    """The connection is to be broken off."""

    def __init__(self, first: bytes = b"") -> None:
        super().__init__()
        self.first = first


@dataclass
class _Reply:
    status: int
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""


class HttpProxy:
    """Listens on a port of its own. Rules may be changed while it runs."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.host, self.port_of_server = parts.hostname or "127.0.0.1", parts.port or 80
        self.requests: list[Request] = []
        self._next: list[tuple[str, Action]] = []
        self._always: list[tuple[str, Action | Rule]] = []
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._connections: set[socket.socket] = set()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                outer._connections.add(self.connection)
                self.upstream = http.client.HTTPConnection(outer.host, outer.port_of_server)

            def finish(self) -> None:
                outer._connections.discard(self.connection)
                self.upstream.close()
                with contextlib.suppress(OSError):
                    super().finish()

            def handle(self) -> None:
                with contextlib.suppress(OSError):
                    super().handle()

            def _serve(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                raw = _chunked(self.rfile) if "transfer-encoding" in headers else b""
                raw = raw or self.rfile.read(int(headers.get("content-length", "0")))
                try:
                    reply = outer._reply(Request(self.command, self.path, headers, raw), self.upstream)
                except (_Cut, OSError, http.client.HTTPException) as error:
                    self._cut(error.first if isinstance(error, _Cut) else b"")
                    return
                self.send_response_only(reply.status)
                for name, value in reply.headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(reply.body)

            def _cut(self, first: bytes) -> None:
                if first:
                    self.wfile.write(first)
                # With a reset, as a broken line does, and not with an orderly end.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.close_connection = True
                self.connection.close()

            do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _serve

            def log_message(self, *args: Any) -> None:
                pass

        class Listener(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *args: Any) -> None:
                pass

        self._http = Listener(("127.0.0.1", 0), Handler)
        self.port = int(self._http.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    # The script

    def next(self, what: str, *actions: Action) -> None:
        """What happens to the next requests whose address holds `what`, one action a request."""
        with self._lock:
            self._next += [(what, action) for action in actions]

    def always(self, what: str, rule: Action | Rule) -> None:
        """What happens to every such request from now on, where nothing else is said of it."""
        with self._lock:
            self._always.append((what, rule))

    def clear(self) -> None:
        """Let everything pass again."""
        with self._lock:
            self._next, self._always = [], []

    def seen(self, what: str = "") -> int:
        """How many such requests there were."""
        with self._lock:
            return sum(what in request.target for request in self.requests)

    @property
    def left(self) -> int:
        """How many actions for next requests have not been used."""
        return len(self._next)

    def _decide(self, request: Request) -> Action | None:
        with self._lock:
            self.requests.append(request)
            for at, (what, action) in enumerate(self._next):
                if what in request.target:
                    del self._next[at]
                    return action
            rules = [rule for what, rule in self._always if what in request.target]
        for rule in rules:
            made = rule(request) if callable(rule) else rule
            if made is not None:
                return made
        return None

    # What it does

    def _reply(self, request: Request, upstream: http.client.HTTPConnection) -> _Reply:
        action = self._decide(request)
        if isinstance(action, Answer):
            return _answer(action)
        if isinstance(action, CutBefore):
            raise _Cut
        if isinstance(action, Wait):
            return self._late(request, upstream, action)
        if isinstance(action, CutAfter):
            reply = _forward(request, upstream)
            head = f"HTTP/1.1 {reply.status} OK\r\nContent-Length: {len(reply.body)}\r\n\r\n".encode()
            raise _Cut((head + reply.body)[: action.passed])
        if isinstance(action, Rewrite):
            return _rewritten(request, upstream, action)
        if isinstance(action, Refuse):
            return _refused(request, upstream, action)
        return _forward(request, upstream)

    def _late(self, request: Request, upstream: http.client.HTTPConnection, wait: Wait) -> _Reply:
        reply = _forward(request, upstream) if wait.after else None
        if isinstance(wait.until, threading.Event):
            while not wait.until.wait(0.05) and not self._closed.is_set():
                pass
        else:
            self._closed.wait(wait.until)
        if wait.then is not None:
            return _rewritten(request, upstream, wait.then)
        return reply or _forward(request, upstream)

    def cut(self) -> None:
        """Break every connection off now."""
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._closed.set()
        self._http.shutdown()
        self._thread.join()
        self.cut()
        self._http.server_close()


def _forward(request: Request, upstream: http.client.HTTPConnection, *, plain: bool = False) -> _Reply:
    """The server's reply; `plain` asks for one that is not packed."""
    headers = {name: value for name, value in request.headers.items() if name not in _OF_CONNECTION}
    if plain:
        headers.pop("accept-encoding", None)
    upstream.request(request.method, request.target, body=request.raw or None, headers=headers)
    with upstream.getresponse() as response:
        kept = [(name, value) for name, value in response.getheaders() if name.lower() not in _OF_CONNECTION]
        return _Reply(response.status, kept, response.read())


def _rewritten(request: Request, upstream: http.client.HTTPConnection, rewrite: Rewrite) -> _Reply:
    reply = _forward(request, upstream, plain=True)
    reply.body = json.dumps(rewrite.change(json.loads(reply.body))).encode()
    return reply


def _answer(answer: Answer) -> _Reply:
    body = answer.body
    if body is None:
        said = {"type": "tests", "reason": f"the script says {answer.status}"}
        body = {"error": said, "status": answer.status}
    headers = [("Content-Type", "application/json; charset=UTF-8")]
    if answer.retry_after is not None:
        headers.append(("Retry-After", str(answer.retry_after)))
    return _Reply(answer.status, headers, body if isinstance(body, bytes) else json.dumps(body).encode())


def _refused(request: Request, upstream: http.client.HTTPConnection, refuse: Refuse) -> _Reply:
    """The reply to a bulk request of which single items never reach the server."""
    items = request.items()
    verdicts = [refuse.judge(item) for item in items]
    kept = b"".join(item.lines for item, verdict in zip(items, verdicts, strict=True) if verdict is None)
    said: dict[str, Any] = {"took": 1, "errors": False, "items": []}
    reply = _Reply(200, [("Content-Type", "application/json; charset=UTF-8")])
    if kept:
        # The whole reply: what the client wants to see of it is cut out afterwards.
        target = urlsplit(request.target)
        query = "&".join(p for p in target.query.split("&") if p and not p.startswith("filter_path="))
        headers = {name: value for name, value in request.headers.items() if name != "content-encoding"}
        asked = Request(request.method, f"{target.path}?{query}", headers, kept)
        reply = _forward(asked, upstream, plain=True)
        said = json.loads(reply.body)
        if reply.status != http.HTTPStatus.OK:
            return reply
    real = iter(said["items"])
    said["items"] = [
        next(real) if verdict is None else {item.action: _verdict(item, verdict)}
        for item, verdict in zip(items, verdicts, strict=True)
    ]
    said["errors"] = said["errors"] or any(verdicts)
    paths = request.parameters.get("filter_path")
    reply.body = json.dumps(filtered(said, paths) if paths else said).encode()
    return reply


def _verdict(item: Item, verdict: Verdict) -> dict[str, Any]:
    status, kind, reason = verdict
    return {"_id": item.id, "status": status, "error": {"type": kind, "reason": reason}}


def filtered(said: Any, paths: str) -> Any:
    """What `filter_path` leaves of a reply: objects of which nothing is left are left out themselves."""
    found = _kept(said, [path.split(".") for path in paths.split(",")])
    return {} if found is None else found


def _kept(value: Any, paths: list[list[str]]) -> Any:
    if any(not path for path in paths):
        return value
    if isinstance(value, list):
        found = [made for inner in value if (made := _kept(inner, paths)) is not None]
        return found or None
    if not isinstance(value, dict):
        return None
    kept: dict[str, Any] = {}
    for name, inner in value.items():
        rest = [path[1:] for path in paths if path[0] in ("*", name)]
        if rest and (made := _kept(inner, rest)) is not None:
            kept[name] = made
    return kept or None


def _chunked(stream: Any) -> bytes:
    parts: list[bytes] = []
    while size := int(stream.readline().split(b";")[0], 16):
        parts.append(stream.read(size))
        stream.readline()
    stream.readline()
    return b"".join(parts)


@contextlib.contextmanager
def http_proxy_to(url: str) -> Iterator[HttpProxy]:
    """A proxy for as long as the block runs."""
    proxy = HttpProxy(url)
    try:
        yield proxy
    finally:
        proxy.close()

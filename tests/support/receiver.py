"""A receiver of feeds over HTTP: it knows the keys it had, and misbehaves as it is told."""

from __future__ import annotations

import http.server
import json
import socket
import threading
from collections.abc import Callable
from typing import Any

CANARY = "canary-9f27"
Handler = http.server.BaseHTTPRequestHandler


class Receiver:
    """Use as a context. Answers by `script`: a status, a status with headers, or what a function does with
    the handler; 204 where it is empty, 503 while it is `down`. Of the next `torn` requests it reads half."""

    def __init__(self) -> None:
        self.script: list[Any] = []
        self.down = False
        self.torn = 0
        self.requests: list[tuple[dict[str, str], bytes]] = []
        # The keys of bodies that were accepted: what an answer that was lost told, is accepted all the same.
        self._accepted: dict[str, bytes] = {}
        outer = self

        class Answering(Handler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                outer._receive(self)

            def log_message(self, *args: Any) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self._thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.http.shutdown()
        self._thread.join()
        self.http.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}/changes"

    @property
    def keys(self) -> list[str]:
        """Those of all requests, in order of arrival."""
        return [headers["Idempotency-Key"] for headers, _ in self.requests]

    @property
    def changes(self) -> list[dict[str, Any]]:
        """What it made of the bodies it accepted: one whose key it had says nothing."""
        return [json.loads(line) for body in list(self._accepted.values()) for line in body.splitlines()]

    def hold(self) -> Held:
        """The next body is accepted, and its answer waits."""
        held = Held()
        self.script.append(held)
        return held

    def _receive(self, handler: Handler) -> None:
        length = int(handler.headers["Content-Length"])
        if self.torn:
            self.torn -= 1
            handler.rfile.read(length // 2)
            cut_after(b"")(handler)
            return
        body = handler.rfile.read(length)
        if len(body) < length:
            # Who sent it is gone.
            handler.close_connection = True
            return
        self.requests.append((dict(handler.headers), body))
        answer = 503 if self.down else self.script.pop(0) if self.script else 204
        status, headers = answer if isinstance(answer, tuple) else (answer, {})
        if callable(answer) or status < 300:
            self._accepted.setdefault(handler.headers["Idempotency-Key"], body)
        if callable(answer):
            answer(handler)
            return
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        if status != 204:
            handler.send_header("Content-Length", str(len(CANARY)))
        handler.end_headers()
        if status != 204:
            handler.wfile.write(CANARY.encode())


class Held:
    """An answer that waits: `taken` is set once the body is there, and `go` lets the answer out."""

    def __init__(self) -> None:
        self.taken, self.go = threading.Event(), threading.Event()

    def __call__(self, handler: Handler) -> None:
        self.taken.set()
        self.go.wait(120)
        handler.close_connection = True
        try:
            handler.send_response(204)
            handler.end_headers()
            handler.wfile.flush()
        except OSError:
            """Nobody waits for it any more."""


def cut_after(sent: bytes) -> Callable[[Handler], None]:
    """Answers with these bytes and hangs up."""

    def cut(handler: Handler) -> None:
        handler.wfile.write(sent)
        handler.wfile.flush()
        handler.connection.shutdown(socket.SHUT_RDWR)
        handler.close_connection = True

    return cut

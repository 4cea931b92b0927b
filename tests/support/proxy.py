"""A TCP proxy that a test can cut, at once or after so many bytes, and stop without closing anything."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


class Proxy:
    """Listens on a port of its own and passes everything on to another one."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._closed = False
        self._flows = threading.Event()
        self._flows.set()
        self.passed = 0
        self.cuts = 0
        self._cut_after: int | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                # The server is down: the client shall see that, and the next one may find it up again.
                client.close()
                continue
            with self._lock:
                if self._closed:
                    client.close()
                    server.close()
                    return
                self._pairs.append((client, server))
            for source, sink, counted in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pump, args=(source, sink, counted), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._flows.wait()
                left = self._cut_after
                if counted and left is not None and len(data) >= left:
                    sink.sendall(data[:left])
                    self._cut_after = None
                    self.cut()
                    return
                if counted:
                    self.passed += len(data)
                    if left is not None:
                        self._cut_after = left - len(data)
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Close every connection now."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        self.cuts += len(pairs)
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def cut_after(self, count: int) -> None:
        """Cut once so many more bytes of the server have passed."""
        self._cut_after = count

    def lead_to(self, port: int) -> None:
        """Connections from now on go to another port."""
        self._target = port

    def stop(self) -> None:
        """Pass nothing on, and close nothing."""
        self._flows.clear()

    def go(self) -> None:
        self._flows.set()

    def close(self) -> None:
        self._flows.set()
        with self._lock:
            self._closed = True
        self._listener.close()
        self.cut()


@contextlib.contextmanager
def proxy_to(port: int) -> Iterator[Proxy]:
    """A proxy for as long as the block runs."""
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()

"""The HTTP sink against a real server that misbehaves in every way a server can."""

from __future__ import annotations

import email.utils
import http.server
import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.model.errors import ConfigError, NeedsOperator, Transient
from tailrace.model.secret import Secret
from tailrace.sinks.contract import Progress
from tailrace.sinks.http import HttpConfig, HttpSink
from tests.model.changes import batch_of, table_of
from tests.support.receiver import CANARY, Receiver, cut_after
from tests.support.waiting import wait_until

TABLE = table_of({"id": "long", "name": "string"})
PROGRESS = Progress("p", 0, 9, {"main.orders": ("plan", 2)})


def rows(count: int, name: str = "x") -> Any:
    return batch_of(
        TABLE, [{"op": "c", "position": 1, "seq": i, "after": {"id": i, "name": name}} for i in range(count)]
    )


@pytest.fixture
def server() -> Iterator[Receiver]:
    with Receiver() as running:
        yield running


Make = Callable[..., HttpSink]


@pytest.fixture
def sink_of(server: Receiver) -> Iterator[Make]:
    made: list[HttpSink] = []

    def make(sleep: Callable[[float], object] | None = None, **options: Any) -> HttpSink:
        options = {"backoff": 0.01, "timeout": 60.0, "max_elapsed": 60.0} | options
        made.append(HttpSink(HttpConfig(options.pop("url", server.url), **options), sleep=sleep))
        return made[-1]

    yield make
    for sink in made:
        sink.close()


def test_changes_arrive_as_lines_of_json(server: Receiver, sink_of: Make) -> None:
    report = sink_of(headers={"Authorization": Secret("Bearer t")}).write([rows(3)], PROGRESS)
    headers, body = server.requests[0]
    assert report.written == 3
    assert headers["Content-Type"] == "application/x-ndjson"
    assert headers["Authorization"] == "Bearer t"
    assert [json.loads(line)["after"]["id"] for line in body.splitlines()] == [0, 1, 2]


def test_bodies_are_cut_at_lines_and_hold_every_line_once(server: Receiver, sink_of: Make) -> None:
    sink_of(max_batch_bytes=500).write([rows(20), rows(1, "y" * 2000)], PROGRESS)
    sent = [body for _, body in server.requests]
    assert len(sent) > 3
    assert all(len(body) <= 500 or body.count(b"\n") == 1 for body in sent)
    assert all(body.endswith(b"\n") for body in sent)
    assert len(b"".join(sent).splitlines()) == 21
    assert len(set(server.keys)) == len(sent)


def test_a_replay_has_the_same_keys_and_other_content_has_others(server: Receiver, sink_of: Make) -> None:
    sink = sink_of(max_batch_bytes=400)
    sink.write([rows(6)], PROGRESS)
    first = server.keys.copy()
    sink.write([rows(6)], Progress("p", 0, 9, {"main.orders": ("plan", 2)}))
    assert server.keys[len(first) :] == first
    server.requests.clear()
    for progress, batch in (
        (Progress("q", 0, 9, PROGRESS.snapshots), rows(6)),
        (Progress("p", 0, 10, PROGRESS.snapshots), rows(6)),
        (Progress("p", 0, 9, {"main.orders": ("plan", 3)}), rows(6)),
        (PROGRESS, rows(6, "z")),
    ):
        sink.write([batch], progress)
    assert not set(server.keys) & set(first)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503])
def test_passing_faults_are_retried_under_the_same_key(server: Receiver, sink_of: Make, status: int) -> None:
    server.script = [status, status]
    assert sink_of().write([rows(1)], PROGRESS).written == 1
    assert len(server.requests) == 3
    assert len(set(server.keys)) == 1


def test_whoever_watches_is_told_why_and_how_long_the_sink_waits(server: Receiver, sink_of: Make) -> None:
    server.script = [503]
    told: list[tuple[str, float]] = []
    waited: list[float] = []
    sink = sink_of(sleep=waited.append)
    sink.watch(lambda message, seconds: told.append((message, seconds)))
    sink.write([rows(1)], PROGRESS)
    assert [seconds for _, seconds in told] == waited
    assert "503" in told[0][0]


@pytest.mark.parametrize("date", [False, True])
def test_retry_after_is_honoured(server: Receiver, sink_of: Make, date: bool) -> None:
    asked = email.utils.formatdate(time.time() + 30.5, usegmt=True) if date else "2"
    server.script = [(429, {"Retry-After": asked})]
    waited: list[float] = []
    sink_of(sleep=waited.append).write([rows(1)], PROGRESS)
    assert len(waited) == 1
    assert (20 if date else 1.9) < waited[0] <= (30.6 if date else 2.1)


def test_a_retry_after_beyond_the_bound_is_transient_at_once_and_still_honoured(
    server: Receiver, sink_of: Make
) -> None:
    server.script = [(503, {"Retry-After": "3600"})]
    started = time.monotonic()
    sink = sink_of()
    with pytest.raises(Transient, match="status 503"):
        sink.write([rows(1)], PROGRESS)
    with pytest.raises(Transient, match="asked to wait"):
        sink.write([rows(1)], PROGRESS)
    assert len(server.requests) == 1
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("after", ["0", "-5", "nan", "soon", ""])
def test_a_server_that_asks_for_no_wait_is_not_hammered(server: Receiver, sink_of: Make, after: str) -> None:
    server.script = [(503, {"Retry-After": after})] * 20
    waited: list[float] = []
    sink_of(sleep=waited.append, backoff=1.0, max_elapsed=100).write([rows(1)], PROGRESS)
    assert sum(waited) > 5


def test_waits_grow_at_random_up_to_their_limit(server: Receiver, sink_of: Make) -> None:
    server.script = [500] * 12
    waited: list[float] = []
    sink_of(sleep=waited.append, backoff=0.1, max_backoff=2, max_elapsed=60).write([rows(1)], PROGRESS)
    assert all(0 <= wait <= min(2, 0.1 * 2**i) for i, wait in enumerate(waited))
    assert len(set(waited)) == 12


def test_a_long_outage_ends_as_transient_within_the_bound(server: Receiver, sink_of: Make) -> None:
    server.script = [500] * 100_000
    started = time.monotonic()
    with pytest.raises(Transient) as caught:
        sink_of(max_elapsed=0.5).write([rows(1)], PROGRESS)
    assert time.monotonic() - started < 30
    assert "127.0.0.1" in str(caught.value)


def test_a_stop_ends_the_waiting_of_a_write(server: Receiver, sink_of: Make) -> None:
    server.script = [(503, {"Retry-After": "60"})]
    sink = sink_of(max_elapsed=120)

    def stop() -> None:
        wait_until(lambda: server.requests)
        sink.hurry()

    stopping = threading.Thread(target=stop)
    stopping.start()
    started = time.monotonic()
    with pytest.raises(Transient, match="status 503"):
        sink.write([rows(1)], PROGRESS)
    stopping.join()
    assert time.monotonic() - started < 30
    assert len(server.requests) == 1


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 20", b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort"])
def test_a_cut_connection_is_retried(server: Receiver, sink_of: Make, sent: bytes) -> None:
    server.script = [cut_after(sent), cut_after(sent)]
    assert sink_of().write([rows(1)], PROGRESS).written == 1
    assert len(server.requests) == 3


def test_a_server_that_does_not_answer_is_given_up_and_tried_again(server: Receiver, sink_of: Make) -> None:
    release = threading.Event()

    def hang(handler: http.server.BaseHTTPRequestHandler) -> None:
        release.wait(60)
        handler.close_connection = True

    server.script = [hang]
    try:
        assert sink_of(timeout=1.0).write([rows(1)], PROGRESS).written == 1
    finally:
        release.set()
    assert len(server.requests) == 2


def test_nobody_listening_is_transient(sink_of: Make) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(Transient):
        sink_of(url=f"http://127.0.0.1:{port}/", max_elapsed=0.1).write([rows(1)], PROGRESS)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422])
def test_a_refusal_needs_an_operator_and_tells_no_secret(
    server: Receiver, sink_of: Make, status: int
) -> None:
    server.script = [status]
    url = server.url.replace("http://", "http://user:hunter2@") + "?token=hunter3"
    sink = sink_of(url=url, headers={"X-Api-Key": Secret("hunter4")})
    with pytest.raises(NeedsOperator, match=str(status)) as caught:
        sink.write([rows(1)], PROGRESS)
    assert caught.value.remedy
    shown = str(caught.value) + repr(caught.value.__cause__) + repr(caught.value.__context__)
    assert not [word for word in ("hunter2", "hunter3", "hunter4", CANARY) if word in shown]
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_not_followed(server: Receiver, sink_of: Make, status: int) -> None:
    server.script = [(status, {"Location": server.url})]
    with pytest.raises(NeedsOperator, match="redirect"):
        sink_of().write([rows(1)], PROGRESS)
    assert len(server.requests) == 1


def test_a_certificate_nobody_trusts_is_refused_and_a_trusted_one_is_not(
    server: Receiver, sink_of: Make, tmp_path: Path
) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        str(key),
        "-out",
        str(cert),
    ]
    subprocess.run(
        [*command, "-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server.http.socket = context.wrap_socket(server.http.socket, server_side=True)
    url = server.url.replace("http://", "https://")
    with pytest.raises(NeedsOperator, match="certificate"):
        sink_of(url=url).write([rows(1)], PROGRESS)
    assert sink_of(url=url, ca_file=str(cert)).write([rows(1)], PROGRESS).written == 1


@pytest.mark.parametrize("url", ["", "ftp://host/", "host/path", "http://", "http://[bad"])
def test_what_is_no_url_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(ConfigError):
        HttpSink(HttpConfig(url))


@pytest.mark.parametrize("value", ["a\r\nX-Injected: 1", "ключ", "a\0"])
def test_a_header_that_cannot_be_sent_is_refused_without_its_value(value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        HttpSink(HttpConfig("http://localhost/", {"X-Key": Secret(value)}))
    assert value not in str(caught.value)


def test_a_batch_without_changes_sends_nothing(server: Receiver, sink_of: Make) -> None:
    assert sink_of().write([rows(0)], PROGRESS).written == 0
    assert server.requests == []


def test_settings_do_not_show_their_headers() -> None:
    assert "hunter" not in repr(HttpConfig("http://localhost/", {"X-Key": "hunter"}))

"""Who asks, and whom: passwords, keys, signatures and certificates, as a server sees them."""

from __future__ import annotations

import contextlib
import datetime
import http.server
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.model.errors import ConfigError, NeedsOperator, TailraceError, Transient
from tailrace.sinks.opensearch import Credential, OpenSearchConfig, OpenSearchSink
from tailrace.sinks.opensearch.aws import signed
from tests.support.certificates import Authority, Certificate


class Answering:
    """A server that has no index, over TLS, and remembers what it was sent."""

    def __init__(
        self,
        certificate: Certificate | None,
        clients: Path | None = None,
        latest: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED,
    ) -> None:
        self.headers: list[dict[str, str]] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.headers.append({name.lower(): value for name, value in self.headers.items()})
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: Any) -> None:
                pass

        class Listener(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                pass

        self._http = Listener(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.maximum_version = latest
            context.load_cert_chain(certificate.chain, certificate.key)
            if clients is not None:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(clients)
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
            self.url = self.url.replace("http:", "https:")
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@pytest.fixture
def plain() -> Iterator[Answering]:
    server = Answering(None)
    yield server
    server.close()


def asked(url: str, **settings: Any) -> None:
    """One question, without a second try."""
    sink = OpenSearchSink(OpenSearchConfig(url, max_elapsed=0.0, **settings))
    try:
        assert sink.seeded("customers") is None
    finally:
        sink.close()


def test_a_user_an_api_key_or_nobody_asks(plain: Answering) -> None:
    asked(plain.url, username="ada", password=Credential("pä:ss"))
    asked(plain.url, api_key=Credential("a2V5OnNlY3JldA=="))
    asked(plain.url)
    found = [headers.get("authorization") for headers in plain.headers]
    assert found == ["Basic YWRhOnDDpDpzcw==", "ApiKey a2V5OnNlY3JldA==", None]


def test_a_key_that_cannot_be_sent_is_an_error_without_it(plain: Answering) -> None:
    with pytest.raises(ConfigError, match="api_key") as error:
        asked(plain.url, api_key=Credential("secret\r\nX-Evil: 1"))
    assert "secret" not in str(error.value)
    assert plain.headers == []


def test_a_certificate_that_is_not_trusted_is_told_and_one_that_is_serves(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    server = Answering(authority.server("IP:127.0.0.1"))
    try:
        with pytest.raises(NeedsOperator, match="certificate"):
            asked(server.url)
        assert server.headers == []
        asked(server.url, ca_file=str(authority.root))
        asked(server.url, verify=False)
    finally:
        server.close()
    assert len(server.headers) == 2


def test_a_client_shows_its_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    server = Answering(authority.server("IP:127.0.0.1"), authority.root)
    mine = authority.client("tailrace")
    files = {"client_cert": str(mine.chain), "client_key": str(mine.key), "ca_file": str(authority.root)}
    try:
        asked(server.url, **files)
    finally:
        server.close()
    assert len(server.headers) == 1


def test_a_client_whose_certificate_is_refused_is_told(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path / "authority"), Authority(tmp_path / "other", "other")
    # Later versions say it after the handshake, where the end of the connection may overtake it.
    server = Answering(authority.server("IP:127.0.0.1"), authority.root, ssl.TLSVersion.TLSv1_2)
    strange = other.client("tailrace")
    try:
        with pytest.raises(NeedsOperator, match="certificate"):
            asked(
                server.url,
                ca_file=str(authority.root),
                client_cert=str(strange.chain),
                client_key=str(strange.key),
            )
    finally:
        server.close()
    assert server.headers == []


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_port_that_closes_before_it_speaks_tls_is_a_passing_fault(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def close_all() -> None:
            with contextlib.suppress(OSError):
                while True:
                    with listening.accept()[0] as connection:
                        # All of it, so that the end is an orderly one.
                        connection.recv(65536)
                        connection.sendall(said)

        thread = threading.Thread(target=close_all)
        thread.start()
        try:
            with pytest.raises(Transient, match="TLS could not be spoken") as error:
                asked(f"https://127.0.0.1:{listening.getsockname()[1]}")
            assert "client_cert" in (error.value.remedy or "")
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_certificate_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read") as error:
        asked("https://127.0.0.1:1", ca_file=str(tmp_path / "nowhere.pem"))
    assert "nowhere.pem" in (error.value.remedy or "")


def test_a_signature_is_the_one_that_amazon_documents() -> None:
    # The request `get-vanilla` of the published test suite of Signature Version 4.
    made = signed(
        "GET",
        "https://example.amazonaws.com/",
        None,
        region="us-east-1",
        service="service",
        keys=("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", None),
        now=datetime.datetime(2015, 8, 30, 12, 36, 0, tzinfo=datetime.UTC),
    )
    assert made["x-amz-date"] == "20150830T123600Z"
    assert made["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request,"
        " SignedHeaders=host;x-amz-date,"
        " Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
    )


def test_a_signature_covers_path_query_body_and_token() -> None:
    # As botocore 1.44 signs it.
    made = signed(
        "POST",
        "https://search.example.com/base/a%2Cb_%2A/_bulk"
        "?timeout=30s&require_alias=true&filter_path=errors%2Citems.%2A.status&blank=",
        b'{"index":{"_id":"1"}}\n{"n":1}\n',
        region="eu-north-1",
        keys=(
            "AKIDEXAMPLE",
            "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
            "AQoDYXdzEPT//wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqw==",
        ),
        now=datetime.datetime(2015, 8, 30, 12, 36, 0, tzinfo=datetime.UTC),
    )
    assert made["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/eu-north-1/es/aws4_request,"
        " SignedHeaders=host;x-amz-date;x-amz-security-token,"
        " Signature=11fef6f7d57e626623370ad2a336a92590e1624b63179b4d418a7bafbe673849"
    )


BOTOCORE = """
class Found:
    def get_frozen_credentials(self):
        raise ConnectionError("hidden-value")

class Session:
    def get_credentials(self):
        if {broken}:
            raise ValueError("hidden-value")
        return Found()

get_session = Session
"""


@pytest.mark.parametrize(("broken", "kind"), [(True, ConfigError), (False, Transient)])
def test_credentials_that_cannot_be_had_are_told_without_the_words_of_botocore(
    plain: Answering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: bool, kind: type[TailraceError]
) -> None:
    (tmp_path / "botocore").mkdir()
    (tmp_path / "botocore" / "__init__.py").touch()
    (tmp_path / "botocore" / "session.py").write_text(BOTOCORE.replace("{broken}", str(broken)))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("botocore", "botocore.session"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    try:
        with pytest.raises(kind, match="AWS credentials could not be") as error:
            asked(plain.url, aws_region="eu-north-1")
    finally:
        for name in ("botocore", "botocore.session"):
            sys.modules.pop(name, None)
    assert error.value.remedy
    assert "hidden-value" not in str(error.value)
    assert plain.headers == []


def test_requests_are_signed_with_the_keys_of_the_environment(
    plain: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden-value")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    asked(plain.url, aws_region="eu-north-1")
    (sent,) = plain.headers
    assert "/eu-north-1/es/aws4_request" in sent["authorization"]
    assert sent["x-amz-security-token"] == "token"
    assert "hidden-value" not in str(sent)


def test_without_keys_to_sign_with_nothing_is_sent(plain: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    with pytest.raises(ConfigError, match="no AWS credentials"):
        asked(plain.url, aws_region="eu-north-1")
    assert plain.headers == []

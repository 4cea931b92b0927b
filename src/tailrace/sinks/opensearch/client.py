"""Requests to the cluster, and what their failure means: tried again for a while, or a matter for a person.

Of an answer's body an error shows its kind, and its words where these are about indexes and never about a
document. Nothing of what says who asks goes into an error.
"""

from __future__ import annotations

import base64
import json
import random
import re
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import quote, urlencode

import urllib3
from urllib3.exceptions import HTTPError, InsecureRequestWarning, SSLError

from tailrace.model.errors import ConfigError, NeedsOperator, Transient
from tailrace.model.secret import MASK
from tailrace.sinks.opensearch.aws import Keys, signed
from tailrace.sinks.opensearch.config import OpenSearchConfig
from tailrace.sinks.retry_after import seconds_of

JSON, LINES = "application/json", "application/x-ndjson"
_RETRY = frozenset({408, 425, 429})
# What a cluster calls it that has no such index or alias. Any other 404 is of something in front of it.
_ABSENT = frozenset({"index_not_found_exception", "aliases_not_found_exception"})
BLOCKED, CLOSED = "cluster_block_exception", "index_closed_exception"
_BLOCK = re.compile(r"\[[A-Z_]{1,40}/\d{1,4}/([^\]\n]{1,200})\]")
_UNBLOCK = (
    "free disk space or add nodes if its watermark was exceeded (OpenSearch lets go of the index by itself"
    ' then), else take the block away: PUT /<index>/_settings {"index.blocks.read_only_allow_delete": null}'
)
_NO_NEW = "index_create_block_exception"
_UNBLOCK_NEW = (
    "free disk space or add nodes if the high watermark was exceeded on all of them, else take the block"
    ' away: PUT /_cluster/settings {"persistent": {"cluster.blocks.create_index": null}}'
)
# An alert of the server's about a certificate, or an error of the client's own: waiting changes neither.
_OF_CERTIFICATE = re.compile(r"CERTIFICATE|UNKNOWN_CA|ACCESS_DENIED")
_TLS_REMEDY = (
    "if it stays so: check that the url's port speaks TLS, and whether the server wants a client_cert"
)
RIGHTS = (
    "give the sink's user the rights to read, write, create, delete and manage its indexes and their aliases,"
    " and for the cluster as a whole those of bulk requests, aliases and scrolls (OpenSearch's security"
    " plugin: cluster_composite_ops, indices:data/read/scroll/clear)"
)
_READ = 1 << 20
Body = bytes | memoryview | None


class TrickleError(HTTPError):
    """An answer that went on and on."""


@dataclass(frozen=True)
class Again:
    """A passing fault: what it was, how long the server asked to wait, and what would end it."""

    reason: str
    after: float | None = None
    remedy: str | None = None


@dataclass(frozen=True)
class Answer:
    """What the server said; success, or a refusal that the caller makes sense of."""

    status: int
    body: bytes

    @cached_property
    def json(self) -> Any:
        """The body; None where it is no JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    @property
    def error(self) -> tuple[str, str]:
        """The kind of error and its words, empty where there is none."""
        found = self.json.get("error") if isinstance(self.json, dict) else None
        if isinstance(found, dict):
            return str(found.get("type", "")), str(found.get("reason", ""))
        return str(found or ""), ""


STRANGE = Again("an answer that is not OpenSearch's")


def blocked(words: str, after: float | None = None) -> Again:
    """A block of the cluster or of an index, told by the words of the answer."""
    if "SERVICE_UNAVAILABLE" in words:
        remedy = "if it stays so: look whether enough of the nodes that may manage the cluster are running"
        return Again("the cluster has no manager, or has not recovered its state yet", after, remedy)
    if "read-only" in words or "watermark" in words:
        return Again("the cluster or the index is read-only", after, _UNBLOCK)
    what = ", ".join(dict.fromkeys(_BLOCK.findall(words)))
    remedy = (
        "find the block and take it away: GET /<index>/_settings/index.blocks.*, or"
        " GET /_cluster/settings?filter_path=*.cluster.blocks"
    )
    return Again("the cluster or the index is blocked" + (f" ({what})" if what else ""), after, remedy)


def closed(place: str, error: Mapping[str, Any]) -> NeedsOperator:
    """The error for an index that somebody closed, as the server told it."""
    name = str(error.get("index", "<index>"))
    return NeedsOperator(
        f"the index {name} is closed",
        remedy=f"open it: POST /{name}/_open, and start the pipeline again",
        place=place,
    )


# Until when a cluster asked not to be asked, and why. Sinks come and go with the tasks of Spark, and the
# process stays.
_NOT_BEFORE: dict[str, tuple[float, str]] = {}
_NOT_BEFORE_LOCK = threading.Lock()


class Patience:
    """Waits between tries, at random and twice as long each time, until nothing succeeded for too long.

    `hurry`, from any thread and for good, ends the waiting: from then on everything is tried once.
    """

    def __init__(self, config: OpenSearchConfig, place: str) -> None:
        self._config, self._place = config, place
        self._hurried = threading.Event()
        self.waiting: Callable[[str, float], None] | None = None
        self.advance()

    def begin(self) -> None:
        """Something begins. Transient while the server asked not to be asked: the engine may come sooner."""
        self.advance()
        with _NOT_BEFORE_LOCK:
            until, why = _NOT_BEFORE.get(self._place, (0.0, ""))
        left = until - time.monotonic()
        if left > 0:
            raise Transient(f"{why}; asked to wait another {left:.0f} s", place=self._place)

    def advance(self) -> None:
        """Something succeeded, so there is reason to go on."""
        self._tries = 0
        self._deadline = time.monotonic() + self._config.max_elapsed

    def pause(self, fault: Again) -> None:
        """Wait before the next try; Transient where there was enough of it."""
        limit = min(self._config.max_backoff, self._config.backoff * 2.0 ** min(self._tries, 30))
        # Never sooner than the server asked for, and never at once because it asked for nothing.
        wait = max(fault.after or 0.0, random.uniform(0, limit))  # noqa: S311
        self._tries += 1
        late = time.monotonic() + wait > self._deadline
        if not late and self.waiting is not None:
            remedy = f"; remedy: {fault.remedy}" if fault.remedy else ""
            self.waiting(f"{self._place}: {fault.reason}{remedy}", wait)
        if late or self._hurried.wait(wait):
            if fault.after:
                with _NOT_BEFORE_LOCK:
                    _NOT_BEFORE[self._place] = (time.monotonic() + fault.after, fault.reason)
            often = f", tried {self._tries} times" if self._tries > 1 else ""
            raise Transient(
                f"{fault.reason}{often}",
                remedy=fault.remedy,
                place=self._place,
            )

    def rest(self, seconds: float) -> None:
        """Wait though nothing failed; not where there is a hurry."""
        self._hurried.wait(seconds)

    def hurry(self) -> None:
        """Wait no more."""
        self._hurried.set()


class Client:
    """One cluster. Opens nothing until it is asked something; usable by several threads."""

    def __init__(self, config: OpenSearchConfig) -> None:
        self.config = config
        try:
            parsed = urllib3.util.parse_url(config.url)
        except HTTPError:
            parsed = None
        if parsed is None or parsed.scheme not in ("http", "https") or not parsed.host or parsed.auth:
            raise ConfigError(
                "the url of the opensearch sink is not an http or https URL without user and password",
                remedy='url = "https://search.example.com:9200", username = "…", password = { env = "…" }',
            )
        port = f":{parsed.port}" if parsed.port else ""
        self.place = f"{parsed.scheme}://{parsed.host}{port}"
        self._base = self.place + (parsed.path or "").rstrip("/")
        self._headers = {"Accept": JSON, **_identity(config)}
        self._keys = Keys() if config.aws_region else None
        self._pool = urllib3.PoolManager(
            num_pools=1,
            maxsize=config.parallel + 1,
            retries=False,
            timeout=urllib3.Timeout(connect=min(10.0, config.timeout), read=config.timeout),
            **_tls(config, parsed.scheme),
        )

    def once(
        self,
        method: str,
        path: str,
        body: Body = None,
        *,
        params: Mapping[str, str] | None = None,
        kind: str = JSON,
    ) -> Answer | Again:
        """One try. NeedsOperator where no other try would help, and the caller could not either."""
        url = self._base + quote(path, safe="/,*._-~") + (f"?{urlencode(params)}" if params else "")
        headers = {**self._headers}
        if body is not None:
            headers["Content-Type"] = kind
            if self.config.gzip and len(body) > 1024:
                packer = zlib.compressobj(1, wbits=31)
                body = packer.compress(body) + packer.flush()
                headers["Content-Encoding"] = "gzip"
        if self._keys is not None:
            headers |= signed(
                method,
                url,
                body,
                region=self.config.aws_region or "",
                keys=self._keys.get(),
            )
        try:
            # A view of bytes is sent as it is, without a copy; the declared type does not say so.
            sent: Any = body
            begun = time.monotonic()
            response = self._pool.request(
                method, url, body=sent, headers=headers, redirect=False, preload_content=False
            )
            said = self._read(response, begun + self.config.timeout)
        except SSLError as error:
            if (fault := _of_tls(error)) is not None:
                return fault
            raise NeedsOperator(
                "the server's certificate could not be verified, or it refused the client's",
                remedy="renew the certificate, or set ca_file to the authority that signed it",
                place=self.place,
            ) from None
        except HTTPError as error:
            return Again(_told(error))
        return self._judged(Answer(int(response.status), said), response.headers.get("Retry-After"))

    def _read(self, response: urllib3.BaseHTTPResponse, deadline: float) -> bytes:
        """The body. Bytes that trickle in keep no request alive beyond its time."""
        found = bytearray()
        try:
            while data := response.read1(_READ):
                found += data
                if time.monotonic() > deadline:
                    raise TrickleError("the answer took too long")
        except BaseException:
            response.close()
            raise
        response.release_conn()
        return bytes(found)

    def _judged(self, answer: Answer, retry_after: str | None) -> Answer | Again:
        status = answer.status
        if status < 300:
            return answer
        if status < 400:
            raise NeedsOperator(
                f"the server answered {status}: redirects are not followed",
                remedy="set the sink's url to the address the server redirects to",
                place=self.place,
            )
        if status == 401:
            raise NeedsOperator(
                "the server does not know who asks (status 401)",
                remedy="check username and password, api_key or the AWS credentials of the sink",
                place=self.place,
            )
        if answer.error[0] == BLOCKED:
            return blocked(answer.error[1], seconds_of(retry_after))
        if answer.error[0] == _NO_NEW:
            return Again("the cluster makes no new indexes", seconds_of(retry_after), _UNBLOCK_NEW)
        if answer.error[0] == CLOSED:
            raise closed(self.place, inner(answer.json, "error"))
        if status == 403:
            raise NeedsOperator(
                "the server does not permit this (status 403)",
                remedy=RIGHTS,
                place=self.place,
            )
        if "no ingest nodes in this cluster" in answer.error[1]:
            raise NeedsOperator(
                "the cluster has no node that runs ingest pipelines",
                remedy="give a node the role `ingest`, or take `pipeline` out of the sink",
                place=self.place,
            )
        kind = answer.error[0]
        if status in _RETRY or status >= 500 or (status == 404 and kind not in _ABSENT):
            return Again(f"status {status}{f', {kind}' if kind else ''}", seconds_of(retry_after))
        return answer

    def ask(
        self,
        patience: Patience,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, str] | None = None,
        allow: Collection[int] = (),
        shape: Callable[[dict[str, Any]], bool],
    ) -> Answer:
        """A question about indexes, tried again while it fails. NeedsOperator for a refusal not allowed.

        A success is an object that has the `shape` of the answer; anything else was said by somebody else.
        """
        data = None if body is None else json.dumps(body).encode()
        while True:
            answer = self.once(method, path, data, params=params)
            if isinstance(answer, Again):
                patience.pause(answer)
            elif answer.status < 300 and not (isinstance(answer.json, dict) and shape(answer.json)):
                patience.pause(STRANGE)
            elif answer.status < 300 or answer.status in allow:
                return answer
            else:
                raise self.refusal(answer, f"{method} {path}")

    def refusal(self, answer: Answer, what: str, *, words: bool = True) -> NeedsOperator:
        """The error for an answer that nobody expected. Without `words` it shows the kind of error alone."""
        told = ": ".join(text for text in answer.error[: 2 if words else 1] if text)
        # Some servers repeat what they were sent.
        for secret in self._headers.get("Authorization", "").split()[1:]:
            told = told.replace(secret, MASK)
        return NeedsOperator(
            f"{what} was refused with status {answer.status}" + (f", {told}" if told else ""),
            remedy="look at the cluster's log, and at the sink's settings",
            place=self.place,
        )

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()


def inner(said: Any, *names: str) -> dict[str, Any]:
    """An object inside of an object, empty where there is none."""
    for name in names:
        said = said.get(name) if isinstance(said, dict) else None
    return said if isinstance(said, dict) else {}


def _identity(config: OpenSearchConfig) -> dict[str, str]:
    given = [config.username is not None, config.api_key is not None, config.aws_region is not None]
    if sum(given) > 1:
        raise ConfigError(
            "the opensearch sink has several ways to say who asks",
            remedy="leave one of: username and password, api_key, aws_region",
        )
    if config.api_key is not None:
        return {"Authorization": f"ApiKey {_printable(config.api_key.reveal(), 'api_key')}"}
    if config.username is None:
        return {}
    password = config.password.reveal() if config.password is not None else ""
    return {"Authorization": f"Basic {base64.b64encode(f'{config.username}:{password}'.encode()).decode()}"}


def _printable(text: str, key: str) -> str:
    if not text.isascii() or not text.isprintable():
        raise ConfigError(f"{key} of the opensearch sink cannot be sent", remedy="check its characters")
    return text


def _tls(config: OpenSearchConfig, scheme: str) -> dict[str, Any]:
    if scheme != "https":
        return {}
    try:
        context = ssl.create_default_context(cafile=config.ca_file)
        if config.client_cert is not None:
            context.load_cert_chain(config.client_cert, config.client_key)
    except (OSError, ssl.SSLError) as error:
        files = [config.ca_file, config.client_cert, config.client_key]
        raise ConfigError(
            f"a certificate or key of the opensearch sink cannot be read: {type(error).__name__}",
            remedy=f"check {', '.join(name for name in files if name) or 'the certificates of the system'}",
        ) from None
    if not config.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        # It was asked for, and would be told with every connection.
        urllib3.disable_warnings(InsecureRequestWarning)
    return {"ssl_context": context}


def _of_tls(error: SSLError) -> Again | None:
    """The passing fault that it was; None where it is about a certificate."""
    cause = error.args[0] if error.args else None
    if not isinstance(cause, ssl.SSLError) or isinstance(cause, ssl.SSLCertVerificationError):
        return None
    # An end of the connection comes as an error of TLS: a balancer without a node, a node that starts.
    reason = cause.reason or type(cause).__name__
    if _OF_CERTIFICATE.search(reason):
        return None
    # A server that wants another certificate of the client may close without a word that arrives.
    return Again(f"TLS could not be spoken with it ({reason})", remedy=_TLS_REMEDY)


def _told(error: HTTPError) -> str:
    """A fault of the connection in a few words, without the address, which the place has."""
    return {
        "NewConnectionError": "it cannot be reached",
        "NameResolutionError": "its name is not known",
        "ConnectTimeoutError": "it cannot be reached",
        "ReadTimeoutError": "it did not answer in time",
        "TrickleError": "it did not answer in time",
        "ProtocolError": "the connection was lost",
    }.get(type(error).__name__, type(error).__name__)

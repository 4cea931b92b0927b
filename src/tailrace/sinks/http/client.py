"""One POST and its outcome: delivered, worth another try, or a matter for a person.

Nothing of an answer's body and none of the request's headers goes into an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import urllib3
from urllib3.exceptions import HTTPError, SSLError

from tailrace.model.errors import ConfigError, NeedsOperator
from tailrace.model.secret import Secret, mask_url
from tailrace.sinks.http.config import HttpConfig
from tailrace.sinks.retry_after import seconds_of

_RETRY = frozenset({408, 425, 429})
_REMEDIES = {
    401: "check the credentials in the sink's headers",
    403: "check the credentials in the sink's headers and what they permit",
    404: "check the sink's url",
    405: "check the sink's url: it must accept POST",
    413: "lower max_batch_bytes of the sink",
    415: "let the receiver accept application/x-ndjson",
}


@dataclass(frozen=True)
class Again:
    """A passing fault: what it was, and how long the server asked to wait."""

    reason: str
    after: float | None = None


class HttpClient:
    """Posts to one URL, certificates verified, redirects not followed."""

    def __init__(self, config: HttpConfig) -> None:
        self.place = f"POST {mask_url(config.url)}"
        try:
            parsed = urllib3.util.parse_url(config.url)
        except HTTPError:
            parsed = None
        if parsed is None or parsed.scheme not in ("http", "https") or not parsed.host:
            raise ConfigError(
                "the url of the http sink is not an http or https URL", remedy='url = "https://…"'
            )
        self._url = config.url
        self._headers = _revealed(config.headers)
        self._pool = urllib3.PoolManager(
            num_pools=1,
            retries=False,
            timeout=urllib3.Timeout(connect=config.timeout, read=config.timeout),
            cert_reqs="CERT_REQUIRED",
            ca_certs=config.ca_file,
        )

    def post(self, body: bytes, key: str) -> Again | None:
        """None once a 2xx came; `Again` where another try may help; NeedsOperator otherwise."""
        headers = self._headers | {"Content-Type": "application/x-ndjson", "Idempotency-Key": key}
        try:
            response = self._pool.request(
                "POST", self._url, body=body, headers=headers, redirect=False, preload_content=False
            )
            status = int(response.status)
            asked = seconds_of(response.headers.get("Retry-After"))
            try:
                # Read a short answer so that the connection can serve again; give up on a long one.
                response.read(65536)
                if response.read(1):
                    response.close()
            finally:
                response.release_conn()
        except SSLError:
            raise NeedsOperator(
                "the server's certificate could not be verified",
                remedy="renew the certificate, or set ca_file to the authority that signed it",
                place=self.place,
            ) from None
        except HTTPError as error:
            return Again(type(error).__name__)
        if 200 <= status < 300:
            return None
        if status in _RETRY or status >= 500:
            return Again(f"status {status}", asked)
        if 300 <= status < 400:
            raise NeedsOperator(
                f"the server answered {status}: redirects are not followed",
                remedy="set the sink's url to the address the server redirects to",
                place=self.place,
            )
        raise NeedsOperator(
            f"the server refused the changes with status {status}",
            remedy=_REMEDIES.get(status, "look at the receiver's log for the reason"),
            place=self.place,
        )

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()


def _revealed(headers: Mapping[str, str | Secret]) -> dict[str, str]:
    shown = {name: v.reveal() if isinstance(v, Secret) else v for name, v in headers.items()}
    for name, value in shown.items():
        try:
            name.encode("ascii")
            value.encode("latin-1")
        except UnicodeEncodeError:
            value = "\n"  # noqa: PLW2901
        if not name or any(c in name + value for c in "\r\n\0"):
            raise ConfigError(
                f"the header {name!r} of the http sink cannot be sent", remedy="check its characters"
            )
    return shown

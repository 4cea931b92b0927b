"""Settings of the HTTP sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tailrace.model.secret import Secret


@dataclass(frozen=True)
class HttpConfig:
    """`url` receives POSTs. `headers` are sent with each; a value that is a secret is a `Secret`.

    A body has at most `max_batch_bytes`, or one line where a line is longer. A request may take `timeout`
    seconds without an answer. One `write` retries for at most `max_elapsed` seconds, waiting at random up to
    `backoff` seconds, doubled each time up to `max_backoff`, or what the server's Retry-After says. `ca_file`
    holds the certificates to trust instead of the system's.
    """

    url: str
    headers: Mapping[str, str | Secret] = field(default_factory=dict, repr=False)
    max_batch_bytes: int = 1024 * 1024
    timeout: float = 30.0
    max_elapsed: float = 300.0
    backoff: float = 0.5
    max_backoff: float = 30.0
    ca_file: str | None = None

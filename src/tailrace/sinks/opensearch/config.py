"""Settings of the OpenSearch sink."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tailrace.config.references import expand
from tailrace.model.secret import MASK

HOUR = 3_600.0
MIB = 1024 * 1024


class Credential:
    """A secret that is sent with requests. It travels as the reference that was written: `${NAME}`.

    Where nothing but the value is known it does not travel: it pickles as its mask.
    """

    __slots__ = ("_reference", "_value")

    def __init__(self, value: str | None = None, *, reference: str | None = None) -> None:
        self._value, self._reference = value, reference

    @property
    def travels(self) -> bool:
        """Whether another process can find the value out."""
        return self._reference is not None

    def reveal(self) -> str:
        """The value itself, for the one call that needs it."""
        if self._value is None:
            return expand(self._reference or "", os.environ)
        return self._value

    def __repr__(self) -> str:
        return f"Credential({MASK!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_referring, (self._reference,)) if self._reference is not None else (Credential, (MASK,))


def _referring(reference: str) -> Credential:
    return Credential(reference=reference)


@dataclass(frozen=True)
class OpenSearchConfig:
    """`url` is a node, a balancer, or a proxy with a path.

    One of `username` with `password`, `api_key`, and `aws_region` (requests are signed for its service `es`)
    says who asks. `ca_file` holds the certificates to trust instead of the system's.

    A request of documents has at most `bulk_bytes` and `bulk_actions`, or one document where that is longer;
    `parallel` of them are under way at a time, compressed with `gzip`. A request may take `timeout` seconds.
    What fails is tried again until nothing succeeded for `max_elapsed` seconds, after waits at random up to
    `backoff` seconds, doubled each time up to `max_backoff`, or what Retry-After says.

    `keep` complete generations stay after another one took their place. A delete is remembered for
    `remember_deletes` seconds. `analysis`, `pipeline` and `settings` decide how an index is stored: with
    others it is filled again. `shards`, `replicas`, and settings that change nothing of what is stored are
    those of generations that are made from now on.
    """

    url: str
    username: str | None = None
    password: Credential | None = field(default=None, repr=False)
    api_key: Credential | None = field(default=None, repr=False)
    aws_region: str | None = None
    ca_file: str | None = None
    verify: bool = True
    client_cert: str | None = None
    client_key: str | None = None
    timeout: float = 60.0
    bulk_bytes: int = 8 * MIB
    bulk_actions: int = 5_000
    parallel: int = 2
    gzip: bool = False
    pipeline: str | None = None
    keep: int = 1
    remember_deletes: float = HOUR
    analysis: Literal["builtin", "icu"] = "builtin"
    shards: int = 1
    replicas: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)
    max_elapsed: float = 60.0
    backoff: float = 0.2
    max_backoff: float = 15.0

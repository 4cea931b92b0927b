"""Requests signed for AWS: Signature Version 4, over method, path, query, some headers and the body."""

from __future__ import annotations

import datetime
import hashlib
import hmac
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from tailrace.model.errors import ConfigError, Transient

_ALGORITHM = "AWS4-HMAC-SHA256"


def signed(
    method: str,
    url: str,
    body: Any,
    *,
    region: str,
    service: str = "es",
    keys: tuple[str, str, str | None],
    now: datetime.datetime | None = None,
) -> dict[str, str]:
    """The headers that make a request one of whoever has `keys`: access key, secret, and session token."""
    access, secret, token = keys
    at = (now or datetime.datetime.now(datetime.UTC)).strftime("%Y%m%dT%H%M%SZ")
    parts = urlsplit(url)
    digest = hashlib.sha256(body or b"").hexdigest()
    headers = {"host": parts.netloc, "x-amz-date": at}
    if token is not None:
        headers["x-amz-security-token"] = token
    names = ";".join(sorted(headers))
    query = "&".join(
        f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}"
        for name, value in sorted(parse_qsl(parts.query, keep_blank_values=True))
    )
    canonical = "\n".join(
        [
            method,
            # The path as it is sent, encoded once more: so for every service but S3.
            quote(parts.path or "/", safe="/-_.~"),
            query,
            *(f"{name}:{headers[name]}" for name in sorted(headers)),
            "",
            names,
            digest,
        ]
    )
    scope = f"{at[:8]}/{region}/{service}/aws4_request"
    text = "\n".join([_ALGORITHM, at, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.new(key, text.encode(), "sha256").hexdigest()
    headers["authorization"] = (
        f"{_ALGORITHM} Credential={access}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return headers


class Keys:
    """Where the keys come from: the environment, or all that botocore knows, where it is installed."""

    def __init__(self) -> None:
        self._found: Any = None

    def get(self, environ: Mapping[str, str] = os.environ) -> tuple[str, str, str | None]:
        """Access key, secret key and session token, as they are now."""
        if access := environ.get("AWS_ACCESS_KEY_ID"):
            secret = environ.get("AWS_SECRET_ACCESS_KEY", "")
            return access, secret, environ.get("AWS_SESSION_TOKEN") or None
        if self._found is None:
            self._found = self._asked()
        try:
            frozen = self._found.get_frozen_credentials()
        except Exception as error:
            # Whatever the service of the machine's role has; its words may have more than is to be shown.
            raise Transient(
                f"the AWS credentials could not be renewed: {type(error).__name__}",
                remedy="if it stays so: check the role of the machine, and the network to its service",
            ) from None
        return str(frozen.access_key), str(frozen.secret_key), frozen.token

    def _asked(self) -> Any:
        try:
            # Not among what Tailrace needs; it is there where roles of machines are used.
            import botocore.session  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            found = None
        else:
            try:
                found = botocore.session.get_session().get_credentials()
            except Exception as error:
                raise ConfigError(
                    f"the AWS credentials could not be read: {type(error).__name__}",
                    remedy="check AWS_PROFILE and the files that AWS_CONFIG_FILE and"
                    " AWS_SHARED_CREDENTIALS_FILE name",
                ) from None
        if found is None:
            raise ConfigError(
                "there are no AWS credentials to sign requests with",
                remedy="export AWS_ACCESS_KEY_ID=… and AWS_SECRET_ACCESS_KEY=…, or, for roles of machines and"
                " profiles: pip install botocore",
            )
        return found

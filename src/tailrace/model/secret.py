"""Values that must never be shown, and URLs shown without theirs."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

MASK = "***"
_REFERENCE = re.compile(r"\$\{[^}]*\}")
_SECRET_PARAMETERS = frozenset(
    {"password", "passwd", "pwd", "token", "secret", "sslpassword", "apikey", "api_key"}
)


class Secret:
    """A string that shows itself as `***` everywhere; `reveal()` is the only way to the value.

    It pickles as its mask: what travels to executors carries a reference to the secret (the name of an
    environment variable), never the secret.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value itself, for the one call that needs it."""
        return self._value

    def __repr__(self) -> str:
        return "Secret('***')"

    def __str__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return format(MASK, spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(("Secret", self._value))

    def __reduce__(self) -> tuple[Any, ...]:
        return (Secret, (MASK,))


def mask_url(url: str) -> str:
    """The URL with its password and secret parameters masked, found by parsing."""
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return MASK
    secret = any(name.lower() in _SECRET_PARAMETERS for name, _ in query)
    if "@" not in parts.netloc and not secret:
        return url
    userinfo, at, host = parts.netloc.rpartition("@")
    user, colon, _ = userinfo.partition(":")
    netloc = f"{user}{':' + MASK if colon else ''}{at}{host}"
    shown = parts.query
    if secret:
        masked = [(name, MASK if name.lower() in _SECRET_PARAMETERS else value) for name, value in query]
        shown = urlencode(masked, safe="*/:", quote_via=quote)
    return urlunsplit((parts.scheme, netloc, parts.path, shown, parts.fragment))


def holds_secret(url: str) -> bool:
    """Whether a URL has a password or secret parameter written out, and not as a reference like `${NAME}`."""
    bare = _REFERENCE.sub("", url)
    try:
        parts = urlsplit(bare)
        query = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return True
    userinfo = parts.netloc.rpartition("@")[0]
    return bool(userinfo.partition(":")[2]) or any(
        value and name.lower() in _SECRET_PARAMETERS for name, value in query
    )

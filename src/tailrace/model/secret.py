"""Values that must never be shown, and URLs shown without theirs."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

MASK = "***"
_REFERENCE = re.compile(r"\$\{[^}]*\}")
_SECRET_PARAMETERS = frozenset(
    {"password", "passwd", "pwd", "token", "secret", "sslpassword", "apikey", "api_key"}
    | {"scram_client_key", "scram_server_key", "oauth_client_secret"}
)
_ENDS_AUTHORITY = re.compile("[/?#]")


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
    scheme, separator, _ = url.partition("://")
    userinfo, rest = _userinfo(url)
    user, colon, _ = userinfo.partition(":")
    try:
        urlsplit(url)
        pairs = _parameters(rest)
    except ValueError:
        return MASK
    if any(name.lower() in _SECRET_PARAMETERS for name, _ in pairs):
        masked = [(name, MASK if name.lower() in _SECRET_PARAMETERS else value) for name, value in pairs]
        rest = f"{rest.partition('?')[0]}?{urlencode(masked, safe='*/:', quote_via=quote)}"
    if not userinfo:
        return rest
    return f"{scheme}{separator}{user}{':' + MASK if colon else ''}@{rest}"


def holds_secret(url: str) -> bool:
    """Whether a URL has a password or secret parameter written out, and not as a reference like `${NAME}`."""
    userinfo, rest = _userinfo(_REFERENCE.sub("", url))
    try:
        pairs = _parameters(rest)
    except ValueError:
        return True
    return bool(userinfo.partition(":")[2]) or any(
        value and name.lower() in _SECRET_PARAMETERS for name, value in pairs
    )


def _userinfo(url: str) -> tuple[str, str]:
    """What may be user and password, and the rest of the URL; all of it is the rest where there is no user.

    A password may have characters in it that a URL's grammar ends it at, and some clients take it so (libpq
    does with `?` and `#`): whatever may be part of one counts as such.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or not scheme.replace("+", "").isalnum():
        return "", url
    authority = _ENDS_AUTHORITY.split(rest, maxsplit=1)[0]
    after = rest[len(authority) :]
    path, _, query = after.partition("?")
    cut = "@" in path or any("@" in pair.partition("=")[0] for pair in query.split("&"))
    if "@" not in authority:
        cut = ":" in authority and (cut or ("@" in after and not path.startswith("/")))
        if not cut:
            return "", url
    at = (rest if cut else authority).rindex("@")
    return rest[:at], rest[at + 1 :]


def _parameters(rest: str) -> list[tuple[str, str]]:
    """Everything behind the `?`: to libpq a `#` is a character like others."""
    return parse_qsl(rest.partition("?")[2], keep_blank_values=True)

"""The kinds of sources, by the scheme of their URLs, and the words for a URL that is of none of them."""

from __future__ import annotations

from tailrace.model.errors import ConfigError

SCHEMES = ("sqlite", "postgresql", "postgres")
_LATER = {
    "mysql": "MySQL",
    "mariadb": "MariaDB",
    "sqlserver": "SQL Server",
    "mssql": "SQL Server",
}


def scheme_of(url: str) -> str:
    """The scheme, in lower case; empty where the URL has none."""
    return url.partition(":")[0].lower() if ":" in url else ""


def unknown_scheme(scheme: str) -> ConfigError:
    """The error for a URL that no capture takes."""
    known = ", ".join(f"{name}:" for name in SCHEMES)
    remedy = f"known sources: {known} (as in sqlite:shop.db, postgresql://host/shop)"
    if scheme in _LATER:
        return ConfigError(f"this version of Tailrace has no {_LATER[scheme]} capture", remedy=remedy)
    if not scheme:
        return ConfigError("a source URL begins with its kind", remedy=remedy)
    return ConfigError(f"no capture is known for {scheme}: URLs", remedy=remedy)

"""Settings of a PostgreSQL capture, and the URLs they are written as.

`postgresql://user:password@host:port/database?parameter=value`, with every parameter that libpq knows; what
the URL leaves out comes from libpq's own places: `PG*` variables, a service file, the password file. The
server's certificate and name are verified unless the server is on this machine, or the URL, `PGSSLMODE` or
the service says otherwise (`sslmode=require` encrypts without verifying).
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tailrace.capture.postgres.types import CANONICAL
from tailrace.model.errors import ConfigError, StateUnreadable
from tailrace.model.secret import Secret, mask_url
from tailrace.model.table import ColumnType

FORM = "write postgresql://user@host:5432/database"
_NUMBERS = ("timeout", "status_interval", "watch_interval", "batch_bytes", "spill_bytes", "wal_budget")
_WHOLE = ("batch_bytes", "spill_bytes", "wal_budget")
_SLOT = re.compile(r"[a-z0-9_]{1,63}")


@dataclass(frozen=True)
class PostgresConfig:
    """`dsn` is libpq's connection string; `name` is what messages call the source.

    `publication` is shared by all consumers of a database; a consumer's slot is named after it unless `slot`
    names one. `types` overrides column types: `"table.column"` → a name of `ColumnType`.
    """

    dsn: Secret
    name: str
    publication: str = "tailrace"
    slot: str | None = None
    # Without a word from the server for this long, the connection counts as dead.
    timeout: float = 60.0
    status_interval: float = 5.0
    watch_interval: float = 5.0
    batch_bytes: int = 2 * 1024 * 1024
    # What an open transaction may hold in memory before it goes to a file.
    spill_bytes: int = 16 * 1024 * 1024
    spill_directory: str | None = None
    # Retained log above which `coverage` warns.
    wal_budget: int = 10 * 1024**3
    types: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("timeout", "status_interval", "watch_interval", "batch_bytes", "spill_bytes"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be more than 0")
        if not self.publication or "\0" in self.publication or len(self.publication.encode()) > 63:
            raise ConfigError("publication must be a name of 1 to 63 bytes")
        if self.slot is not None and not _SLOT.fullmatch(self.slot):
            raise ConfigError("slot must be 1 to 63 of a-z, 0-9 and _")
        for column, name in self.types.items():
            try:
                _ = ColumnType(name).arrow
            except StateUnreadable:
                raise ConfigError(f"types: {column} has the unknown type {name!r}") from None

    @classmethod
    def from_url(cls, url: str, options: Mapping[str, object] | None = None) -> PostgresConfig:
        """The settings that a URL and its options mean. Opens nothing."""
        if url.partition(":")[0].lower() not in ("postgres", "postgresql"):
            raise ConfigError("not a PostgreSQL URL", remedy=FORM)
        try:
            given = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
        except ProgrammingError as error:
            # libpq quotes the URL in its message, the password with it.
            reason = str(error).partition(":")[0]
            raise ConfigError(f"libpq does not understand the URL ({reason})", remedy=FORM) from None
        if "replication" in given:
            raise ConfigError("a source URL has no parameter replication", remedy="leave it out")
        known = {f.name for f in fields(cls)} - {"dsn", "name"}
        values: dict[str, object] = {}
        for name, value in (options or {}).items():
            if name not in known:
                raise ConfigError(
                    f"unknown option {name!r} of a PostgreSQL source",
                    remedy=f"use one of {', '.join(sorted(known))}",
                )
            values[name] = _value(name, value)
        dsn = make_conninfo(**_completed(given, os.environ))
        return cls(Secret(dsn), mask_url(url.partition("?")[0]), **values)  # type: ignore[arg-type]


def _completed(given: dict[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The parameters with our defaults, none of which overrides what someone said."""
    service = _service(given.get("service") or environ.get("PGSERVICE"), environ)
    made = {
        "application_name": "tailrace",
        "connect_timeout": "10",
        "keepalives_idle": "30",
        "keepalives_interval": "10",
        "keepalives_count": "3",
        "tcp_user_timeout": "60000",
        "client_encoding": "UTF8",
    }
    made = {name: value for name, value in made.items() if name not in service}
    if "PGCONNECT_TIMEOUT" in environ:
        del made["connect_timeout"]
    if "PGAPPNAME" in environ:
        made.pop("application_name", None)
    made.update(given)
    said = "sslmode" in given or "sslmode" in service or "PGSSLMODE" in environ
    if not said and not _local(given, service, environ):
        made["sslmode"] = "verify-full"
        roots = "sslrootcert" in given or "sslrootcert" in service or "PGSSLROOTCERT" in environ
        if not roots and not Path("~/.postgresql/root.crt").expanduser().exists():
            made["sslrootcert"] = "system"
    settings = " ".join(f"-c {name}={_escaped(value)}" for name, value in CANONICAL.items())
    asked = given.get("options") or service.get("options") or environ.get("PGOPTIONS") or ""
    made["options"] = f"{asked} {settings}".strip()
    return made


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


def _local(given: Mapping[str, str], service: Mapping[str, str], environ: Mapping[str, str]) -> bool:
    """Whether the server is on this machine: a socket, or a loopback address."""
    named = given.get("hostaddr") or given.get("host")
    named = named or service.get("hostaddr") or service.get("host")
    named = named or environ.get("PGHOSTADDR") or environ.get("PGHOST") or ""
    return all(_loopback(host.strip()) for host in named.split(","))


def _loopback(host: str) -> bool:
    if not host or host.startswith(("/", "@")) or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _service(name: str | None, environ: Mapping[str, str]) -> dict[str, str]:
    """What a service file says, as far as our defaults depend on it; libpq itself reads the rest."""
    if not name:
        return {}
    places = [environ.get("PGSERVICEFILE") or "~/.pg_service.conf"]
    if system := environ.get("PGSYSCONFDIR"):
        places.append(f"{system}/pg_service.conf")
    for place in places:
        try:
            lines = Path(place).expanduser().read_text().splitlines()
        except (OSError, UnicodeDecodeError):
            continue
        found: dict[str, str] = {}
        section = None
        for line in map(str.strip, lines):
            if line.startswith("["):
                section = line.strip("[]")
            elif section == name and "=" in line and not line.startswith("#"):
                key, _, value = line.partition("=")
                if key.strip() != "password":
                    found[key.strip()] = value.strip()
        if found:
            return found
    return {}


def _value(name: str, value: object) -> object:
    if name in _NUMBERS:
        kind = int if name in _WHOLE else float
        if not isinstance(value, bool) and isinstance(value, int | float | str):
            try:
                return kind(value)
            except ValueError:
                pass
        raise ConfigError(f"option {name} must be a number")
    if name == "types":
        if isinstance(value, Mapping) and all(
            isinstance(k, str) and isinstance(v, str) for k, v in value.items()
        ):
            return dict(value)
        raise ConfigError('option types must be a table of "table.column" = "type"')
    if not isinstance(value, str):
        raise ConfigError(f"option {name} must be a text")
    return value

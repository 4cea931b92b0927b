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
# Where systems keep their authorities. The driver's own OpenSSL looks in a place that no system has.
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


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
        _readable(url, given)
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
        return cls(Secret(dsn), mask_url(url).partition("?")[0], **values)  # type: ignore[arg-type]


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
    mode = given.get("sslmode") or service.get("sslmode") or environ.get("PGSSLMODE")
    roots = given.get("sslrootcert") or service.get("sslrootcert") or environ.get("PGSSLROOTCERT")
    # The system's authorities sign for anybody: without the name they prove nothing, as libpq says too.
    if mode is None and (roots == "system" or not _local(given, service, environ)):
        mode = made["sslmode"] = "verify-full"
        if roots is None and not Path("~/.postgresql/root.crt").expanduser().exists():
            roots = "system"
    if roots == "system":
        made["sslrootcert"] = _authorities(environ) if mode == "verify-full" else roots
    settings = " ".join(f"-c {name}={_escaped(value)}" for name, value in CANONICAL.items())
    asked = given.get("options") or service.get("options") or environ.get("PGOPTIONS") or ""
    made["options"] = f"{asked} {settings}".strip()
    return made


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


def _readable(url: str, given: Mapping[str, str]) -> None:
    """ConfigError where libpq read something else out of the URL than was meant."""
    if "replication" in given:
        raise ConfigError("a source URL has no parameter replication", remedy="leave it out")
    authority, _, path = url.partition("://")[2].partition("?")[0].partition("/")
    ports = [port.strip() for port in given.get("port", "").split(",")]
    cut = "@" in given.get("host", "") or (":" in authority and "@" in path)
    if cut or not all(port.isdigit() for port in ports if port):
        # A part of the password stands where host or port belong, so neither is shown.
        raise ConfigError(
            "the URL's password has a character in it that ends a password in a URL",
            remedy="write @ / ? # : % in it as %40 %2F %3F %23 %3A %25, or give it by PGPASSWORD or the "
            "password file, where it stands as it is",
        )


def _authorities(environ: Mapping[str, str]) -> str:
    """The system's authorities, as libpq is told of them."""
    if "SSL_CERT_FILE" in environ or "SSL_CERT_DIR" in environ:
        return "system"
    return next((bundle for bundle in _BUNDLES if Path(bundle).exists()), "system")


def _local(given: Mapping[str, str], service: Mapping[str, str], environ: Mapping[str, str]) -> bool:
    """Whether the server is on this machine: a socket, or a loopback address, and no other name for it."""
    named = (
        given.get(name) or service.get(name) or environ.get(f"PG{name.upper()}") or ""
        for name in ("host", "hostaddr")
    )
    return all(_loopback(host.strip()) for hosts in named for host in hosts.split(","))


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

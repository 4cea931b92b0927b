"""What stops a connection for good, by libpq's words, and what to do about each.

Text, because a refused connection has no SQLSTATE. Whatever is not found here counts as passing and is tried
again; a server that speaks another language makes that of everything.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from tailrace.model.table import quote

_TRUST = "give the server's authority by sslrootcert=… in the URL; see that the certificate has not expired"
_HBA = "allow this user, address and way in pg_hba.conf, then SELECT pg_reload_conf()"
_CERTIFICATE = "give the client's certificate and key by sslcert=… and sslkey=… in the URL"
_NONE_GIVEN = "give the password by PGPASSWORD, the password file, or ${NAME} in the URL"
_REFUSED = (
    ("password authentication failed", "correct the user of the URL and its password"),
    ("no password supplied", _NONE_GIVEN),
    ("no pg_hba.conf entry", _HBA),
    ("pg_hba.conf rejects", _HBA),
    ("certificate verify failed", _TRUST),
    ("root certificate file", _TRUST),
    ("could not load system root", _TRUST),
    ("does not match host name", "connect by a name of the server's certificate"),
    ("server does not support SSL", "configure TLS on the server, or say sslmode=disable in the URL"),
    ("has group or world access", "chmod 600 on the file of sslkey"),
    ("must be owned by", "chown the file of sslkey to the user of this process"),
    ("could not load private key file", _CERTIFICATE),
    ("private key file", _CERTIFICATE),
    ("could not read certificate file", _CERTIFICATE),
    ("could not open certificate file", _CERTIFICATE),
    ("requires a valid client certificate", _CERTIFICATE),
    ("alert unknown ca", "let the server's ssl_ca_file have the authority of the client's certificate"),
    ("certificate authentication failed", "the certificate's common name must be the user of the URL"),
    ("authentication failed for user", "correct the user of the URL, or the line in pg_hba.conf"),
    ("channel binding", "TLS and scram-sha-256 on the server, or channel_binding=prefer in the URL"),
    ("authentication method requirement", "change the line in pg_hba.conf, or require_auth in the URL"),
    ("definition of service", "correct the service's name, or its file"),
    ("service file", "correct the service's name, or its file"),
    ("may not be used with sslrootcert=system", "say sslmode=verify-full, or leave sslmode out"),
    ("for connection option", "correct the parameters of the URL and the PG* variables"),
)
_INVALID = re.compile(r"\binvalid [a-z_]+ value\b")
_EACH = " All failures were: "


def remedy(told: str, given: Mapping[str, str]) -> str | None:
    """What to do about a refused connection; None where it may pass. `given` are libpq's parameters."""
    _, several, attempts = told.partition(_EACH)
    if several:
        # One of several servers that only rests may be the right one.
        found = [_remedy(attempt, given) for attempt in attempts.split("- host: ")[1:]]
        return "; ".join(dict.fromkeys(filter(None, found))) if found and all(found) else None
    return _remedy(told, given)


def _remedy(told: str, given: Mapping[str, str]) -> str | None:
    user = given.get("user") or os.environ.get("PGUSER")
    role = quote(user) if user else "…"
    if "no password supplied" in told and (open_file := _open_password_file(given)) is not None:
        return f"chmod 600 {open_file}: libpq ignores a password file that others may read"
    if "replication role" in told or "permission denied to start WAL sender" in told:
        return f"ALTER ROLE {role} REPLICATION"
    if "not permitted to log in" in told:
        return f"ALTER ROLE {role} LOGIN"
    if (denied := re.search(r'permission denied for database "(.*?)"( |$)', told)) is not None:
        return f"GRANT CONNECT ON DATABASE {quote(denied[1])} TO {role}"
    for words, what in _REFUSED:
        if words in told:
            return what
    if "does not exist" in told and ('database "' in told or 'role "' in told):
        return f"correct the {'database' if 'database ' in told else 'user'} in the URL"
    return "correct the parameters of the URL and the PG* variables" if _INVALID.search(told) else None


def _open_password_file(given: Mapping[str, str]) -> Path | None:
    """The password file, if there is one that libpq ignores because of its mode."""
    named = given.get("passfile") or os.environ.get("PGPASSFILE")
    path = Path(named) if named else Path("~/.pgpass").expanduser()
    try:
        found = path.stat()
    except OSError:
        return None
    return path if stat.S_ISREG(found.st_mode) and found.st_mode & 0o077 else None

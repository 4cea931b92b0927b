"""Connections to the server, and its errors in Tailrace's words.

`connect` opens one; `session` is a short-lived one for a question or two. Everything that talks to the server
does so inside `translated`, so that no error of the driver leaves this folder: a fault that passes is
Transient, anything else says what to do. libpq's messages name hosts and roles, never a password; the
password is looked for all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tailrace.capture.postgres import refusals
from tailrace.capture.postgres.config import PostgresConfig
from tailrace.model.errors import ConfigError, NeedsOperator, TailraceError, Transient
from tailrace.model.secret import MASK

Connection = psycopg.Connection[tuple[Any, ...]]

_SECRET = ("password", "sslpassword", "oauth_client_secret")
_PASSING = ("08", "53", "57", "40", "58")


def connect(config: PostgresConfig, *, replication: bool = False) -> Connection:
    """A connection in autocommit mode, its session canonical (see `types.CANONICAL`)."""
    extra: dict[str, Any] = {"replication": "database"} if replication else {}
    with translated(config):
        return psycopg.connect(config.dsn.reveal(), autocommit=True, **extra)


@contextmanager
def session(config: PostgresConfig) -> Iterator[Connection]:
    """A connection for as long as the block runs."""
    connection = connect(config)
    try:
        with translated(config):
            yield connection
    finally:
        connection.close()


@contextmanager
def translated(config: PostgresConfig) -> Iterator[None]:
    """The driver's errors become Tailrace's."""
    try:
        yield
    except psycopg.Error as error:
        told = translate(config, error)
        # Behind the driver's error is the connection, and its password for whoever prints all he finds.
        error._pgconn = None
        raise told from None


def translate(config: PostgresConfig, error: psycopg.Error) -> TailraceError:
    """What a driver's error means."""
    state = error.sqlstate
    raw = error.diag.message_primary or str(error)
    told = clean(config, raw)
    if state is None:
        return refusal(config, raw)
    if state.startswith(_PASSING):
        return Transient(f"{config.name}: {told}")
    if state.startswith("28"):
        return ConfigError(f"{config.name}: {told}", remedy="correct the user and password of the URL")
    if state == "3D000":
        return ConfigError(f"{config.name}: {told}", remedy="correct the database in the URL")
    if state == "42501":
        return NeedsOperator(f"{config.name}: {told}", remedy="`tailrace check` prints the GRANT")
    return NeedsOperator(f"{config.name}: {told} (SQLSTATE {state})")


def refusal(config: PostgresConfig, raw: str) -> TailraceError:
    """What a lost or refused connection means, by libpq's words, which a password may be one of."""
    told = clean(config, raw)
    given = {name: str(value) for name, value in _given(config).items()}
    remedy = refusals.remedy(" ".join(raw.split()), given)
    if remedy is not None:
        return ConfigError(f"{config.name}: {told}", remedy=remedy)
    return Transient(f"{config.name}: {told}")


def clean(config: PostgresConfig, text: str) -> str:
    """The message on one line, without a password."""
    line = " ".join(text.split())
    for name, value in _given(config).items():
        if name in _SECRET and value:
            line = line.replace(str(value), MASK)
    return line


def _given(config: PostgresConfig) -> dict[str, Any]:
    return dict(conninfo_to_dict(config.dsn.reveal()))

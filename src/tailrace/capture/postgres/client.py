"""Connections to the server, and its errors in Tailrace's words.

`connect` opens one; `session` is a short-lived one for a question or two. Everything that talks to the server
does so inside `translated`, so that no error of the driver leaves this folder: a fault that passes is
Transient, anything else says what to do. libpq's messages name hosts and roles, never a password; the
password is looked for all the same.

No wait for the server is without an end. After `timeout` seconds without a word from it a connection is
closed and the call fails (`NoAnswer`). Work that may rightly take longer is for a `patient` connection: there
a second one asks whether the server still is at it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import psycopg
from psycopg import generators, pq
from psycopg.abc import RV, PQGen
from psycopg.conninfo import conninfo_to_dict, timeout_from_conninfo

from tailrace.capture.postgres import refusals
from tailrace.capture.postgres.config import PostgresConfig
from tailrace.model.errors import ConfigError, NeedsOperator, TailraceError, Transient
from tailrace.model.secret import MASK

_SECRET = ("password", "sslpassword", "oauth_client_secret")
_PASSING = ("08", "53", "57", "40", "58")


class NoAnswer(Transient):
    """The server was silent for as long as one may be."""


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that is closed rather than waited for without an end."""

    config: PostgresConfig
    patient = False
    # Set by another thread to end whatever this one waits for.
    abandoned = False

    def governed(self, config: PostgresConfig, patient: bool) -> Self:
        """The same, with the patience it shall have."""
        self.config, self.patient = config, patient
        return self

    def wait(self, gen: PQGen[RV], *args: Any, **named: Any) -> RV:
        """The driver's own, which looks up every tenth of a second."""
        try:
            return super().wait(self._limited(gen), *args, **named)
        except TailraceError:
            # What comes over it later would answer the wrong question.
            self.close()
            raise

    def _limited(self, gen: PQGen[RV]) -> PQGen[RV]:
        heard = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready or not self._overdue(time.monotonic() - heard):
                    heard = time.monotonic() if ready else heard
                else:
                    still_there(self.config, self.pgconn.backend_pid)
                    heard = time.monotonic()
                wanted = gen.send(ready)
        except StopIteration as end:
            result: RV = end.value
            return result

    def _overdue(self, silence: float) -> bool:
        """Whether to ask another connection about the server; NoAnswer where that is out of the question."""
        if self.abandoned:
            raise NoAnswer(f"{self.config.name}: the question was given up")
        if silence < self.config.timeout:
            return False
        if not self.patient:
            raise no_answer(self.config, silence)
        return True


def no_answer(config: PostgresConfig, silence: float) -> NoAnswer:
    """The error of a server that is silent for so many seconds."""
    return NoAnswer(f"{config.name}: the server has not answered for {silence:.0f} seconds")


def still_there(config: PostgresConfig, process: int) -> None:
    """Transient unless the server answers and still works for us."""
    with session(config) as other:
        found = other.execute("SELECT FROM pg_catalog.pg_stat_activity WHERE pid = %s", (process,)).fetchone()
    if found is None:
        raise Transient(f"{config.name}: the server forgot what it was asked")


def connect(config: PostgresConfig, *, replication: bool = False, patient: bool = False) -> Connection:
    """A connection in autocommit mode, its session canonical (see `types.CANONICAL`)."""
    extra: dict[str, Any] = {"replication": "database"} if replication else {}
    with translated(config):
        patience = min(timeout_from_conninfo(_given(config)), math.ceil(config.timeout))
        made = Connection.connect(config.dsn.reveal(), autocommit=True, connect_timeout=patience, **extra)
        return made.governed(config, patient)


@contextmanager
def session(config: PostgresConfig, *, patient: bool = False) -> Iterator[Connection]:
    """A connection for as long as the block runs."""
    connection = connect(config, patient=patient)
    try:
        with translated(config):
            yield connection
    finally:
        connection.close()


def command(connection: Connection, text: bytes) -> pq.abc.PGresult:
    """The result of a command of the replication protocol, good or bad."""
    connection.pgconn.send_query(text)
    results: list[pq.abc.PGresult] = connection.wait(generators.execute(connection.pgconn))
    return results[-1]


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

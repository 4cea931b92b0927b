"""A consumer's replication slot: its name, its state, and what is wrong with it.

A slot's name is the consumer's behind `tailrace_`, with `__` for `_` and `_` and two hex digits for any other
byte that a slot's name may not have; so the consumers of a database can be read off its slots.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from psycopg import errors, sql

from tailrace.capture.contract import Finding
from tailrace.capture.postgres.client import Connection
from tailrace.capture.postgres.config import PostgresConfig
from tailrace.capture.postgres.messages import lsn_text
from tailrace.model.errors import ConfigError, IdentityMismatch, LogLost, SetupMissing, Transient

PREFIX = "tailrace_"
PLUGIN = "pgoutput"
_CREATE_SECONDS = 60
_ESCAPE = re.compile("_(_|[0-9a-f]{2})")
_END = "SELECT (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::int8"
_WRITTEN = """
SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8,
       current_setting('wal_block_size')::int8, pg_size_bytes(current_setting('wal_segment_size'))
"""
_PAGE_HEADER, _SEGMENT_HEADER = 24, 40
_SLOTS = """
SELECT slot_name, plugin, slot_type, database, active_pid, wal_status,
       (restart_lsn - '0/0'::pg_lsn)::int8, (confirmed_flush_lsn - '0/0'::pg_lsn)::int8,
       (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END
        - restart_lsn)::int8, database = current_database(),
       to_jsonb(s) ->> 'invalidation_reason' -- since 17
FROM pg_catalog.pg_replication_slots s
"""


@dataclass(frozen=True)
class Slot:
    """A slot as the server has it. `retained` is the log it makes the server keep, in bytes."""

    name: str
    plugin: str | None
    kind: str
    database: str | None
    active_pid: int | None
    wal_status: str | None
    restart: int | None
    confirmed: int | None
    retained: int | None
    here: bool | None
    reason: str | None = None

    @property
    def lost(self) -> bool:
        """Whether the server has thrown away log that the slot still needed."""
        return self.wal_status == "lost" or (self.restart is None and self.active_pid is None)


def slot_name(config: PostgresConfig, consumer: str) -> str:
    """The slot of a consumer."""
    if config.slot is not None:
        return config.slot
    encoded = []
    for byte in consumer.encode():
        letter = chr(byte)
        if letter == "_":
            encoded.append("__")
        elif letter.isascii() and (letter.isdigit() or letter.islower()):
            encoded.append(letter)
        else:
            encoded.append(f"_{byte:02x}")
    name = PREFIX + "".join(encoded)
    if len(name) > 63 or name == PREFIX:
        raise ConfigError(
            f"the consumer's name does not fit a slot's, which has at most 63 letters: {name}",
            remedy="choose a shorter name for the consumer, or name a slot with the option slot",
        )
    return name


def consumer_of(slot: str) -> str | None:
    """The consumer that a slot belongs to; None where the name is not one of ours."""
    if not slot.startswith(PREFIX):
        return None
    encoded = slot.removeprefix(PREFIX)
    if "_" in _ESCAPE.sub("", encoded):
        return None
    raw = re.sub(
        _ESCAPE,
        lambda match: "_" if match[1] == "_" else chr(int(match[1], 16)),
        encoded,
    )
    try:
        return raw.encode("latin-1").decode()
    except UnicodeDecodeError:
        return None


def find(connection: Connection, name: str) -> Slot | None:
    """The slot of that name, if there is one."""
    row = connection.execute(f"{_SLOTS} WHERE slot_name = %s", (name,)).fetchone()
    return None if row is None else Slot(*row)


def ours(connection: Connection, config: PostgresConfig) -> list[Slot]:
    """The slots of Tailrace in this database."""
    rows = connection.execute(f"{_SLOTS} WHERE database = current_database() ORDER BY slot_name").fetchall()
    slots = [Slot(*row) for row in rows]
    return [s for s in slots if s.name == config.slot or consumer_of(s.name) is not None]


def checked(slot: Slot, connection: Connection) -> Slot:
    """The slot, if it is one of ours and whole."""
    if slot.kind != "logical" or slot.plugin != PLUGIN or not slot.here:
        belongs = "is physical" if slot.kind != "logical" else f"decodes by {slot.plugin}"
        if slot.kind == "logical" and not slot.here:
            belongs = f"belongs to database {slot.database}"
        raise IdentityMismatch(
            f"the replication slot {slot.name} {belongs}: it is not this pipeline's",
            remedy="give the pipeline another consumer name, or drop the slot if nobody needs it: "
            f"SELECT pg_drop_replication_slot('{slot.name}')",
        )
    if slot.confirmed is None and slot.active_pid is not None:
        raise Transient(f"the replication slot {slot.name} is being made by another process")
    if slot.lost:
        raise LogLost(
            f"the replication slot {slot.name} is invalid: {_why(slot, connection)}; "
            f"from {_first(connection)} on it has all",
            remedy=LogLost.ANEW,
        )
    return slot


def risks(slot: Slot, config: PostgresConfig) -> list[Finding]:
    """What the slot has lost, is about to lose, or makes the server keep beyond the budget."""
    remedy = f"run the pipeline, or drop the slot: SELECT pg_drop_replication_slot('{slot.name}')"
    if slot.lost:
        message = f"replication slot {slot.name} is invalid: log it needs is gone"
        return [Finding("error", "slot_lost", message, None, remedy)]
    if slot.wal_status == "unreserved":
        message = f"replication slot {slot.name} is about to lose log it needs (wal_status unreserved)"
        return [Finding("warning", "slot_at_risk", message, None, remedy)]
    if slot.retained is not None and slot.retained > config.wal_budget:
        message = (
            f"replication slot {slot.name} makes the server keep {slot.retained >> 20} MiB of log, "
            f"the budget is {config.wal_budget >> 20} MiB"
        )
        return [Finding("warning", "wal_budget", message, None, remedy)]
    return []


def end(connection: Connection) -> int:
    """Where the log ends that can be read now."""
    (version,) = connection.execute(_END).fetchone() or (0,)
    return int(version)


def missing(name: str) -> LogLost:
    """The error of a consumer whose slot is gone."""
    return LogLost(
        f"there is no replication slot {name}: the server kept no log for this pipeline",
        remedy=LogLost.ANEW,
    )


def create(connection: Connection, name: str) -> Slot:
    """A new slot. It begins when the transactions that run now have ended, and waits for them."""
    try:
        with connection.transaction():
            connection.execute(f"SET LOCAL statement_timeout = '{_CREATE_SECONDS}s'")
            connection.execute(_creation(connection, name))
    except errors.DuplicateObject:
        pass
    except errors.QueryCanceled:
        raise Transient(
            f"the replication slot {name} cannot begin: a transaction has been running for more than "
            f"{_CREATE_SECONDS} seconds",
            remedy="end it: SELECT pid, xact_start, query FROM pg_stat_activity ORDER BY xact_start",
        ) from None
    except errors.ConfigurationLimitExceeded:
        raise SetupMissing(
            "the server has no free replication slot",
            remedy="raise max_replication_slots and restart the server, or drop a slot nobody needs",
        ) from None
    except errors.InsufficientPrivilege:
        (user,) = connection.execute("SELECT current_user").fetchone() or ("",)
        role = sql.Identifier(user).as_string(connection)
        raise SetupMissing(
            "this role may not create a replication slot", remedy=f"ALTER ROLE {role} REPLICATION"
        ) from None
    except errors.ObjectNotInPrerequisiteState:
        raise SetupMissing(
            "the server's wal_level is not logical",
            remedy="ALTER SYSTEM SET wal_level = logical; then restart the server",
        ) from None
    made = find(connection, name)
    if made is None:
        raise Transient(f"the replication slot {name} was dropped while it was created")
    return checked(made, connection)


def _creation(connection: Connection, name: str) -> sql.Composed:
    """With failover slots where the server has them, so that a promoted standby can have ours too."""
    more = ", failover => true" if connection.info.server_version >= 170000 else ""
    return sql.SQL("SELECT pg_create_logical_replication_slot({}, {}" + more + ")").format(
        sql.Literal(name), sql.Literal(PLUGIN)
    )


def drop(connection: Connection, name: str) -> bool:
    """Drop the slot; whether there was one."""
    try:
        connection.execute("SELECT pg_drop_replication_slot(%s)", (name,))
    except errors.UndefinedObject:
        return False
    except errors.ObjectInUse:
        raise Transient(
            f"the replication slot {name} is in use", remedy="stop the pipeline that reads it first"
        ) from None
    return True


def advance(connection: Connection, slot: Slot, version: int) -> None:
    """Move an idle slot on."""
    try:
        connection.execute(
            "SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", (slot.name, lsn_text(version))
        )
    except errors.ObjectInUse:
        raise Transient(f"the replication slot {slot.name} is in use") from None


def peek(connection: Connection, config: PostgresConfig, name: str, version: int) -> set[int] | None:
    """The transactions that the slot would send up to `version`; None while someone reads it."""
    published = sql.Identifier(config.publication).as_string(connection)
    # What the slot would send is written in the session's encoding, also where nobody reads it.
    plain = connection.info.parameter_status("server_encoding") == "SQL_ASCII"
    try:
        if plain:
            connection.execute("SET client_encoding TO 'SQL_ASCII'")
        rows = connection.execute(
            "SELECT DISTINCT xid::text::int8 FROM pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, NULL,"
            " 'proto_version', '1', 'publication_names', %s)",
            (name, lsn_text(version), published),
        ).fetchall()
    except errors.ObjectInUse:
        return None
    finally:
        if plain:
            connection.execute("RESET client_encoding")
    return {xid for (xid,) in rows}


def written(connection: Connection) -> int:
    """Where the log ends, written out or not."""
    row = connection.execute(_WRITTEN).fetchone()
    if row is None:
        return 0
    version, page, segment = row
    # Where a record ends with a page, this is told as the place of the next one, behind the header of a page
    # that is not there yet: nothing ever comes up to it while nobody writes.
    if version % segment == _SEGMENT_HEADER:
        return int(version - _SEGMENT_HEADER)
    return int(version - _PAGE_HEADER if version % page == _PAGE_HEADER else version)


def _why(slot: Slot, connection: Connection) -> str:
    if slot.reason == "idle_timeout":
        limit = _setting(connection, "idle_replication_slot_timeout")
        return f"nobody read it for longer than idle_replication_slot_timeout, which is {limit}"
    if slot.reason not in (None, "wal_removed"):
        return f"the server gave it up ({slot.reason})"
    limit = _setting(connection, "max_slot_wal_keep_size")
    return f"the server removed log it still needed (max_slot_wal_keep_size is {limit})"


def _first(connection: Connection) -> str:
    """The oldest position that the server surely has: it needs the log since its last checkpoint itself."""
    (position,) = connection.execute("SELECT redo_lsn::text FROM pg_control_checkpoint()").fetchone() or ("",)
    return str(position)


def _setting(connection: Connection, name: str) -> str:
    (value,) = connection.execute("SELECT current_setting(%s)", (name,)).fetchone() or ("",)
    return str(value)

"""The stream position inside a checkpoint, source by source: what it holds, and what is refused by name.

Pure functions from what a state file held to a payload that can be trusted. Each source has its own names
for where it stands; a field that is missing or impossible is StateUnreadable with the field's name, never a
guess.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tailrace.model.errors import StateUnreadable
from tailrace.model.position import MAX_VERSION, Position

Payload = dict[str, Any]

_REMEDY = "restore the state directory from a copy, or begin with an empty one and a new snapshot"


def _refuse(source: str, name: str, what: str) -> StateUnreadable:
    return StateUnreadable(f"{source}: `{name}` {what}", remedy=_REMEDY, place=f"checkpoint field {name}")


def _number(source: str, body: Mapping[str, Any], name: str, top: int) -> int:
    if body.get(name) is None:
        raise _refuse(source, name, "is missing")
    value = body[name]
    if isinstance(value, bool) or not isinstance(value, int):
        raise _refuse(source, name, "is not a number")
    if value < 0:
        raise _refuse(source, name, "is negative")
    if value > top:
        raise _refuse(source, name, f"is larger than {top}")
    return value


def postgres(body: Mapping[str, Any]) -> Payload:
    """`snapshot_watermark`, an unsigned 64-bit LSN. The slot comes from the configuration."""
    return {"snapshot_watermark": _number("postgres", body, "snapshot_watermark", 2**64 - 1)}


def _binlog(source: str, body: Mapping[str, Any]) -> Payload:
    file = body.get("binlog_file")
    if file is None or file == "":
        raise _refuse(source, "binlog_file", "is missing")
    if not isinstance(file, str):
        raise _refuse(source, "binlog_file", "is not a file name")
    payload: Payload = {
        "source": source,
        "binlog_file": file,
        "binlog_pos": _number(source, body, "binlog_pos", 2**32 - 1),
    }
    gtid = body.get("gtid")
    if gtid is not None:
        if not isinstance(gtid, str):
            raise _refuse(source, "gtid", "is not a text")
        payload["gtid"] = gtid
    return payload


def mysql(body: Mapping[str, Any]) -> Payload:
    """`binlog_file` and `binlog_pos`, which fits 32 bits; `gtid` where there is one."""
    return _binlog("mysql", body)


def mariadb(body: Mapping[str, Any]) -> Payload:
    """As MySQL's, under MariaDB's own source name: the two number their transactions differently."""
    return _binlog("mariadb", body)


def sqlserver(body: Mapping[str, Any]) -> Payload:
    """`lsn_start`, exactly ten bytes, as a list of bytes or as hex; written on as `0x` and upper case."""
    value = body.get("lsn_start")
    if value is None:
        raise _refuse("sqlserver", "lsn_start", "is missing")
    if isinstance(value, str):
        try:
            octets = bytes.fromhex(value[2:]) if value[:2] in ("0x", "0X") else None
        except ValueError:
            octets = None
        if octets is None:
            raise _refuse("sqlserver", "lsn_start", "holds a value that is no byte")
    elif isinstance(value, list):
        if not all(
            isinstance(item, int) and not isinstance(item, bool) and 0 <= item <= 255 for item in value
        ):
            raise _refuse("sqlserver", "lsn_start", "holds a value that is no byte")
        octets = bytes(value)
    else:
        raise _refuse("sqlserver", "lsn_start", "holds a value that is no byte")
    if len(octets) != 10:
        raise _refuse("sqlserver", "lsn_start", f"has {len(octets)} bytes, not 10")
    return {"lsn_start": "0x" + octets.hex().upper()}


def sqlite(body: Mapping[str, Any]) -> Payload:
    """`log_id` and `cursors`, the next chunk of each table that is being read."""
    payload: Payload = {"log_id": _number("sqlite", body, "log_id", MAX_VERSION)}
    cursors = body.get("cursors")
    if cursors is None:
        raise _refuse("sqlite", "cursors", "is missing")
    if not isinstance(cursors, dict):
        raise _refuse("sqlite", "cursors", "is not a set of table cursors")
    payload["cursors"] = {
        str(table): _number("sqlite", {f"cursors.{table}": value}, f"cursors.{table}", MAX_VERSION)
        for table, value in cursors.items()
    }
    return payload


VALIDATORS: dict[str, Callable[[Mapping[str, Any]], Payload]] = {
    "postgres": postgres,
    "mysql": mysql,
    "mariadb": mariadb,
    "sqlserver": sqlserver,
    "sqlite": sqlite,
    "scripted": sqlite,
}


def validate(kind: str, body: object) -> Payload:
    """The payload of a source of that kind, or StateUnreadable with the field's name."""
    if kind not in VALIDATORS:
        raise StateUnreadable(f"the checkpoint is of an unknown kind of source, {kind!r}", remedy=_REMEDY)
    if not isinstance(body, dict):
        raise _refuse(kind, "resume", "is missing")
    return VALIDATORS[kind](body)


def within(position: Position, head: Position) -> None:
    """Refuse a position beyond the source's log: the state is newer than the source that answers."""
    if position > head:
        raise StateUnreadable(
            f"the checkpoint stands at {position.version}, beyond the log, which ends at {head.version}",
            remedy="the source is older than the state (a backup?): begin with an empty state directory",
            place="checkpoint field log_id",
        )

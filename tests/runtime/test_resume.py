"""The stream position inside a checkpoint: every row of its table, and what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.model.errors import StateUnreadable
from tailrace.model.position import Position
from tailrace.runtime import resume


@pytest.mark.parametrize("lsn", [0, 1, 2**64 - 1])
def test_postgres_holds_an_unsigned_64_bit_watermark(lsn: int) -> None:
    body = {"snapshot_watermark": lsn, "slot": "from the configuration only"}
    assert resume.validate("postgres", body) == {"snapshot_watermark": lsn}


@pytest.mark.parametrize("body", [{}, {"snapshot_watermark": None}])
def test_postgres_refuses_a_missing_watermark(body: dict[str, Any]) -> None:
    with pytest.raises(StateUnreadable, match=r"snapshot_watermark.*missing"):
        resume.validate("postgres", body)


@pytest.mark.parametrize("value", ["16/B374D848", 1.5, True, [1]])
def test_postgres_refuses_a_watermark_that_is_not_a_number(value: object) -> None:
    with pytest.raises(StateUnreadable, match=r"snapshot_watermark.*not a number"):
        resume.validate("postgres", {"snapshot_watermark": value})


@pytest.mark.parametrize("value", [-1, 2**64])
def test_postgres_refuses_a_watermark_that_is_not_unsigned_64_bit(value: int) -> None:
    with pytest.raises(StateUnreadable, match=r"snapshot_watermark"):
        resume.validate("postgres", {"snapshot_watermark": value})


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_mysql_and_mariadb_keep_file_position_and_their_own_source_name(kind: str) -> None:
    body = {"binlog_file": "bin.000007", "binlog_pos": 2**32 - 1}
    assert resume.validate(kind, body) == {"source": kind, **body}


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_a_gtid_is_optional_and_kept(kind: str) -> None:
    body = {"binlog_file": "bin.1000000", "binlog_pos": 4, "gtid": "0-1-270"}
    assert resume.validate(kind, body) == {"source": kind, **body}
    with pytest.raises(StateUnreadable, match=r"gtid"):
        resume.validate(kind, {**body, "gtid": 5})


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
@pytest.mark.parametrize("file", [None, "", 7])
def test_a_missing_binlog_file_is_refused(kind: str, file: object) -> None:
    with pytest.raises(StateUnreadable, match=r"binlog_file"):
        resume.validate(kind, {"binlog_file": file, "binlog_pos": 4})


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
@pytest.mark.parametrize("value", [None, 2**32, -1, "4", True])
def test_a_missing_or_too_large_binlog_position_is_refused(kind: str, value: object) -> None:
    with pytest.raises(StateUnreadable, match=r"binlog_pos"):
        resume.validate(kind, {"binlog_file": "bin.000001", "binlog_pos": value})


@pytest.mark.parametrize("value", [[0, 0, 0, 42, 0, 0, 1, 255, 0, 3], "0x0000002a000001ff0003"])
def test_sqlserver_writes_ten_bytes_on_as_0x_and_upper_case(value: object) -> None:
    assert resume.validate("sqlserver", {"lsn_start": value}) == {"lsn_start": "0x0000002A000001FF0003"}


def test_sqlserver_refuses_a_missing_lsn() -> None:
    with pytest.raises(StateUnreadable, match=r"lsn_start.*missing"):
        resume.validate("sqlserver", {})


@pytest.mark.parametrize("value", [[0] * 9, [0] * 11, [], "0x00", "0x"])
def test_sqlserver_refuses_another_length(value: object) -> None:
    with pytest.raises(StateUnreadable, match=r"lsn_start.*not 10"):
        resume.validate("sqlserver", {"lsn_start": value})


@pytest.mark.parametrize("bad", [256, -1, "a", True, None, 1.0])
def test_sqlserver_refuses_a_value_that_is_no_byte(bad: object) -> None:
    with pytest.raises(StateUnreadable, match=r"lsn_start.*no byte"):
        resume.validate("sqlserver", {"lsn_start": [0] * 9 + [bad]})


@pytest.mark.parametrize("value", ["0xZZ", "0000002A000001FF0003", 7, {}])
def test_sqlserver_refuses_what_is_neither_bytes_nor_hex(value: object) -> None:
    with pytest.raises(StateUnreadable, match=r"lsn_start.*no byte"):
        resume.validate("sqlserver", {"lsn_start": value})


def test_sqlite_holds_the_log_id_and_table_cursors() -> None:
    body = {"log_id": 12, "cursors": {"main.items": 3}}
    assert resume.validate("sqlite", body) == body


@pytest.mark.parametrize(("body", "name"), [({"cursors": {}}, "log_id"), ({"log_id": 1}, "cursors")])
def test_sqlite_refuses_what_is_missing(body: dict[str, Any], name: str) -> None:
    with pytest.raises(StateUnreadable, match=rf"{name}.*missing"):
        resume.validate("sqlite", body)


@pytest.mark.parametrize(
    ("body", "name"),
    [({"log_id": -1, "cursors": {}}, "log_id"), ({"log_id": 1, "cursors": {"main.items": -1}}, "main.items")],
)
def test_sqlite_refuses_what_is_negative(body: dict[str, Any], name: str) -> None:
    with pytest.raises(StateUnreadable, match=rf"{name}.*negative"):
        resume.validate("sqlite", body)


def test_sqlite_refuses_a_position_beyond_the_log() -> None:
    resume.within(Position("s", 5), Position("s", 5))
    with pytest.raises(StateUnreadable, match=r"6, beyond the log, which ends at 5") as refused:
        resume.within(Position("s", 6), Position("s", 5))
    assert "log_id" in str(refused.value.place)


@pytest.mark.parametrize("body", [None, [], "x"])
def test_a_payload_that_is_no_object_is_refused(body: object) -> None:
    with pytest.raises(StateUnreadable):
        resume.validate("sqlite", body)


def test_an_unknown_kind_of_source_is_refused() -> None:
    with pytest.raises(StateUnreadable, match=r"oracle"):
        resume.validate("oracle", {})

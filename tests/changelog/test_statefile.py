import errno
import json
import os
from pathlib import Path
from typing import NoReturn

import pytest

from tailrace.changelog.filesystem import open_filesystem
from tailrace.changelog.statefile import FORMAT, encode_state, read_state, write_state
from tailrace.model.errors import StateUnreadable, Transient

BODY = {"position": {"source": "s", "version": 7}, "names": ["a", "ü"], "none": None}


def test_what_was_written_is_read_back_and_only_its_user_may_read_it(tmp_path: Path) -> None:
    fs, root = open_filesystem(str(tmp_path))
    write_state(fs, f"{root}/x.json", "thing", BODY)
    assert read_state(fs, f"{root}/x.json", "thing") == BODY
    assert (tmp_path / "x.json").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_state_in_memory_of_fsspec_is_read_back() -> None:
    fs, root = open_filesystem("memory://statefile-test")
    write_state(fs, f"{root}/x.json", "thing", BODY)
    assert read_state(fs, f"{root}/x.json", "thing") == BODY


def test_only_a_file_that_is_not_there_is_none(tmp_path: Path) -> None:
    fs, root = open_filesystem(str(tmp_path))
    assert read_state(fs, f"{root}/x.json", "thing") is None


def test_every_flipped_bit_and_every_truncation_is_noticed(tmp_path: Path) -> None:
    fs, root = open_filesystem(str(tmp_path))
    path = tmp_path / "x.json"
    whole = encode_state("thing", BODY)
    damaged = [whole[:length] for length in range(len(whole))]
    for byte in range(len(whole)):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[byte] ^= 1 << bit
            damaged.append(bytes(flipped))
    for data in damaged:
        path.write_bytes(data)
        with pytest.raises(StateUnreadable) as raised:
            read_state(fs, f"{root}/x.json", "thing")
        assert raised.value.place == str(path)
        assert raised.value.remedy


def test_a_newer_format_says_to_upgrade(tmp_path: Path) -> None:
    fs, root = open_filesystem(str(tmp_path))
    state = json.loads(encode_state("thing", BODY))
    (tmp_path / "x.json").write_text(
        json.dumps({**state, "format": FORMAT + 1, "checksum": "of another kind"})
    )
    with pytest.raises(StateUnreadable, match="newer") as raised:
        read_state(fs, f"{root}/x.json", "thing")
    assert "upgrade" in str(raised.value.remedy)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    fs, root = open_filesystem(str(tmp_path))
    write_state(fs, f"{root}/x.json", "other", BODY)
    with pytest.raises(StateUnreadable, match="other"):
        read_state(fs, f"{root}/x.json", "thing")


def test_a_directory_in_its_place_is_an_error_not_nothing(tmp_path: Path) -> None:
    fs, root = open_filesystem(str(tmp_path))
    (tmp_path / "x.json").mkdir()
    with pytest.raises(StateUnreadable, match="cannot be read"):
        read_state(fs, f"{root}/x.json", "thing")


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES])
def test_a_disk_that_fails_to_read_is_an_error_not_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fail(self: Path) -> NoReturn:
        raise OSError(code, os.strerror(code), str(self))

    fs, root = open_filesystem(str(tmp_path))
    write_state(fs, f"{root}/x.json", "thing", BODY)
    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(StateUnreadable, match=os.strerror(code)):
        read_state(fs, f"{root}/x.json", "thing")


def test_a_write_that_fails_leaves_the_old_state_and_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(handle: int) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    fs, root = open_filesystem(str(tmp_path))
    write_state(fs, f"{root}/x.json", "thing", BODY)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(Transient, match="No space"):
            write_state(fs, f"{root}/x.json", "thing", {})
    assert read_state(fs, f"{root}/x.json", "thing") == BODY
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]

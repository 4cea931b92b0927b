"""Files that were flipped, cut, lost, replaced or written by someone else."""

import errno
import json
import os
import shutil
import struct
import zlib
from pathlib import Path
from typing import NoReturn

import pytest
from pyarrow.fs import LocalFileSystem

from tailrace.changelog import recovery
from tailrace.changelog.log import Changelog
from tailrace.changelog.reader import read_windows
from tailrace.changelog.segment import MAGIC, SegmentName, WindowRef, read_footer
from tailrace.model.errors import Fenced, IdentityMismatch, StateUnreadable
from tests.changelog.support import SOURCE, all_rows, at, expected, in_parts, part, rows_of


def opened(root: Path) -> Changelog:
    return Changelog.open(str(root), owner_name="test", source=SOURCE, spill_bytes=1500)


def filled(root: Path, acknowledged: int = 0) -> list[Path]:
    """Three segments of positions 1, 2 and 3; the second has spill files."""
    with opened(root) as log:
        log.begin(at(0))
        for position in (1, 2, 3):
            for piece in in_parts(position, 200 if position == 2 else 4, 20):
                log.append(piece)
            log.flush()
        if acknowledged:
            log.acknowledge(at(acknowledged))
    return sorted(root.glob("*.seg"))


def flipped(data: bytes, byte: int, bit: int = 0) -> bytes:
    changed = bytearray(data)
    changed[byte] ^= 1 << bit
    return bytes(changed)


def test_a_read_notices_any_flipped_byte_and_any_truncation_of_any_file(tmp_path: Path) -> None:
    filled(tmp_path)
    with opened(tmp_path) as log:
        refs = log.plan(1, 2)
    right = rows_of(str(tmp_path), refs)
    segment = tmp_path / refs[0].file
    files = [segment, *sorted(tmp_path.glob("*.spill"))]
    assert len(files) > 3
    footer = read_footer(_fs(), str(segment))
    assert footer is not None
    ends = range(footer.boundaries.offset, footer.boundaries.offset + footer.boundaries.length)
    for file in files[:2] + files[-1:]:
        whole = file.read_bytes()
        for byte in range(0, len(whole), 7):
            file.write_bytes(flipped(whole, byte, byte % 8))
            _refused_or_unchanged(tmp_path, refs, right, may_pass=file == segment and byte in ends)
        for length in (0, 1, 8, len(whole) // 2, len(whole) - 1):
            file.write_bytes(whole[:length])
            _refused_or_unchanged(tmp_path, refs, right, may_pass=False)
        file.write_bytes(whole)
    assert rows_of(str(tmp_path), refs) == right


def _fs() -> LocalFileSystem:
    return LocalFileSystem()


def _refused_or_unchanged(
    root: Path, refs: list[WindowRef], right: list[tuple[int, int, str, str]], *, may_pass: bool
) -> None:
    """Executors do not read the boundaries, so damage there may pass them by; it must not change a row."""
    try:
        found = rows_of(str(root), refs)
    except StateUnreadable as error:
        complete = str(error.place).startswith(str(root)) and error.remedy is not None
    else:
        complete = may_pass and found == right
    assert complete


def test_damaged_boundaries_are_noticed_by_whoever_reads_them(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.begin(at(0))
        for position in (1, 2, 3):
            log.append(part(position))
        log.flush()
    [segment] = tmp_path.glob("*.seg")
    footer = read_footer(_fs(), str(segment))
    assert footer is not None
    segment.write_bytes(flipped(segment.read_bytes(), footer.boundaries.offset + 30))
    with opened(tmp_path) as log, pytest.raises(StateUnreadable, match="damaged"):
        log.bound(0, max_rows=3)


def test_a_footer_with_any_flipped_bit_counts_as_damaged(tmp_path: Path) -> None:
    segment = filled(tmp_path)[0]
    whole = segment.read_bytes()
    length, _, _ = struct.unpack("<QI8s", whole[-20:])
    for byte in [*range(8), *range(len(whole) - 20 - length, len(whole))]:
        segment.write_bytes(flipped(whole, byte, byte % 8))
        assert read_footer(_fs(), str(segment)) is None


def test_what_follows_a_damaged_segment_is_captured_again(tmp_path: Path) -> None:
    segments = filled(tmp_path, acknowledged=1)
    segments[1].write_bytes(segments[1].read_bytes()[:-5])
    with opened(tmp_path) as log:
        assert log.end == 1
        assert not list(tmp_path.glob("*.spill"))
        log.append(part(2))
        log.append(part(3))
        log.flush()
        assert all_rows(log) == expected(1, 4) + expected(2, 3) + expected(3, 3)


@pytest.mark.parametrize("lost", ["segment", "spill", "cut spill"])
def test_what_follows_a_lost_file_is_captured_again(tmp_path: Path, lost: str) -> None:
    segments = filled(tmp_path)
    spill = sorted(tmp_path.glob("*.spill"))[0]
    if lost == "cut spill":
        spill.write_bytes(spill.read_bytes()[:-1])
    else:
        (segments[1] if lost == "segment" else spill).unlink()
    with opened(tmp_path) as log:
        assert log.end == 1
        assert all_rows(log) == expected(1, 4)


def test_damage_before_the_acknowledged_position_stops_and_removes_nothing(tmp_path: Path) -> None:
    segments = filled(tmp_path, acknowledged=2)
    before = sorted(path.name for path in tmp_path.iterdir())
    segments[1].write_bytes(segments[1].read_bytes()[:-5])
    for _ in range(2):
        with pytest.raises(StateUnreadable, match="acknowledged position 2") as raised:
            opened(tmp_path)
        assert raised.value.remedy
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    # The remedy works.
    for segment in segments:
        segment.unlink()
    with opened(tmp_path) as log:
        assert log.end == 2


def test_state_restored_from_before_the_pruning_goes_back_to_it(tmp_path: Path) -> None:
    filled(tmp_path)
    yesterday = (tmp_path / "changelog.json").read_bytes()
    with opened(tmp_path) as log:
        log.acknowledge(at(1))
        log.prune()
    (tmp_path / "changelog.json").write_bytes(yesterday)
    with opened(tmp_path) as log:
        assert (log.end, log.acknowledged, log.stats().segments) == (0, 0, 0)


def test_segments_restored_from_before_the_acknowledgement_are_dropped(tmp_path: Path) -> None:
    segments = filled(tmp_path, acknowledged=3)
    segments[2].unlink()
    with opened(tmp_path) as log:
        assert (log.end, log.stats().segments) == (3, 0)


def test_of_overlapping_segments_the_highest_epoch_wins(tmp_path: Path) -> None:
    first = filled(tmp_path)[0]
    with opened(tmp_path) as log:
        log.truncate_after(at(0))
        log.append(part(1, rows=4))
        log.append(part(2, rows=5))
        log.flush()
    stale = tmp_path / str(SegmentName(0, 1, 1))
    assert stale.name == first.name
    shutil.copy(next(tmp_path.glob("*.seg")), stale)
    with opened(tmp_path) as log:
        assert not stale.exists()
        assert all_rows(log) == expected(1, 4) + expected(2, 5)


def test_a_truncation_that_was_cut_short_leaves_the_shorter_segment(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.begin(at(0))
        log.append(part(1))
        log.append(part(2))
        log.flush()
        [long] = tmp_path.glob("*.seg")
        kept = long.read_bytes()
        log.truncate_after(at(1))
    long.write_bytes(kept)
    with opened(tmp_path) as log:
        assert all_rows(log) == expected(1, 3)
        assert not long.exists()


def test_leftover_temporary_files_are_removed(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "x.seg.0123abcd.tmp").write_bytes(b"half")
    with opened(tmp_path) as log:
        assert log.end == 3
    assert not list(tmp_path.glob("*.tmp"))


def test_a_segment_of_a_newer_version_is_refused_and_kept(tmp_path: Path) -> None:
    segment = filled(tmp_path)[2]
    _rewrite_footer(segment, format=2)
    with pytest.raises(StateUnreadable, match="newer"):
        opened(tmp_path)
    assert segment.exists()


def test_a_segment_of_another_source_is_refused(tmp_path: Path) -> None:
    segment = filled(tmp_path)[2]
    _rewrite_footer(segment, source="elsewhere")
    with pytest.raises(IdentityMismatch, match="elsewhere"):
        opened(tmp_path)


def _rewrite_footer(segment: Path, **changes: object) -> None:
    whole = segment.read_bytes()
    length, _, _ = struct.unpack("<QI8s", whole[-20:])
    footer = json.dumps({**json.loads(whole[-20 - length : -20]), **changes}).encode()
    tail = struct.pack("<QI8s", len(footer), zlib.crc32(footer), MAGIC)
    segment.write_bytes(whole[: -20 - length] + footer + tail)


def test_segments_without_their_state_file_are_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "changelog.json").unlink()
    with pytest.raises(StateUnreadable, match=r"changelog\.json"):
        opened(tmp_path)


def test_a_damaged_state_file_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    segments = filled(tmp_path)
    state = tmp_path / "changelog.json"
    state.write_bytes(flipped(state.read_bytes(), 60))
    with pytest.raises(StateUnreadable, match="damaged"):
        opened(tmp_path)
    assert all(segment.exists() for segment in segments)


def test_a_segment_that_cannot_be_read_is_not_taken_for_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> NoReturn:
        raise StateUnreadable("cannot be read: " + os.strerror(errno.EIO))

    segments = filled(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(recovery, "read_footer", fail)
        with pytest.raises(StateUnreadable, match="Input/output"):
            opened(tmp_path)
    directory = segments[2]
    directory.unlink()
    directory.mkdir()
    with pytest.raises(StateUnreadable):
        read_footer(_fs(), str(directory))
    assert segments[0].exists()
    assert segments[1].exists()


def test_a_file_that_an_executor_does_not_see_names_the_shared_filesystem(tmp_path: Path) -> None:
    filled(tmp_path)
    with opened(tmp_path) as log:
        [ref] = log.plan(0, 1)
    (tmp_path / ref.file).unlink()
    with pytest.raises(StateUnreadable, match="not there") as raised:
        list(read_windows(str(tmp_path), [ref]))
    assert "share" in str(raised.value.remedy)


def test_a_writer_that_was_taken_over_publishes_nothing_more(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.begin(at(0))
    log.append(part(1))
    log._owner._stopped.set()
    os.utime(tmp_path / "owner" / "00000001.json", (0, 0))
    with opened(tmp_path) as heir:
        with pytest.raises(Fenced):
            log.flush()
        with pytest.raises(Fenced):
            log.prune()
        assert not list(tmp_path.glob("*.seg"))
        heir.append(part(1))
        assert heir.flush() == 1
        log.close()
        assert all_rows(heir) == expected(1, 3)

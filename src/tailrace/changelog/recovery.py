"""Opening a changelog: which files stand, whatever happened before.

Everything is decided before anything is removed. Segments must follow one another; of overlapping ones the
highest epoch wins, because a lower one was fenced. What comes after a gap or a damaged segment is removed
and captured again, which is safe exactly beyond the acknowledged position: the source still has it.
"""

from __future__ import annotations

import pyarrow.fs as pafs

from tailrace.changelog import filesystem
from tailrace.changelog.index import Summary
from tailrace.changelog.segment import SPILL_SUFFIX, Footer, SegmentName, read_footer
from tailrace.model.errors import IdentityMismatch, StateUnreadable


def segments_in(names: dict[str, int]) -> list[SegmentName]:
    """The segments among these files."""
    return [name for name in map(SegmentName.parse, names) if name is not None]


def recover(fs: pafs.FileSystem, root: str, source: str, acknowledged: int | None) -> list[Summary]:
    """The segments that stand, in order; every other file of ours is removed."""
    files = filesystem.listing(fs, root)
    winners = _without_overlaps(segments_in(files))
    if winners and acknowledged is None:
        raise StateUnreadable(
            "the changelog has segments but no changelog.json",
            remedy="restore changelog.json from a backup, or give the pipeline a new state directory",
            place=root,
        )
    kept: list[Summary] = []
    for name in winners:
        follows = name.start == kept[-1].name.end if kept else name.start <= (acknowledged or 0)
        footer = _usable(fs, root, name, files) if follows else None
        if footer is None:
            reached = kept[-1].name.end if kept else name.start
            if reached < (acknowledged or 0):
                raise _broken(f"{root}/{name}", acknowledged)
            break
        if footer.source != source:
            raise IdentityMismatch(
                f"the segment belongs to source {footer.source}, and the pipeline reads {source}",
                remedy="give each source a state directory of its own",
                place=f"{root}/{name}",
            )
        kept.append(Summary.of(footer, files[str(name)]))
    if kept and kept[-1].name.end < (acknowledged or 0):
        # All of it is consumed, and what follows is captured from the acknowledged position on.
        kept = []
    _remove_others(fs, root, files, kept)
    return kept


def _without_overlaps(names: list[SegmentName]) -> list[SegmentName]:
    winners: list[SegmentName] = []
    # At equal epochs the shorter one: a truncation writes it before it removes the longer.
    for name in sorted(names, key=lambda name: (-name.epoch, name.end - name.start)):
        if all(name.end <= other.start or name.start >= other.end for other in winners):
            winners.append(name)
    return sorted(winners, key=lambda name: name.start)


def _usable(fs: pafs.FileSystem, root: str, name: SegmentName, files: dict[str, int]) -> Footer | None:
    footer = read_footer(fs, f"{root}/{name}")
    if footer is None or footer.name != name:
        return None
    whole = all(files.get(spill) == size for spill, size in footer.spills.items())
    return footer if whole else None


def _broken(path: str, acknowledged: int | None) -> StateUnreadable:
    return StateUnreadable(
        "the segment is damaged or its predecessor is missing, and cannot be captured again, because it lies "
        f"before the acknowledged position {acknowledged}",
        remedy="restore the directory from a backup, or remove all of its .seg files: capture then goes on "
        "from the acknowledged position",
        place=path,
    )


def _remove_others(fs: pafs.FileSystem, root: str, files: dict[str, int], kept: list[Summary]) -> None:
    needed = {file for summary in kept for file in summary.files}
    # Newest first: what a crash leaves in the middle is still contiguous.
    for name in sorted(files, reverse=True):
        ours = SegmentName.parse(name) or name.endswith((SPILL_SUFFIX, filesystem.TEMPORARY))
        if ours and name not in needed:
            filesystem.remove(fs, f"{root}/{name}")

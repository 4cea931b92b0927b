"""A process that meets its file size limit, lifts it and goes on; and one that shows its memory."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path

from tailrace.changelog.log import Changelog
from tailrace.model.errors import Transient
from tests.changelog.support import SOURCE, all_rows, at, expected, in_parts


def limited(root: str) -> None:
    """Every write of a file larger than the limit fails, as on a full disk."""
    log = Changelog.open(root, owner_name="limited", source=SOURCE, spill_bytes=200_000)
    log.begin(at(0))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    failures = 0
    for piece in in_parts(1, 20_000, 1000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        try:
            log.append(piece)
        except Transient as error:
            failures += error.place == root and not list(Path(root).glob("*.tmp"))
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            log.append(piece)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        log.flush()
    except Transient:
        failures += 1
    assert not list(Path(root).glob("*.seg"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    log.flush()
    whole = all_rows(log) == expected(1, 20_000)
    log.close()
    print(f"{failures} failures, whole: {whole}", flush=True)  # noqa: T201


def measured(root: str, rows: int, spill_bytes: int) -> None:
    """One transaction of many rows; prints how much the peak of memory grew, and the transaction's bytes."""
    log = Changelog.open(root, owner_name="measured", source=SOURCE, spill_bytes=spill_bytes)
    log.begin(at(0))
    each = 5000
    pieces = in_parts(1, rows, each)
    log.append(next(pieces))
    base, total = _peak(), 0
    for piece in pieces:
        total += piece.nbytes
        log.append(piece)
    log.flush()
    print(f"{_peak() - base} {total}", flush=True)  # noqa: T201
    log.close()


def _peak() -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


if __name__ == "__main__":
    if sys.argv[1] == "limited":
        limited(sys.argv[2])
    else:
        measured(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))

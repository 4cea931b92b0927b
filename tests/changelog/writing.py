"""A process that fills a changelog without end, and tells its parent what is flushed. Made to be killed."""

from __future__ import annotations

import sys

from tailrace.changelog.log import Changelog
from tests.changelog.support import SOURCE, at, in_parts, part


def rows_at(position: int) -> int:
    return 1200 if position % 20 == 0 else position * 7919 % 40


def main(root: str) -> None:
    log = Changelog.open(root, owner_name="writer", source=SOURCE, segment_bytes=20_000, spill_bytes=10_000)
    if not log.begun:
        log.begin(at(0))
    # The first batch of a process takes long, and would hide everything that comes later from the kills.
    part(1)
    print(f"opened {log.end}", flush=True)  # noqa: T201
    position = log.end
    while True:
        position += 1
        for piece in (
            in_parts(position, rows_at(position), 100) if rows_at(position) else in_parts(position, 1, 1)
        ):
            log.append(piece)
        if position % 7 == 0:
            print(f"flushed {log.flush()}", flush=True)  # noqa: T201
        if position % 40 == 0:
            log.acknowledge(at(max(0, log.end - 60)))
            log.prune()
            print(f"acknowledged {log.acknowledged}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])

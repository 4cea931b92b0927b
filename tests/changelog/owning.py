"""A process that acquires, checks and releases at the word of its parent."""

from __future__ import annotations

import sys

from tailrace.changelog.filesystem import open_filesystem
from tailrace.changelog.owner import Ownership
from tailrace.model.errors import TailraceError


def main(root: str, name: str, lease: float) -> None:
    fs, path = open_filesystem(root)
    owned: Ownership | None = None
    print("ready", flush=True)  # noqa: T201
    for line in sys.stdin:
        answer = "ok"
        try:
            match line.split():
                case ["acquire", wait]:
                    owned = Ownership.acquire(fs, path, name, wait=float(wait), lease=lease)
                    answer = f"epoch {owned.epoch}"
                case ["check"] if owned:
                    owned.check(now=True)
                case ["release"] if owned:
                    owned.release()
        except TailraceError as error:
            answer = f"{type(error).__name__} {error.message}"
        print(answer, flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))

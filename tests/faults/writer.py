"""An application that numbers its writes: `python -m tests.faults.writer PATH JOURNAL SEED FIRST KEYS LIMIT`.

Every write of a key has a higher number than the one before, also those that are rolled back. The journal has
a line before each commit and one after it: ok, failed, or, where the writer was killed in between, neither.
It ends after LIMIT transactions, or at the end of its standard input.
"""

from __future__ import annotations

import contextlib
import json
import random
import select
import sqlite3
import sys
from pathlib import Path
from typing import Any, TextIO

Op = tuple[int, int, str]


class Application:
    """One writer with keys of its own."""

    def __init__(self, path: Path, journal: TextIO, seed: int, first: int, keys: int) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=60)
        self._connection.execute("PRAGMA synchronous=OFF")
        self._journal = journal
        self._random = random.Random(seed)
        self._keys = range(first, first + keys)
        self._numbers: dict[int, int] = {}
        self._present: set[int] = set()
        self._name = f"{first}"
        self._count = 0

    def transaction(self) -> None:
        """A few writes, committed or rolled back in one of several ways."""
        self._count += 1
        ident = f"{self._name}.{self._count}"
        run, present = self._connection.execute, set(self._present)
        way = self._random.random()
        run("BEGIN IMMEDIATE")
        kept = self._writes(ident, self._random.randint(1, 6), present)
        lost: list[Op] = []
        if way < 0.1:
            run("SAVEPOINT inner")
            lost = self._writes(ident, self._random.randint(1, 3), set(present))
            run("ROLLBACK TO inner")
            run("RELEASE inner")
        self._say({"t": ident, "ops": kept, "lost": lost, "captured": self._captured()})
        if way > 0.9:
            run("ROLLBACK")
            self._say({"t": ident, "outcome": "failed"})
            return
        run("COMMIT")
        self._present = present
        self._say({"t": ident, "outcome": "ok"})

    def _writes(self, ident: str, count: int, present: set[int]) -> list[Op]:
        done: list[Op] = []
        for _ in range(count):
            key = self._random.choice(self._keys)
            number = self._numbers[key] = self._numbers.get(key, 0) + 1
            note = f"{ident}:" + "x" * self._random.randint(0, 40)
            if key not in present:
                self._connection.execute("INSERT INTO ledger VALUES (?, ?, ?)", (key, number, note))
                present.add(key)
                done.append((key, number, "c"))
            elif self._random.random() < 0.2:
                self._connection.execute("DELETE FROM ledger WHERE key = ?", (key,))
                present.discard(key)
                done.append((key, number, "d"))
            else:
                self._connection.execute(
                    "UPDATE ledger SET number = ?, note = ? WHERE key = ?", (number, note, key)
                )
                done.append((key, number, "u"))
        return done

    def _captured(self) -> bool:
        """Whether this transaction is one that a pipeline must deliver: its cursor is there already."""
        try:
            return self._connection.execute("SELECT 1 FROM _tailrace_consumers").fetchone() is not None
        except sqlite3.OperationalError:
            return False

    def _say(self, body: dict[str, Any]) -> None:
        self._journal.write(json.dumps(body) + "\n")
        self._journal.flush()


def main() -> None:
    """Write until told to end."""
    path, journal, seed, first, keys, limit = sys.argv[1:]
    with Path(journal).open("a") as file:
        application = Application(Path(path), file, int(seed), int(first), int(keys))
        pace = random.Random(int(seed) + 1)
        for number in range(int(limit)):
            application.transaction()
            if number == 0:
                with contextlib.suppress(BrokenPipeError):
                    sys.stdout.write("writing\n")
                    sys.stdout.flush()
            # The pace is the time it listens for the word to end.
            if select.select([sys.stdin], [], [], pace.choice((0.0, 0.001, 0.005, 0.02)))[0]:
                return


if __name__ == "__main__":
    main()

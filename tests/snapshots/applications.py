"""Applications that write into the very rows that a snapshot is about to read, or has read."""

from __future__ import annotations

import random
import threading
from contextlib import closing
from typing import Any

from tests.faults.rig import Rig
from tests.support.waiting import wait_until

FIRST = 1_000_000


class Pen:
    """Writes of single rows, each with a higher number than the one before of its key."""

    def __init__(self, rows: int, chance: random.Random) -> None:
        self._rows, self._dice = rows, chance
        self._numbers: dict[int, int] = {}
        self._gone: set[int] = set()

    def statement(self, key: int) -> str:
        """The next write of a row: an update, now and then a delete, and then an insert."""
        number = self._numbers[key] = self._numbers.get(key, 1) + 1
        if key in self._gone:
            self._gone.discard(key)
            return f"INSERT INTO ledger VALUES ({key}, {number}, ':again')"
        if self._dice.random() < 0.2:
            self._gone.add(key)
            return f"DELETE FROM ledger WHERE key = {key}"
        return f"UPDATE ledger SET number = {number} WHERE key = {key}"

    def anywhere(self) -> str:
        """A write of any row."""
        return self.statement(FIRST + self._dice.randrange(self._rows))


class Writing:
    """A thread that writes as long as the block runs, and fails the test if it could not."""

    pause = 0.003

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None
        self.transactions = 0

    def transaction(self, connection: Any) -> None:
        """One transaction."""
        raise NotImplementedError

    def __enter__(self) -> Any:
        self._thread.start()
        wait_until(lambda: self.transactions or self._error, what="the first transaction")
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._ended.set()
        self._thread.join(timeout=120)
        if kind is None:
            assert self._error is None, repr(self._error)
            assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            with closing(self._rig.connect()) as connection:
                while not self._ended.wait(self.pause):
                    self.transaction(connection)
                    self.transactions += 1
        except BaseException as error:
            self._error = error


class Scribbler(Writing):
    """Updates, deletes and inserts again rows of the whole table."""

    def __init__(self, rig: Rig, pen: Pen) -> None:
        super().__init__(rig)
        self._pen = pen

    def transaction(self, connection: Any) -> None:
        connection.execute(self._pen.anywhere())

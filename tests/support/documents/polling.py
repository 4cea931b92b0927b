"""Somebody who reads an index all the time, and remembers whatever should not have happened.

It knows no sink: `read` gives the documents that readers see now, by id. So the same tests run on every sink.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.support.waiting import wait_until

Read = Callable[[], Mapping[str, Any]]


class Polling:
    """What a reader saw: a document that was there, and was not deleted, must be there the next time too."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._there: set[str] = set()
        self._deleted: set[str] = set()
        self._ended = threading.Event()
        self.looks = 0
        self.lost: list[str] = []
        self.failed: BaseException | None = None
        self._look()

    def deletes(self, *ids: str) -> None:
        """Before these are deleted in the source: from now on they may vanish."""
        with self._lock:
            self._deleted.update(ids)

    def sees(self, what: str, right: Callable[[Mapping[str, Any]], bool]) -> None:
        """Wait until a reader sees something."""
        wait_until(lambda: right(self._read()), timeout=60, interval=0.02, what=what)

    @contextmanager
    def reading(self) -> Iterator[Polling]:
        """Read until the block ends; at its end nothing was missed at any time."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            thread.join(timeout=60)
        if self.failed is not None:
            raise self.failed
        assert self.lost == [], "documents were not there for a while"
        assert self.looks > 2

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                self._look()
        except BaseException as error:
            self.failed = error

    def _look(self) -> None:
        with self._lock:
            wanted = set(self._there)
        seen = set(self._read())
        with self._lock:
            # What was deleted while it looked may be gone.
            for id_ in sorted(wanted - seen - self._deleted):
                self.lost.append(f"{id_}, at look {self.looks}: {len(seen)} documents were there")
            self._there = (self._there | seen) - self._deleted
        self.looks += 1

"""O1 to O4 of docs/reliability: what must be true after, and during, any fault.

Everything here is read by plain means: sqlite3 on the source, the Delta log's own files, Spark's checkpoint
files, the writers' journals, the feed's lines. Nothing asks the code under test.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

Row = tuple[Any, ...]
Committed = dict[int, list[tuple[int, str]]]


class Violation(AssertionError):
    """An oracle says no; `oracle` is its name."""

    def __init__(self, oracle: str, message: str) -> None:
        super().__init__(f"{oracle}: {message}")
        self.oracle = oracle


def source_rows(database: Path) -> dict[int, Row]:
    """The table as plain SQL reads it."""
    with closing(sqlite3.connect(database, timeout=30)) as connection:
        return {row[0]: row for row in connection.execute("SELECT key, number, note FROM ledger")}


def mirror_rows(lake: Path) -> dict[int, Row]:
    """The mirror as Delta's own reader reads it; a key that is there twice is a violation."""
    table = DeltaTable(str(lake)).to_pyarrow_table(columns=["key", "number", "note"])
    columns = [table[name].to_pylist() for name in ("key", "number", "note")]
    rows = list(zip(*columns, strict=True))
    found = {row[0]: row for row in rows}
    if len(found) != len(rows):
        raise Violation("O1", f"{len(rows) - len(found)} keys are in the mirror more than once")
    return found


def feed_rows(feed: Path) -> dict[int, Row]:
    """The table that the feed's changes describe. Of a snapshot row that came twice the later one counts."""
    changes = {(c["position"], c["seq"]): c for c in (line["change"] for line in changes_of(feed))}
    found: dict[int, Row] = {}
    for _, change in sorted(changes.items()):
        if change["op"] == "s":
            found.clear()
            continue
        if change["before"] is not None:
            found.pop(change["before"]["key"], None)
        if change["after"] is not None:
            found[change["after"]["key"]] = tuple(change["after"][n] for n in ("key", "number", "note"))
    return found


def final_state(database: Path, lake: Path, feed: Path) -> None:
    """O1: not one key missing, extra or different, in the mirror and in what the feed describes."""
    _equal(source_rows(database), mirror_rows(lake))
    _equal(source_rows(database), feed_rows(feed))


def _equal(wanted: dict[int, Row], found: dict[int, Row]) -> None:
    missing, extra = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    different = sorted(key for key in wanted.keys() & found.keys() if wanted[key] != found[key])
    if missing or extra or different:
        raise Violation(
            "O1",
            f"{len(missing)} missing {missing[:5]}, {len(extra)} extra {extra[:5]}, "
            f"{len(different)} different {[(wanted[k], found[k]) for k in different[:3]]}",
        )


def _journal(paths: Iterable[Path]) -> tuple[Committed, set[tuple[int, int]], set[str]]:
    """By key what must be delivered, in order; what was rolled back; transactions of unknown outcome.

    What was committed before there was a cursor is the snapshot's.
    """
    done: dict[int, list[tuple[int, str]]] = {}
    failed: set[tuple[int, int]] = set()
    unknown: set[str] = set()
    for path in paths:
        tried: dict[str, Any] = {}
        for line in path.read_text().splitlines():
            body = json.loads(line)
            if "outcome" not in body:
                tried = body
                failed |= {(key, number) for key, number, _ in body["lost"]}
                unknown.add(body["t"])
                continue
            unknown.discard(body["t"])
            if body["outcome"] == "failed":
                failed |= {(key, number) for key, number, _ in tried["ops"]}
            elif tried["captured"]:
                for key, number, op in tried["ops"]:
                    done.setdefault(key, []).append((number, op))
    return done, failed, unknown


_READ: dict[Path, tuple[int, list[dict[str, Any]]]] = {}


def changes_of(feed: Path) -> list[dict[str, Any]]:
    """What the feed delivered, in order of arrival. Lines are only ever added, so they are read once."""
    if not feed.exists():
        return []
    done, found = _READ.get(feed, (0, []))
    with feed.open("rb") as file:
        file.seek(done)
        fresh = file.read()
    found = found + [json.loads(line) for line in fresh.splitlines()]
    _READ.clear()
    _READ[feed] = (done + len(fresh), found)
    return found


def history(journals: Iterable[Path], feed: Path, lake: Path) -> None:
    """O2: nothing that failed, everything that was acknowledged, in order, each transaction whole."""
    done, failed, unknown = _journal(journals)
    first: dict[tuple[int, int], dict[str, Any]] = {}
    ends: dict[str, set[int]] = {}
    newest = (-1, -1)
    for line in changes_of(feed):
        change, place = line["change"], (line["change"]["position"], line["change"]["seq"])
        if change["op"] in "rs":
            continue
        if not line["batch"]["start"] < place[0] <= line["batch"]["end"]:
            raise Violation("O2", f"the change at {place} came in a batch it does not belong to")
        if place in first:
            if first[place] != change:
                raise Violation("O2", f"a replay of {place} differs from what came first")
            continue
        if place < newest:
            raise Violation("O2", f"{place} came first after {newest}")
        newest, first[place] = place, change
        image = change["after"] or change["before"]
        if change["op"] != "d":
            ends.setdefault(image["note"].partition(":")[0], set()).add(line["batch"]["end"])
    if split := [name for name, batches in ends.items() if len(batches) > 1 and name]:
        raise Violation("O2", f"transactions split over micro-batches: {split[:3]}")
    delivered: dict[int, list[tuple[int, str]]] = {}
    for _, change in sorted(first.items()):
        image = change["after"] or change["before"]
        delivered.setdefault(image["key"], []).append((image["number"], change["op"]))
    for key in delivered.keys() | done.keys():
        # Keys that no writer numbers (bulk rows, sentinels) are the final state's to judge.
        written = key in done or 0 < key < 1_000_000
        wanted = done.get(key, []) if written and not unknown else None
        _one_key(key, delivered.get(key, []), wanted, failed)
    for row in mirror_rows(lake).values():
        if (row[0], row[1]) in failed:
            raise Violation("O2", f"a value that was rolled back is in the mirror: key {row[0]}")


def _one_key(
    key: int,
    changes: list[tuple[int, str]],
    committed: list[tuple[int, str]] | None,
    failed: set[tuple[int, int]],
) -> None:
    last, present = 0, None
    for number, op in changes:
        if (key, number) in failed:
            raise Violation("O2", f"key {key}: number {number} was rolled back and delivered")
        if op == "d":
            # A delete shows the image it removed.
            if present is False or (last and number != last):
                raise Violation("O2", f"key {key}: a delete that removes {number} after {last}")
            present = False
            continue
        if number <= last or present is (op == "c"):
            raise Violation("O2", f"key {key}: {op} of number {number} after {last}")
        last, present = number, True
    if committed is None:
        return
    shown = [number if op != "d" else "d" for number, op in changes]
    wanted = [number if op != "d" else "d" for number, op in committed]
    if wanted != shown:
        raise Violation("O2", f"key {key}: {shown[-5:]} was delivered, {wanted[-5:]} was committed")


def cursor_of(connection: sqlite3.Connection, consumer: str) -> int | None:
    """The consumer's cursor in the file; None where there is none."""
    try:
        row = connection.execute(
            "SELECT acknowledged FROM _tailrace_consumers WHERE name = ?", (consumer,)
        ).fetchone()
    except sqlite3.OperationalError:
        return None
    return None if row is None else int(row[0])


def snapshot_left(checkpoint: Path) -> int | None:
    """How many chunks the newest committed batch leaves; None before there is one."""
    done = [int(path.name) for path in _files(checkpoint / "commits") if path.name.isdigit()]
    if not done:
        return None
    lines = (checkpoint / "offsets" / str(max(done))).read_text().splitlines()
    cursors = json.loads(lines[2])["snapshots"].values()
    return sum(int(cursor["of"]) - int(cursor["next"]) for cursor in cursors)


def lag(database: Path, consumer: str) -> int | None:
    """How many numbers the cursor trails the source's counter."""
    with closing(sqlite3.connect(database, timeout=30)) as connection:
        cursor = cursor_of(connection, consumer)
        if cursor is None:
            return None
        (head,) = connection.execute("SELECT seq FROM _tailrace_meta").fetchone()
        return int(head) - cursor


class Sampler:
    """O3, all the time: whenever the cursor moves, what it acknowledges was durable before.

    Samples carry the moment they were taken; the files of Spark's commit log and of Delta's log carry the
    moment they were made. So a late look does not excuse an early acknowledgement.
    """

    def __init__(self, database: Path, consumer: str, checkpoint: Path, lake: Path) -> None:
        self._database, self._consumer = database, consumer
        self._checkpoint, self._log = checkpoint, lake / "_delta_log"
        self._cursors: list[tuple[float, int]] = []
        self._commits: dict[int, tuple[float, int]] = {}
        self._delta: dict[str, tuple[float, int]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.samples = 0

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(timeout=30)

    def check(self) -> None:
        """Raise if a position was on record before it was durable."""
        self._look()
        if not self._cursors:
            raise Violation("O3", "no cursor was ever seen")
        base = self._cursors[0][1]
        for moment, cursor in list(self._cursors):
            if cursor == base:
                continue
            for name, made in (("Spark's commit", self._commits), ("the mirror", self._delta)):
                if not any(at <= moment and end >= cursor for at, end in made.values()):
                    raise Violation("O3", f"{cursor} was acknowledged before {name} had it")

    def _run(self) -> None:
        while not self._ended.wait(0.01):
            self._look()

    def _look(self) -> None:
        try:
            # Never a connection that stays: it would keep the WAL from being reset.
            with closing(
                sqlite3.connect(f"file:{self._database}?mode=ro", uri=True, timeout=5)
            ) as connection:
                cursor = cursor_of(connection, self._consumer)
        except sqlite3.OperationalError:
            return
        self.samples += 1
        if cursor is not None and (not self._cursors or self._cursors[-1][1] != cursor):
            self._cursors.append((time.time(), cursor))
        self._note_commits()
        self._note_delta()

    def _note_commits(self) -> None:
        for path in _files(self._checkpoint / "commits"):
            if path.name.isdigit() and int(path.name) not in self._commits:
                try:
                    offset = json.loads(
                        (self._checkpoint / "offsets" / path.name).read_text().splitlines()[2]
                    )
                    self._commits[int(path.name)] = (path.stat().st_mtime, offset["position"])
                except (OSError, ValueError, IndexError):
                    continue

    def _note_delta(self) -> None:
        for path in _files(self._log):
            if path.suffix == ".json" and path.name not in self._delta:
                try:
                    made, lines = path.stat().st_mtime, path.read_text().splitlines()
                except OSError:
                    continue
                ends = [
                    body["txn"]["version"]
                    for body in map(json.loads, lines)
                    if "txn" in body and body["txn"]["appId"].endswith(":log")
                ]
                self._delta[path.name] = (made, max(ends, default=-1))


def _files(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []

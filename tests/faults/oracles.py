"""O1 to O4 of docs/faults.md: what must be true after, and during, any fault.

Everything here is read by plain means: SQL on the source, the Delta log's own files, Spark's checkpoint
files, the writers' journals, the feed's lines. Nothing asks the code under test.
"""

from __future__ import annotations

import bisect
import json
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from tests.faults.databases import Ledger, Row

NAMES = ("key", "number", "note")
Pairs = set[tuple[int, int]]
History = list[tuple[int | None, str]]


class Violation(AssertionError):
    """An oracle says no; `oracle` is its name.

    What never arrived, and a pipeline that ended, have names of their own: a seeded bug that breaks the run
    is not caught by whoever compares.
    """

    def __init__(self, oracle: str, message: str) -> None:
        super().__init__(f"{oracle}: {message}")
        self.oracle = oracle


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
        if change["op"] in "st":
            found.clear()
            continue
        image = change["before"] or change["after"]
        key = image["key"] if "key" in image else _matching(found, image)
        held = found.get(key, ())
        if change["before"] is not None:
            found.pop(key, None)
        if change["after"] is not None:
            # What an image leaves out is as it was.
            values = {**dict(zip(NAMES, held, strict=False)), **change["after"]}
            found[values["key"]] = tuple(values[name] for name in NAMES)
    return found


def _matching(rows: dict[int, Row], image: dict[str, Any]) -> int:
    """The key of the row that an image without one means: by the columns of a unique index."""
    keys = [k for k, row in rows.items() if image.items() <= dict(zip(NAMES, row, strict=True)).items()]
    if len(keys) != 1:
        raise Violation("O1", f"{len(keys)} rows are meant by a before image")
    return keys[0]


def final_state(ledger: Ledger, lake: Path, feed: Path) -> None:
    """O1: not one key missing, extra or different, in the mirror and in what the feed describes."""
    _equal(ledger.rows(), mirror_rows(lake))
    _equal(ledger.rows(), feed_rows(feed))


def _equal(wanted: dict[int, Row], found: dict[int, Row]) -> None:
    missing, extra = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    different = sorted(key for key in wanted.keys() & found.keys() if wanted[key] != found[key])
    if missing or extra or different:
        raise Violation(
            "O1",
            f"{len(missing)} missing {missing[:5]}, {len(extra)} extra {extra[:5]}, "
            f"{len(different)} different {[(wanted[k], found[k]) for k in different[:3]]}",
        )


def _journal(
    paths: Iterable[Path], began: int
) -> tuple[dict[int, History], dict[int, History], Pairs, set[int]]:
    """By key what must be delivered, in order, and what may be before it; what was rolled back; keys of
    transactions whose outcome is unknown.

    What was committed before the cursor began is the snapshot's; what around that moment, either's.
    """
    done: dict[int, History] = {}
    perhaps: dict[int, History] = {}
    failed: set[tuple[int, int]] = set()
    unknown: dict[str, set[int]] = {}
    for path in paths:
        tried: dict[str, Any] = {}
        for line in path.read_text().splitlines():
            body = json.loads(line)
            if "outcome" not in body:
                tried = body
                failed |= {(key, number) for key, number, _ in body["lost"]}
                unknown[body["t"]] = {key for key, _, _ in body["ops"]}
                continue
            del unknown[body["t"]]
            if body["outcome"] == "failed":
                failed |= {(key, number) for key, number, _ in tried["ops"]}
            elif body["high"] > began:
                for key, number, op in tried["ops"]:
                    (done if tried["low"] >= began else perhaps).setdefault(key, []).append((number, op))
    return done, perhaps, failed, set().union(*unknown.values())


_READ: dict[Path, tuple[int, list[dict[str, Any]]]] = {}


def changes_of(feed: Path) -> list[dict[str, Any]]:
    """What the feed delivered, in order of arrival. Lines are only ever added, so they are read once.

    A large write may be torn by a kill: half a line was never flushed, and its batch comes again.
    """
    if not feed.exists():
        return []
    done, found = _READ.get(feed, (0, []))
    with feed.open("rb") as file:
        file.seek(done)
        fresh = file.read()
    whole = fresh[: fresh.rfind(b"\n") + 1]
    found = found + [json.loads(line) for line in whole.splitlines() if line.endswith(b"}}")]
    _READ.clear()
    _READ[feed] = (done + len(whole), found)
    return found


def history(journals: Iterable[Path], feed: Path, lake: Path) -> None:
    """O2: nothing that failed, everything that was acknowledged, in order, each transaction whole."""
    began = min((line["batch"]["start"] for line in changes_of(feed)), default=0)
    done, perhaps, failed, unknown = _journal(journals, began)
    first: dict[tuple[int, int], dict[str, Any]] = {}
    ends: dict[str, set[int]] = {}
    newest = (-1, -1)
    for line in changes_of(feed):
        change, place = line["change"], (line["change"]["position"], line["change"]["seq"])
        if not from_log(change):
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
            # The writers' notes begin with the transaction's name; one may be absent, or NULL.
            ends.setdefault((image.get("note") or "").partition(":")[0], set()).add(line["batch"]["end"])
    if split := [name for name, batches in ends.items() if len(batches) > 1 and name]:
        raise Violation("O2", f"transactions split over micro-batches: {split[:3]}")
    delivered: dict[int, History] = {}
    for _, change in sorted(first.items()):
        image = change["after"] or change["before"]
        if "key" not in image:
            continue
        # A before image may be the key alone.
        delivered.setdefault(image["key"], []).append((image.get("number"), change["op"]))
    for key in delivered.keys() | done.keys():
        # Keys that no writer numbers (bulk rows, sentinels) are the final state's to judge.
        written = key in done or 0 < key < 1_000_000
        wanted = done.get(key, []) if written and key not in unknown else None
        _one_key(key, delivered.get(key, []), wanted, perhaps.get(key, []), failed)
    for row in mirror_rows(lake).values():
        if (row[0], row[1]) in failed:
            raise Violation("O2", f"a value that was rolled back is in the mirror: key {row[0]}")


def _one_key(
    key: int, changes: History, committed: History | None, perhaps: History, failed: set[tuple[int, int]]
) -> None:
    last, present = 0, None
    for number, op in changes:
        if number is not None and (key, number) in failed:
            raise Violation("O2", f"key {key}: number {number} was rolled back and delivered")
        if op == "d":
            # A delete shows the image it removed, or its key.
            if present is False or (last and number not in (None, last)):
                raise Violation("O2", f"key {key}: a delete that removes {number} after {last}")
            present = False
            continue
        if number is None or number <= last or present is (op == "c"):
            raise Violation("O2", f"key {key}: {op} of number {number} after {last}")
        last, present = number, True
    if committed is None:
        return
    shown, wanted, before = ([n if op != "d" else "d" for n, op in h] for h in (changes, committed, perhaps))
    if shown not in (wanted, before + wanted):
        raise Violation("O2", f"key {key}: {shown[-5:]} was delivered, {wanted[-5:]} was committed")


def snapshot_left(checkpoint: Path) -> int | None:
    """How many chunks the newest committed batch leaves; None before there is one."""
    done = [int(path.name) for path in _files(checkpoint / "commits") if path.name.isdigit()]
    if not done:
        return None
    lines = (checkpoint / "offsets" / str(max(done))).read_text().splitlines()
    cursors = json.loads(lines[2])["snapshots"].values()
    return sum(int(cursor["of"]) - int(cursor["next"]) for cursor in cursors)


def from_log(change: dict[str, Any]) -> bool:
    """Whether a change is the log's, and not a snapshot's."""
    return change["op"] not in "rs"


def once_each(changes: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Without what the log told before: a batch that comes again has the same changes."""
    told: set[tuple[int, int]] = set()
    for change in changes:
        place = change["position"], change["seq"]
        if not from_log(change) or place not in told:
            yield change
        if from_log(change):
            told.add(place)


def effective(changes: Iterable[dict[str, Any]], present: set[int], ends: Sequence[int]) -> list[int]:
    """The positions in the log that a mirror must get a version for, of changes in order of arrival.

    `present` are the keys that the mirror has; it is kept up. `ends` are the ends of the batches, in order. A
    mirror gets no version where nothing of it changes: for a delete of what a snapshot did not find any more,
    and for a row that comes and goes within one batch.
    """
    places: list[int] = []
    # Keys that the mirror did not have when the batch began, and where the batch tells of them.
    came: dict[int, list[int]] = {}
    batch = -1
    for change in changes:
        op, at = change["op"], change["position"]
        number = bisect.bisect_left(ends, at) if from_log(change) else -1
        if number != batch:
            places += [place for many in came.values() for place in many]
            came, batch = {}, number
        if op in "st":
            if op == "t" and present - came.keys():
                places.append(at)
            present.clear()
            came.clear()
            continue
        old, new = ((change[image] or {}).get("key") for image in ("before", "after"))
        if old is not None and old != new:
            if old in present and came.pop(old, None) is None:
                places.append(at)
            present.discard(old)
        if new is not None:
            if from_log(change) and (new in came or new not in present):
                came.setdefault(new, []).append(at)
            elif from_log(change):
                places.append(at)
            present.add(new)
    return sorted({*places, *(place for many in came.values() for place in many)})


class Sampler:
    """O3, all the time: whenever the cursor is seen to have moved, what it acknowledges was durable before.

    Samples carry the moment they were taken; the files of Spark's commit log and of Delta's log carry the
    moment they were made, so it does not matter when those are read. An acknowledgement that is early by less
    than the time between two looks may be missed: tests that hold a batch back wait for looks.
    """

    def __init__(self, ledger: Ledger, checkpoint: Path, lake: Path, feed: Path) -> None:
        self._ledger, self._checkpoint, self._feed = ledger, checkpoint, feed
        self._log = lake / "_delta_log"
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
        changes = once_each(line["change"] for line in changes_of(self._feed))
        places = [place for place in effective(changes, set(), self.ends) if place > base]
        for moment, cursor in list(self._cursors):
            if cursor == base:
                continue
            # A log goes on also where nothing of the table is in it: the mirror hears of changes alone.
            before = bisect.bisect_right(places, cursor)
            change = places[before - 1] if before else -1
            for name, made, wanted in (
                ("Spark's commit", self._commits, cursor),
                ("the mirror", self._delta, change),
            ):
                if wanted >= 0 and not any(at <= moment and end >= wanted for at, end in made.values()):
                    raise Violation("O3", f"{cursor} was acknowledged before {name} had {wanted}")

    @property
    def ends(self) -> list[int]:
        """Where the batches that Spark committed end, in order."""
        return sorted({end for _, end in self._commits.values()})

    def _run(self) -> None:
        while not self._ended.wait(0.01):
            self._look()

    def _look(self) -> None:
        cursor = self._ledger.cursor()
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

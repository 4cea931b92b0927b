"""Which chunks were read when, by two witnesses: the pipeline's own notes, and the server's log of its COPYs.

A chunk is finished when the batch that holds it is in Spark's commit log.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from zoneinfo import ZoneInfo

from tests.faults.databases import Postgres
from tests.faults.rig import Rig

# Moments are kept to the millisecond by the server, and to the tick by the file system.
TICK = 0.01
_LINE = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+) \S+ .*statement: COPY (.*ledger.*)$")


def noted(rig: Rig) -> list[tuple[float, int]]:
    """The moment and the chunk of every read of the ledger, as the pipeline noted it."""
    return [(note["at"], note["index"]) for note in rig.points.notes("chunk") if "ledger" in note["table"]]


def finished(rig: Rig) -> dict[int, float]:
    """When each chunk of the ledger's first snapshot was finished."""
    found: dict[int, float] = {}
    before = 0
    for number in sorted(rig.commits()):
        body = json.loads((rig.checkpoint / "offsets" / str(number)).read_text().splitlines()[2])
        cursor = body["snapshots"].get(f"{rig.ledger.schema}.ledger")
        done = cursor["next"] if cursor is not None else 0
        moment = (rig.checkpoint / "commits" / str(number)).stat().st_mtime
        found.update(dict.fromkeys(range(before, done), moment))
        before = max(before, done)
    return found


def read_again(rig: Rig, reads: list[tuple[float, int]]) -> list[int]:
    """The chunks that were read once more after they were finished."""
    done = finished(rig)
    return sorted({index for at, index in reads if at > done.get(index, at) + TICK})


def every_chunk(rig: Rig, reads: list[tuple[float, int]]) -> bool:
    """Whether every chunk was read, and finished."""
    body = json.loads((rig.checkpoint / "offsets" / str(max(rig.commits()))).read_text().splitlines()[2])
    wanted = set(range(body["snapshots"][f"{rig.ledger.schema}.ledger"]["of"]))
    return wanted == set(finished(rig)) == {index for _, index in reads}


class ServerLog:
    """What a PostgreSQL server writes down of the pipeline's statements, from now on."""

    def __init__(self, ledger: Postgres) -> None:
        self._path = ledger.server.directory / "server.log"
        self._begin = self._path.stat().st_size
        name = ledger.database.name
        rows = ledger.admin(
            f"ALTER ROLE tailrace IN DATABASE {name} SET log_statement = 'all'", "SHOW log_timezone"
        )
        self._zone = ZoneInfo(rows[0][0])

    def reads(self) -> list[tuple[float, int]]:
        """The moment and the chunk of every COPY of the ledger: chunks are ranges of whole numbers."""
        with self._path.open(errors="replace") as file:
            file.seek(self._begin)
            found = [match.groups() for line in file if (match := _LINE.match(line.rstrip("\n")))]
        bounds = {text: [int(number) for number in re.findall(r"'(-?\d+)'", text)] for _, text in found}
        # By the upper bound; the last chunk has only a lower one, which is the upper one of the chunk before.
        order = sorted(bounds, key=lambda text: (max(bounds[text]), -len(bounds[text])))
        place = {text: index for index, text in enumerate(order)}
        return [
            (datetime.fromisoformat(moment).replace(tzinfo=self._zone).timestamp(), place[text])
            for moment, text in found
        ]

"""An index filled again on request while its pipeline is killed, and somebody reads it all the time."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from tailrace.app.refilling import Refills
from tailrace.model.table import TableRef
from tests.faults.rig import Rig
from tests.faults.test_documents import CHUNKS, arrive, documents, ready
from tests.support.documents.polling import Polling
from tests.support.waiting import wait_until

Make = Callable[..., Rig]
POINTS = [
    "ensured",
    "build",
    "document.before",
    "document.after",
    "documents.flushed",
    "publish.before",
    "publish.after",
    "flushed",
    "written",
]


def refills(r: Rig, kind: str) -> Refills:
    root = TableRef("main" if kind == "sqlite" else "public", "ledger")
    return Refills(lambda: {"ledger": root}, str(r.state), str(r.checkpoint))


def read(r: Rig) -> dict[str, Any]:
    with closing(sqlite3.connect(f"file:{documents(r).store}?mode=ro", uri=True, timeout=60)) as connection:
        rows = connection.execute("SELECT id, document FROM documents").fetchall()
    return {id_: json.loads(text) for id_, text in rows}


@pytest.mark.long
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_in_a_filling_that_was_asked_for_hides_no_document_and_loses_no_change(
    rig: Make, kind: str, point: str
) -> None:
    r = ready(rig(**CHUNKS))
    control = refills(r, kind)
    with Polling(lambda: read(r)).reading() as reader:
        r.points.arm(point, "kill")
        (filling,) = control.ask(["ledger"])
        r.pipe.died()
        reader.deletes("1000002")
        r.run("DELETE FROM ledger WHERE key = 1000002", "UPDATE lines SET of = 1000059 WHERE id = 1")
        r.points.arm(point, "kill")
        r.start().died()
        r.run("UPDATE ledger SET number = 9 WHERE key = 1000003")
        r.start()
        wait_until(lambda: control.state(filling) == "complete", timeout=60, what="the new documents")
        arrive(r)
    documents(r).check()
    r.settle()


@pytest.mark.long
@pytest.mark.parametrize("point", ["ensured", "document.after", "flushed", "written"])
def test_a_kill_beside_a_cancel_leaves_an_index_in_step(rig: Make, kind: str, point: str) -> None:
    r = ready(rig(**CHUNKS))
    control = refills(r, kind)
    with Polling(lambda: read(r)).reading() as reader:
        r.points.arm(point, "kill")
        (filling,) = control.ask(["ledger"])
        r.pipe.died()
        control.cancel(["ledger"])
        reader.deletes("1000002")
        r.run("DELETE FROM ledger WHERE key = 1000002", "UPDATE lines SET of = 1000059 WHERE id = 1")
        r.start()
        wait_until(lambda: control.state(filling) in ("cancelled", "complete"), timeout=60, what="an end")
        arrive(r)
    documents(r).check()
    assert r.pipe.terminate()["error"] is None

"""A commit that waits for a synchronous standby: documents wait for it, and `tailrace status` says so."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.cli.command import tailrace
from tests.engine.documenting import FEW, Documents, filling
from tests.snapshots.hidden import Hidden, lonely
from tests.support.postgres import Server, own_server
from tests.support.waiting import wait_until

__all__ = ["own_server"]


@pytest.mark.long
def test_a_document_is_built_only_when_the_row_is_visible_and_status_says_what_is_waited_for(
    tmp_path: Path, own_server: Server
) -> None:
    database = lonely(own_server).database()
    shop = Documents(tmp_path, database)
    shop.transaction(*filling(*FEW))
    shop.index("customers")
    held = cast(Any, SimpleNamespace(database=database, connect=database.connect))
    with shop.running() as error, Hidden(held) as application:
        shop.settles(error=error)
        before = shop.found().to_pydict()
        position = application.commit("INSERT INTO orders VALUES (900, 3, 77)")
        # Visible at once, and later in the log: it must not overtake.
        shop.transaction("UPDATE customers SET name = 'Grace' WHERE id = 4")

        def waits() -> str:
            assert error() is None
            return shop.status().waits_for or ""

        told = wait_until(waits, what="a word about the wait")
        assert "standby" in told
        body = json.loads(tailrace(tmp_path, "status", "--format", "json").stdout)
        assert body["waits_for"] == told
        text = tailrace(tmp_path, "status").stdout
        assert told.split(";")[0] in " ".join(text.split())
        assert shop.found().to_pydict() == before, "nothing is built, and nothing is written"
        assert (shop.status().acknowledged or 0) < position
        application.show()
        shop.settles(error=error)
        wait_until(lambda: shop.status().waits_for is None, what="the end of the wait")
    shop.check()

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bounds.grounds import Ground, PostgresGround, SqliteGround
from tests.support.postgres import own_server, postgres

__all__ = ["own_server", "postgres"]


@pytest.fixture(params=["sqlite", "postgres"])
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Ground:
    """Each source in turn; for a long test a server of its own, for what it writes fills disks."""
    if request.param == "sqlite":
        return SqliteGround(tmp_path)
    server = request.getfixturevalue("own_server" if request.node.get_closest_marker("long") else "postgres")
    return PostgresGround(server.database())

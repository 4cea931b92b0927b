from __future__ import annotations

from tests.support.postgres import database, own_server, postgres

__all__ = ["database", "own_server", "postgres"]

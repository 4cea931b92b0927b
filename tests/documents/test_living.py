"""Random indexes, rows, changes, restarts and kills: at every idle point the sink is what a rebuild gives.

TAILRACE_SEED repeats a run, but for the moments of its kills. TAILRACE_LIVING is how many seconds all long
ones together get, an hour by default.
"""

from __future__ import annotations

import os
import random
import sys
import time
import uuid
from pathlib import Path

import pytest

from tests.documents.living import Engine, World
from tests.support.documents.pipelines import App, OpenSearchStore, PostgresApp, SqliteApp
from tests.support.opensearch import Client
from tests.support.postgres import Database, Server

LIVING = float(os.environ.get("TAILRACE_LIVING", "3600"))
SEED = os.environ.get("TAILRACE_SEED", str(random.SystemRandom().randrange(10**9)))
LIVES = 5


def live(
    server: Server | None,
    directory: Path,
    engine: Engine,
    seconds: float,
    *,
    most: int = 10**9,
    cluster: Client | None = None,
) -> None:
    """World after world, until the time is over. Documents are kept in a file, or in a cluster."""
    kind = "sqlite" if server is None else "postgres"
    end, worlds, lives, kills, checks = time.monotonic() + seconds, 0, 0, 0, 0
    while time.monotonic() < end and worlds < most:
        sys.stdout.write(f"TAILRACE_SEED={SEED}, world {worlds} of {kind} on {engine}\n")
        dice = random.Random(f"{SEED} {kind} {engine} {worlds}")
        place = directory / f"world{worlds}"
        place.mkdir()
        database: Database | None = None if server is None else server.database()
        app: App = SqliteApp(place / "shop.db") if database is None else PostgresApp(database)
        name = f"w{database.name}" if database is not None else "living"
        prefix = f"w{uuid.uuid4().hex[:10]}_"
        store = None if cluster is None else OpenSearchStore(cluster.url, prefix)
        world = World(dice, app, place / "home", name, engine, store=store)
        try:
            for _ in range(LIVES):
                world.live()
                lives += 1
                if time.monotonic() > end:
                    break
        finally:
            world.close()
            if database is not None:
                database.drop()
            if cluster is not None:
                cluster.drop(prefix)
        worlds, kills, checks = worlds + 1, kills + world.kills, checks + world.checks
    sys.stdout.write(f"{worlds} worlds, {lives} lives, {kills} kills, {checks} checks\n")
    assert checks


@pytest.mark.timeout(1200)
def test_documents_of_postgres_survive_whatever_happens(postgres: Server, tmp_path: Path) -> None:
    live(postgres, tmp_path, "loop", 30)


@pytest.mark.timeout(1200)
def test_documents_of_sqlite_survive_whatever_happens(tmp_path: Path) -> None:
    live(None, tmp_path, "loop", 20)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_documents_kept_by_the_command_survive_whatever_happens(postgres: Server, tmp_path: Path) -> None:
    live(postgres, tmp_path, "spark", 10)


@pytest.mark.timeout(1200)
def test_documents_in_opensearch_survive_whatever_happens(tmp_path: Path, opensearch: Client) -> None:
    live(None, tmp_path, "loop", 5, cluster=opensearch)


@pytest.mark.long
@pytest.mark.timeout(LIVING + 1800)
@pytest.mark.parametrize("engine", ["loop", pytest.param("spark", marks=pytest.mark.spark)])
@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
def test_documents_survive_whatever_happens_for_long(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, engine: Engine
) -> None:
    server = request.getfixturevalue("postgres") if kind == "postgres" else None
    live(server, tmp_path, engine, LIVING / 4)


@pytest.mark.long
@pytest.mark.timeout(LIVING + 1800)
@pytest.mark.parametrize("engine", ["loop", pytest.param("spark", marks=pytest.mark.spark)])
def test_documents_in_opensearch_survive_whatever_happens_for_long(
    postgres: Server, tmp_path: Path, opensearch: Client, engine: Engine
) -> None:
    live(postgres, tmp_path, engine, LIVING / 4, cluster=opensearch)

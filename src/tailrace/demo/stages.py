"""Where the demonstration plays: a shop, and what is kept in step with it.

`sqlite`: a shop in SQLite, mirrors in Delta, documents in the document store; no server. `opensearch`: a shop
in PostgreSQL, documents in OpenSearch, both servers started for the occasion.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from tailrace import app
from tailrace.config import Config
from tailrace.demo import place, servers, shop
from tailrace.demo.database import connect
from tailrace.demo.store import INDEX, FileStore, Store
from tailrace.demo.view import Names
from tailrace.model.errors import ConfigError

Asked = Callable[[], bool]


@dataclass(frozen=True)
class Stage:
    """What a demonstration shows, and where that is."""

    config: Config
    shop: str
    tables: tuple[str, ...]
    store: Store
    names: Names
    # What there is to see, told at the start; where to look around, told at the end.
    told: str
    afterwards: str
    # Mirrors, where there are some.
    lake: Path | None = None
    # Waits until documents can be written, or until somebody asks for the end.
    ready: Callable[[Asked], None] = lambda _: None


@contextlib.contextmanager
def sqlite(directory: Path, asked: Asked) -> Iterator[Stage]:  # noqa: ARG001
    """Everything in files."""
    place.prepare(directory)
    url = f"sqlite:{directory.absolute()}/shop.db"
    with connect(url) as database:
        shop.create(database)
    text = """
[source]
url = "sqlite:shop.db"

[[table]]
name = "*"

[sinks.lake]
type = "delta"
path = "lake"

[sinks.documents]
type = "sqlite"
path = "documents.db"
"""
    yield Stage(
        config=place.configure(directory, text),
        shop=url,
        tables=shop.TABLES,
        store=FileStore(directory / "documents.db"),
        names=Names("SQLite", "the store", mirrors="Delta"),
        told=f"A shop in {directory}/shop.db, traffic from another process, mirrors in {directory}/lake,"
        f" documents in {directory}/documents.db.",
        afterwards=_look_into_files(directory),
        lake=directory / "lake",
    )


def _look_into_files(directory: Path) -> str:
    programs, config = _programs(), _config(directory)
    # Not `to_pyarrow_table`: its threads may still run when the interpreter ends, and then abort it.
    return (
        f"\nLook around:\n  {programs}/tailrace status -c {config}\n"
        f"  {programs}/tailrace search -c {config} {INDEX} kettle\n"
        f"  {programs}/python\n"
        "  >>> from deltalake import DeltaTable, QueryBuilder\n"
        f'  >>> orders = QueryBuilder().register("orders", DeltaTable("{directory}/lake/orders"))\n'
        '  >>> orders.execute("select * from orders limit 5").read_all()'
    )


@contextlib.contextmanager
def opensearch(directory: Path, asked: Asked) -> Iterator[Stage]:
    """Two servers, which are gone at the end."""
    place.prepare(directory)
    # These would decide how PostgreSQL is connected to, and are about another server.
    for name in [name for name in os.environ if name.startswith("PG")]:
        del os.environ[name]
    # The slower one first: it starts beside everything else.
    with servers.opensearch(directory) as (starting, found), servers.postgres(directory, asked) as source:
        url = source.url("shop", "shop")
        with connect(url) as database:
            shop.create(database)
        text = f"""
[source]
url = "{source.url("tailrace", "shop")}"

[sinks.search]
type = "opensearch"
url = "http://127.0.0.1:{found.port}"
# There is one node.
replicas = 0
"""
        config = place.configure(directory, text)
        app.setup(config)
        yield Stage(
            config=config,
            shop=url,
            # Those that documents are made of.
            tables=("customers", "orders", "items", "products"),
            store=found,
            names=Names("PostgreSQL", "OpenSearch"),
            told="A shop in PostgreSQL, traffic from another process, documents in OpenSearch.\n"
            "While it runs, in another terminal:\n"
            f"  curl -s 'http://127.0.0.1:{found.port}/{INDEX}/_search?q=name:ada&size=1&pretty'\n"
            f"  psql {shlex.quote(url)} -c 'select * from orders limit 5'\n"
            f"  {_programs()}/tailrace indexes -c {_config(directory)}",
            afterwards="Both servers end now. What they said is in"
            f" {directory}/postgres.log and {directory}/opensearch.log.",
            ready=lambda asked: starting.wait(found.answers, asked),
        )


STAGES: Mapping[str, Callable[[Path, Asked], AbstractContextManager[Stage]]] = {
    "sqlite": sqlite,
    "opensearch": opensearch,
}


def chosen(environ: Mapping[str, str]) -> Callable[[Path, Asked], AbstractContextManager[Stage]]:
    """The stage that SINK names; without it the one that needs no server."""
    name = environ.get("SINK", "").strip() or "sqlite"
    if name not in STAGES:
        raise ConfigError(
            f"there is no demonstration with SINK={name}",
            remedy="make demo, or make demo SINK=opensearch",
        )
    return STAGES[name]


def _programs() -> Path:
    programs = Path(sys.executable).parent
    return programs.relative_to(Path.cwd()) if programs.is_relative_to(Path.cwd()) else programs


def _config(directory: Path) -> str:
    return shlex.quote(f"{directory}/tailrace.toml")

"""Documents of the ledger in a store beside the mirror: what a rig with an `[[index]]` has more."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from tests.faults.databases import Ledger, Postgres
from tests.faults.oracles import Violation
from tests.support.documents.compare import compare
from tests.support.documents.oracle import rebuild
from tests.support.opensearch import Client

# Each row of the ledger with the lines that hang on it, and what they add up to.
SCHEMA = """
version: 1
table: ledger
primary_key: key
fields:
  - long: key
  - long: number
  - text: note
  - has_many: lines
    table: lines
    primary_key: id
    foreign_key: of
    fields:
      - long: id
      - belongs_to: word
        table: words
        primary_key: id
        column: word
        fields: [{text: text}]
  - count: line_count
    table: lines
    foreign_key: of
"""
TABLES = (
    "CREATE TABLE lines (id bigint PRIMARY KEY, of bigint, word bigint)",
    "CREATE TABLE words (id bigint PRIMARY KEY, text text)",
    "CREATE INDEX lines_of ON lines (of)",
    "CREATE INDEX lines_word ON lines (word)",
)


# What a cluster gives at once.
PAGE = 10_000


@dataclass(frozen=True)
class Search:
    """A cluster in place of the store: a client of it, what its indexes begin with, the sink's settings."""

    client: Client
    prefix: str
    settings: dict[str, Any]


class Documents:
    """The index `ledger` of a rig: its tables, its configuration, its store, its oracle.

    `settings` are lines of its `[[index]]`. The store is the file `store`, or the cluster of `search`.
    """

    def __init__(
        self, directory: Path, ledger: Ledger, settings: str, search: Search | None, store: str | None
    ) -> None:
        self._ledger, self._search, self._directory = ledger, search, directory
        self.store = Path(store or directory / "docs.db")
        self.index = f"{search.prefix}ledger" if search is not None else "ledger"
        ledger.run(*TABLES)
        if isinstance(ledger, Postgres):
            ledger.admin("ALTER PUBLICATION tailrace ADD TABLE lines, words")
        (directory / "ledger.schema.yml").write_text(SCHEMA)
        head, kept = "", f'type = "sqlite"\npath = "{self.store}"'
        if search is not None:
            head, kept = (
                f'prefix = "{search.prefix}"',
                f'type = "opensearch"\nurl = "{search.settings["url"]}"',
            )
        (directory / "tailrace.toml").write_text(
            f'{head}\n[source]\nurl = "{ledger.url}"\n[sinks.store]\n{kept}\n'
            f'[[index]]\nname = "ledger"\nschema = "ledger.schema.yml"\n{settings}\n'
        )

    def found(self) -> pa.Table:
        """The documents as any reader of the store's file, or of the alias, sees them."""
        rows = self._searched() if self._search is not None else self._stored()
        names = ("id", "version", "document")
        types = (pa.string(), pa.int64(), pa.large_string())
        columns: list[Any] = list(zip(*sorted(rows), strict=True)) or [(), (), ()]
        arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
        return pa.table(arrays, names=list(names))

    def _stored(self) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(f"file:{self.store}?mode=ro", uri=True, timeout=60)) as connection:
            return connection.execute("SELECT id, version, document FROM documents").fetchall()

    def _searched(self) -> list[tuple[Any, ...]]:
        assert self._search is not None
        client, body = self._search.client, {"size": PAGE, "version": True}
        hits = client.do("POST", f"/{self.index}/_search", body)["hits"]["hits"]
        if len(hits) == PAGE:
            found, hits = client.do("POST", f"/{self.index}/_search?scroll=1m", body), []
            while more := found["hits"]["hits"]:
                hits += more
                going = {"scroll": "1m", "scroll_id": found["_scroll_id"]}
                found = client.do("POST", "/_search/scroll", going)
            client.do("DELETE", "/_search/scroll", {"scroll_id": found["_scroll_id"]})
        return [(hit["_id"], hit["_version"], json.dumps(hit["_source"])) for hit in hits]

    def read(self) -> dict[str, Any]:
        """The documents by id, for somebody who reads all the time."""
        found = self.found()
        pairs = zip(found["id"].to_pylist(), found["document"].to_pylist(), strict=True)
        return {id_: json.loads(text) for id_, text in pairs}

    def versions(self) -> dict[str, int]:
        """The version of each document."""
        found = self.found()
        return dict(zip(found["id"].to_pylist(), found["version"].to_pylist(), strict=True))

    def letters(self) -> tuple[str, ...]:
        """The ids that are on record as rejected."""
        path = self._directory / "deadletters" / "documents.ndjson"
        lines = path.read_text().splitlines() if path.exists() else []
        return tuple(str(json.loads(line)["id"]) for line in lines)

    def check(self, without: tuple[str, ...] = ()) -> None:
        """O1 for documents: the store holds exactly what a naive rebuild gives, some ids aside."""
        with closing(self._ledger.connect()) as connection:
            wanted = rebuild(yaml.safe_load(SCHEMA), connection)
        found = self.found()
        keep = pa.array([id_ not in without for id_ in found["id"].to_pylist()], pa.bool_())
        kept = {id_: one for id_, one in wanted.items() if id_ not in without}
        if lines := compare(kept, found.filter(keep)):
            raise Violation("O1", f"{len(lines)} differences in documents: {lines[:3]}")

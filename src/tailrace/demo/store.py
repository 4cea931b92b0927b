"""The documents as a reader of the store gets them: by SQL from a file, by HTTP from a server.

No code of Tailrace's sinks.
"""

from __future__ import annotations

import http.client
import json
import sqlite3
from pathlib import Path
from typing import Any, Protocol

INDEX = "customers"
PAGE = 500


class Store(Protocol):
    """Where documents are kept."""

    def count(self) -> int | None:
        """How many documents readers see; None before there is anything."""

    def documents(self) -> dict[str, Any]:
        """All of them, by id."""


class FileStore:
    """The document store: a file of SQLite."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def count(self) -> int | None:
        try:
            return int(self._select("count(*)")[0][0]) if self.path.exists() else None
        except sqlite3.OperationalError:
            # It is being created at this very moment.
            return None

    def documents(self) -> dict[str, Any]:
        rows = self._select("id, document") if self.path.exists() else []
        return {id_: json.loads(text) for id_, text in rows}

    def _select(self, what: str) -> list[Any]:
        connection = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=5)
        try:
            query = f'SELECT {what} FROM documents WHERE "index" = ?'
            return connection.execute(query, (INDEX,)).fetchall()
        finally:
            connection.close()


class SearchServer:
    """OpenSearch on this machine. What its alias shows, without asking it for a refresh."""

    def __init__(self, port: int, index: str = INDEX) -> None:
        self.port, self.index = port, index

    def count(self) -> int | None:
        try:
            status, answer = self.ask("GET", f"/{self.index}/_count")
        except OSError:
            # It is starting, or ending.
            return None
        return int(answer["count"]) if status == 200 else None

    def documents(self) -> dict[str, Any]:
        status, page = self.ask("POST", f"/{self.index}/_search?scroll=1m", {"size": PAGE, "sort": ["_doc"]})
        if status == 404:
            return {}
        found: dict[str, Any] = {}
        while hits := page["hits"]["hits"]:
            found.update((hit["_id"], hit["_source"]) for hit in hits)
            _, page = self.ask("POST", "/_search/scroll", {"scroll": "1m", "scroll_id": page["_scroll_id"]})
        return found

    def answers(self) -> bool:
        """Whether it has started."""
        try:
            status, _ = self.ask("GET", "/_cluster/health?wait_for_status=yellow&timeout=1s")
        except OSError:
            return False
        return status == 200

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        except (http.client.HTTPException, ValueError) as error:
            raise OSError(f"no answer of OpenSearch: {error}") from error
        finally:
            connection.close()

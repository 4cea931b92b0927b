"""Full-text search in the document store: words to an expression of FTS5, and what it finds."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from tailrace.model.errors import UsageError
from tailrace.sinks.contract import Hit
from tailrace.sinks.sqlite.generations import search_table

# Private characters: no text has them by chance.
_BEGIN, _END = "\ue000", "\ue001"
_EXCERPT_TOKENS = 24


def expression(words: Sequence[str], *, raw: bool = False) -> str:
    """What to match: all words, each taken literally; with several parts in it, they stand together.

    `raw` takes them as they are, joined, as one expression.
    """
    if raw:
        return " ".join(words)
    return " ".join('"' + word.replace('"', '""').replace("\0", " ") + '"' for word in words)


def find(connection: sqlite3.Connection, number: int, match: str, limit: int) -> list[Hit]:
    """The best documents of a generation for an expression, best first, equal ones by id."""
    table = search_table(number)
    # Two steps: the excerpt is dear, and only those that are shown need one.
    best = (
        f"SELECT s.rowid AS number, s.rank AS score, e.id FROM {table} AS s"
        f" CROSS JOIN tailrace_entries AS e ON e.number = s.rowid WHERE {table} MATCH :match"
        " ORDER BY s.rank, e.id LIMIT :limit"
    )
    try:
        rows = connection.execute(
            f"WITH best AS MATERIALIZED ({best})"
            f" SELECT b.id, d.version, -b.score, snippet({table}, 0, :begin, :end, '…', {_EXCERPT_TOKENS}),"
            f" d.document FROM best AS b CROSS JOIN {table} ON {table}.rowid = b.number"
            " CROSS JOIN tailrace_documents AS d ON d.generation = :number AND d.id = b.id"
            f" WHERE {table} MATCH :match ORDER BY b.score, b.id",
            {"match": match, "limit": limit, "number": number, "begin": _BEGIN, "end": _END},
        ).fetchall()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        raise UsageError(
            f"the expression is not one that SQLite's full-text search understands ({_reason(error)})",
            remedy="leave --raw out to search for the words as they are, or write: ada AND (king OR queen*)",
        ) from None
    return [
        Hit(id_, version, score, _parts(text or ""), document) for id_, version, score, text, document in rows
    ]


def _reason(error: sqlite3.Error) -> str:
    return str(error).removeprefix("fts5: ")


def _parts(text: str) -> tuple[tuple[str, bool], ...]:
    """The excerpt cut at its marks, on one line."""
    parts: list[tuple[str, bool]] = []
    plain, *marked = " ".join(text.split()).split(_BEGIN)
    if plain:
        parts.append((plain, False))
    for piece in marked:
        match, _, rest = piece.partition(_END)
        parts.append((match, True))
        if rest:
            parts.append((rest, False))
    return tuple(parts)

"""The generations of the store's indexes: made, shown to readers, and removed in pieces.

A generation that nobody is to see or write any more leaves at once, by its number alone. What it held goes
afterwards, in short transactions: removing millions of documents in one would keep every writer waiting.
Numbers are never given twice, so nothing of it can turn up elsewhere.

Everything here runs inside a transaction of the caller.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

_LEAVE = """FROM tailrace_generations WHERE "index" = :index AND number NOT IN (:one, :other)"""


def search_table(number: int) -> str:
    """The name of the full-text index of a generation."""
    return f"tailrace_search_{number}"


def texts_table(number: int) -> str:
    """The name of the table with the texts of a generation."""
    return f"tailrace_texts_{number}"


def number_of(connection: sqlite3.Connection, index: str, generation: str) -> int | None:
    """The number of a generation; None where there is none, or it has left."""
    row = connection.execute(
        'SELECT number FROM tailrace_generations WHERE "index" = ? AND name = ?', (index, generation)
    ).fetchone()
    return None if row is None else int(row[0])


def exists(connection: sqlite3.Connection, number: int) -> bool:
    """Whether the generation may still be written to."""
    found = connection.execute("SELECT 1 FROM tailrace_generations WHERE number = ?", (number,))
    return found.fetchone() is not None


def shown(connection: sqlite3.Connection, index: str) -> int | None:
    """The number of the generation that readers see; None where there is no such index."""
    row = connection.execute("SELECT shown FROM tailrace_indexes WHERE name = ?", (index,)).fetchone()
    return None if row is None else int(row[0])


def names(connection: sqlite3.Connection) -> list[str]:
    """The indexes of the store."""
    return [str(name) for (name,) in connection.execute("SELECT name FROM tailrace_indexes ORDER BY name")]


def is_settled(connection: sqlite3.Connection, index: str, generation: str, mapping: str) -> bool:
    """Whether `settle` has nothing to do."""
    found = connection.execute(
        'SELECT 1 FROM tailrace_generations AS g JOIN tailrace_indexes AS i ON i.name = g."index"'
        ' WHERE g."index" = :index AND g.name = :generation AND g.mapping = :mapping AND NOT EXISTS ('
        'SELECT 1 FROM tailrace_generations WHERE "index" = :index AND number NOT IN (g.number, i.shown))',
        {"index": index, "generation": generation, "mapping": mapping},
    )
    return found.fetchone() is not None


def settle(connection: sqlite3.Connection, index: str, generation: str, mapping: str) -> None:
    """The generation is there, readers see one, and those that are neither leave."""
    number = number_of(connection, index, generation)
    if number is None:
        number = _add(connection, index, generation, mapping)
    else:
        connection.execute("UPDATE tailrace_generations SET mapping = ? WHERE number = ?", (mapping, number))
    connection.execute(
        "INSERT INTO tailrace_indexes (name, shown) VALUES (?, ?) ON CONFLICT (name) DO NOTHING",
        (index, number),
    )
    _leave(connection, index, number, shown(connection, index))


def show(connection: sqlite3.Connection, index: str, number: int, marker: str) -> None:
    """Readers see this generation from the next commit on; the others leave."""
    connection.execute("UPDATE tailrace_generations SET marker = ? WHERE number = ?", (marker, number))
    connection.execute("UPDATE tailrace_indexes SET shown = ? WHERE name = ?", (number, index))
    _leave(connection, index, number)


def marker_of(connection: sqlite3.Connection, index: str) -> str | None:
    """The marker of the generation that readers see."""
    row = connection.execute(
        "SELECT g.marker FROM tailrace_indexes AS i JOIN tailrace_generations AS g ON g.number = i.shown"
        " WHERE i.name = ?",
        (index,),
    ).fetchone()
    return None if row is None else row[0]


def look(connection: sqlite3.Connection, index: str) -> tuple[str, str | None, int] | None:
    """The name and marker of the generation that readers see, and how many documents it has."""
    row = connection.execute(
        "SELECT g.number, g.name, g.marker FROM tailrace_indexes AS i"
        " JOIN tailrace_generations AS g ON g.number = i.shown WHERE i.name = ?",
        (index,),
    ).fetchone()
    if row is None:
        return None
    # By the ids alone, which lie closer together than the documents; deletes are few.
    entries = "SELECT count(*) FROM tailrace_entries WHERE generation = ?"
    ids, removed = (
        int(connection.execute(statement, (row[0],)).fetchone()[0])
        for statement in (entries, f"{entries} AND removed IS NOT NULL")
    )
    return str(row[1]), row[2], ids - removed


def forget(connection: sqlite3.Connection, index: str) -> None:
    """The index is gone, and its generations leave."""
    connection.execute("DELETE FROM tailrace_indexes WHERE name = ?", (index,))
    _leave(connection, index)


def leaving(connection: sqlite3.Connection) -> int | None:
    """The number of a generation that is to be removed; None where there is none."""
    row = connection.execute("SELECT min(number) FROM tailrace_leaving").fetchone()
    return None if row[0] is None else int(row[0])


def remove_some(connection: sqlite3.Connection, rows: int) -> None:
    """Remove at most so many rows of a generation that is leaving, and itself when none is left."""
    number = leaving(connection)
    if number is None:
        return
    for statement in _removals(number):
        try:
            rows -= connection.execute(statement, {"number": number, "rows": rows}).rowcount
        except sqlite3.OperationalError as error:
            # A library in defensive mode guards the tables of the search: they go with it, in one piece.
            if "may not be modified" not in str(error):
                raise
        if rows <= 0:
            return
    connection.execute(f"DROP TABLE {search_table(number)}")
    connection.execute(f"DROP TABLE {texts_table(number)}")
    connection.execute("DELETE FROM tailrace_leaving WHERE number = ?", (number,))


def _removals(number: int) -> Iterator[str]:
    search = search_table(number)
    yield (
        "DELETE FROM tailrace_documents WHERE generation = :number AND id IN"
        " (SELECT id FROM tailrace_documents WHERE generation = :number ORDER BY id LIMIT :rows)"
    )
    yield (
        "DELETE FROM tailrace_entries WHERE number IN"
        " (SELECT number FROM tailrace_entries WHERE generation = :number LIMIT :rows)"
    )
    # The first ten of the data describe the search itself, which is still to be opened.
    for table, key, where in (
        (texts_table(number), "number", ""),
        (f"{search}_data", "id", "WHERE id > 10"),
        (f"{search}_docsize", "id", ""),
        (f"{search}_idx", "(segid, term)", ""),
    ):
        columns = key.strip("()")
        yield f"DELETE FROM {table} WHERE {key} IN (SELECT {columns} FROM {table} {where} LIMIT :rows)"


def _add(connection: sqlite3.Connection, index: str, generation: str, mapping: str) -> int:
    added = connection.execute(
        'INSERT INTO tailrace_generations ("index", name, mapping) VALUES (?, ?, ?) RETURNING number',
        (index, generation, mapping),
    ).fetchone()
    number = int(added[0])
    search, texts = search_table(number), texts_table(number)
    connection.execute(f"CREATE TABLE {texts} (number INTEGER PRIMARY KEY, words TEXT)")
    connection.execute(
        f"CREATE VIRTUAL TABLE {search} USING fts5(words, content='{texts}', content_rowid='number',"
        " tokenize='unicode61 remove_diacritics 2')"
    )
    return number


def _leave(connection: sqlite3.Connection, index: str, *stay: int | None) -> None:
    """Every generation of the index but these leaves."""
    one, other = (*stay, -1, -1)[:2]
    about = {"index": index, "one": one, "other": other}
    connection.execute(f"INSERT INTO tailrace_leaving (number) SELECT number {_LEAVE}", about)
    connection.execute(f"DELETE {_LEAVE}", about)

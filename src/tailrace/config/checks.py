"""What spans several sections: sinks that feeds and tables name, targets, and defaults that depend on them.

Works on the tree before the models validate it, so that a file's problems are told all at once. Whatever has
the wrong shape is left to the models.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tailrace.config.hints import listed, nearest
from tailrace.config.outline import children
from tailrace.config.problems import Problem
from tailrace.config.sinks import DeltaSink, HttpSink, SqliteSink, StdoutSink

_HOLDS_TABLES = {
    "delta": DeltaSink.holds_tables,
    "http": HttpSink.holds_tables,
    # Neither: it holds documents.
    "sqlite": SqliteSink.holds_tables,
    "stdout": StdoutSink.holds_tables,
}
_WORK = ("feed", "table")
NOTHING_TO_DO = 'add a feed, `[[feed]]` with `tables = ["*"]`, or a mirror, `[[table]]` with `name = "*"`'


def complete(tree: dict[str, Any]) -> list[Problem]:
    """Fill in the sinks that feeds and tables left out; what contradicts itself is returned."""
    sinks = tree.setdefault("sinks", {})
    if not isinstance(sinks, dict):
        return []
    problems: list[Problem] = []
    tables, feeds = _entries(tree, "table"), _entries(tree, "feed")
    # Where `[[feeds]]` stands, that is what is wrong, and it is told as an unknown key.
    misspelt = any(nearest(key, _WORK) for key in tree if key not in children(()))
    if not misspelt and not any(tree.get(key) for key in _WORK):
        problems.append(
            Problem(
                (), "there is nothing to do: the file has no `[[feed]]` and no `[[table]]`", NOTHING_TO_DO
            )
        )
    for index, feed in feeds:
        problems += _feed(index, feed, sinks)
    for index, table in tables:
        problems += _table(index, table, sinks)
    problems += _duplicates(tables)
    problems += _uncaptured(tree, tables, feeds)
    return problems


def _entries(tree: dict[str, Any], key: str) -> list[tuple[int, dict[str, Any]]]:
    entries = tree.get(key)
    if not isinstance(entries, list):
        return []
    return [(index, entry) for index, entry in enumerate(entries) if isinstance(entry, dict)]


def _of_kind(sinks: dict[str, Any], *, tables: bool | None) -> list[str]:
    kinds = {name: sink.get("type") for name, sink in sinks.items() if isinstance(sink, dict)}
    return [
        name
        for name, kind in kinds.items()
        if isinstance(kind, str) and kind in _HOLDS_TABLES and _HOLDS_TABLES[kind] is tables
    ]


def _feed(index: int, feed: dict[str, Any], sinks: dict[str, Any]) -> Iterator[Problem]:
    fitting = _of_kind(sinks, tables=False)
    if "sink" not in feed:
        if len(fitting) > 1:
            yield Problem(
                ("feed", index), f"says no sink, and there are several: {listed(fitting)}", "add `sink = …`"
            )
            return
        if not fitting:
            sinks.setdefault("stdout", {"type": "stdout"})
        feed["sink"] = fitting[0] if fitting else "stdout"
    problem = _named(("feed", index, "sink"), feed["sink"], sinks)
    if problem is not None:
        yield problem
    elif feed["sink"] in _of_kind(sinks, tables=True):
        yield Problem(
            ("feed", index, "sink"),
            f"the sink `{feed['sink']}` holds tables and takes no change feed",
            "name another sink here, or mirror with `[[table]]`",
        )
    elif feed["sink"] in _of_kind(sinks, tables=None):
        yield Problem(
            ("feed", index, "sink"),
            f"the sink `{feed['sink']}` holds documents and takes no change feed",
            "name another sink here",
        )


def _table(index: int, table: dict[str, Any], sinks: dict[str, Any]) -> Iterator[Problem]:
    fitting = _of_kind(sinks, tables=True)
    if table.get("name") == "*" and table.get("as"):
        yield Problem(("table", index, "as"), "every table would have the same target", "leave `as` out")
    if "sink" not in table:
        if len(fitting) != 1:
            which = f"there are several: {listed(fitting)}" if fitting else "there is no delta sink"
            remedy = (
                "add `sink = …`"
                if fitting
                else 'add a sink, `[sinks.lake]` with `type = "delta"` and `path = "lake"`'
            )
            yield Problem(("table", index), f"says no sink, and {which}", remedy)
            return
        table["sink"] = fitting[0]
    problem = _named(("table", index, "sink"), table["sink"], sinks)
    if problem is not None:
        yield problem
    elif table["sink"] in _of_kind(sinks, tables=False):
        yield Problem(
            ("table", index, "sink"),
            f"the sink `{table['sink']}` takes changes and cannot hold a table",
            "name a delta sink here, or send changes with `[[feed]]`",
        )
    elif table["sink"] in _of_kind(sinks, tables=None):
        yield Problem(
            ("table", index, "sink"),
            f"the sink `{table['sink']}` holds documents and cannot hold a table",
            "name a delta sink here",
        )


def _named(path: tuple[str | int, ...], sink: Any, sinks: dict[str, Any]) -> Problem | None:
    if not isinstance(sink, str) or sink in sinks:
        return None
    return Problem(
        path, f"there is no sink `{sink}`{nearest(sink, sinks)}", f"add `[sinks.{sink}]` or name another"
    )


def _duplicates(tables: list[tuple[int, dict[str, Any]]]) -> Iterator[Problem]:
    taken: set[tuple[str, str]] = set()
    for index, table in tables:
        name, sink = table.get("name"), table.get("sink")
        if not isinstance(name, str) or not isinstance(sink, str):
            continue
        given = table.get("as")
        target = given if isinstance(given, str) and given else name.rpartition(".")[2]
        if (sink, target) in taken:
            key = "as" if given else "name"
            yield Problem(
                ("table", index, key),
                f"the target `{target}` in `{sink}` is taken",
                "give one of them another `as`",
            )
        taken.add((sink, target))


def _uncaptured(
    tree: dict[str, Any], tables: list[tuple[int, dict[str, Any]]], feeds: list[tuple[int, dict[str, Any]]]
) -> Iterator[Problem]:
    source = tree.get("source")
    watched = source.get("tables") if isinstance(source, dict) else None
    if not isinstance(watched, list) or not watched or "*" in watched:
        return
    names = {str(name).rpartition(".")[2] for name in watched}
    wanted: list[tuple[tuple[str | int, ...], Any]] = [
        (("table", i, "name"), t.get("name")) for i, t in tables
    ]
    for index, feed in feeds:
        listed_tables = feed.get("tables")
        if isinstance(listed_tables, list):
            wanted += [(("feed", index, "tables", at), name) for at, name in enumerate(listed_tables)]
    for path, name in wanted:
        if isinstance(name, str) and name != "*" and name.rpartition(".")[2] not in names:
            yield Problem(path, f"`{name}` is not among `source.tables`{nearest(name, names)}")

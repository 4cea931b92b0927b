"""What spans several sections: sinks that feeds, tables and indexes name, targets, and defaults by them.

Works on the tree before the models validate it, so that a file's problems are told all at once. Whatever has
the wrong shape is left to the models.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tailrace.config.hints import listed, nearest
from tailrace.config.outline import children
from tailrace.config.problems import Problem
from tailrace.config.sinks import DeltaSink, HttpSink, OpenSearchSink, SqliteSink, StdoutSink

if TYPE_CHECKING:
    from tailrace.config.index import IndexSchema

_HOLDS_TABLES = {
    "delta": DeltaSink.holds_tables,
    "http": HttpSink.holds_tables,
    # Neither: they hold documents.
    "opensearch": OpenSearchSink.holds_tables,
    "sqlite": SqliteSink.holds_tables,
    "stdout": StdoutSink.holds_tables,
}
_TAKES_DOCUMENTS = {
    "delta": DeltaSink.takes_documents,
    "http": HttpSink.takes_documents,
    "opensearch": OpenSearchSink.takes_documents,
    "sqlite": SqliteSink.takes_documents,
    "stdout": StdoutSink.takes_documents,
}
_WORK = ("feed", "table", "index")
NOTHING_TO_DO = (
    'add a feed, `[[feed]]` with `tables = ["*"]`, a mirror, `[[table]]` with `name = "*"`, or an index,'
    " `[[index]]` with `name` and `schema`"
)


def complete(tree: dict[str, Any]) -> list[Problem]:
    """Fill in the sinks that feeds, tables and indexes left out; what contradicts itself is returned."""
    sinks = tree.setdefault("sinks", {})
    if not isinstance(sinks, dict):
        return []
    problems: list[Problem] = []
    tables, feeds, indexes = (entries(tree, key) for key in ("table", "feed", "index"))
    # Those of the file, before one is added for feeds.
    takes_documents = _taking_documents(sinks)
    # Where `[[feeds]]` stands, that is what is wrong, and it is told as an unknown key.
    misspelt = any(nearest(key, _WORK) for key in tree if key not in children(()))
    if not misspelt and not any(tree.get(key) for key in _WORK):
        problems.append(
            Problem(
                (),
                "there is nothing to do: the file has no `[[feed]]`, no `[[table]]` and no `[[index]]`",
                NOTHING_TO_DO,
            )
        )
    elif indexes and not tables and not feeds and all(entry.get("enabled") is False for _, entry in indexes):
        problems.append(
            Problem(
                ("index", 0, "enabled"), "there is nothing to do: no index is enabled", "enable one of them"
            )
        )
    for index, feed in feeds:
        problems += _feed(index, feed, sinks)
    for index, table in tables:
        problems += _table(index, table, sinks)
    for at, entry in indexes:
        problems += _index(at, entry, sinks, takes_documents)
        problems += _refused_name(at, entry, tree.get("prefix", ""), sinks)
        # Where the top level's is wrong it is told there, once.
        entry.setdefault("on_error", "skip" if tree.get("on_error") == "skip" else "stop")
    problems += _duplicates(tables)
    problems += _same_names(indexes)
    problems += _uncaptured(tree, tables, feeds)
    return problems


def entries(tree: dict[str, Any], key: str) -> list[tuple[int, dict[str, Any]]]:
    """The tables of an array of tables, with their numbers."""
    found = tree.get(key)
    if not isinstance(found, list):
        return []
    return [(index, entry) for index, entry in enumerate(found) if isinstance(entry, dict)]


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
            "name another sink here, or keep documents in it with `[[index]]`",
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
            "name a delta sink here, or keep documents in it with `[[index]]`",
        )


def _taking_documents(sinks: dict[str, Any]) -> list[str]:
    kinds = {name: sink.get("type") for name, sink in sinks.items() if isinstance(sink, dict)}
    return [name for name, kind in kinds.items() if isinstance(kind, str) and _TAKES_DOCUMENTS.get(kind)]


def _index(at: int, index: dict[str, Any], sinks: dict[str, Any], fitting: list[str]) -> Iterator[Problem]:
    if "sinks" not in index:
        if not fitting:
            sinks.setdefault("stdout", {"type": "stdout"})
        index["sinks"] = list(fitting or ["stdout"])
    named = index["sinks"]
    if not isinstance(named, list):
        return
    if not named:
        yield Problem(("index", at, "sinks"), "names no sink", "leave `sinks` out, or name one")
    taking = _taking_documents(sinks)
    for number, sink in enumerate(named):
        path = ("index", at, "sinks", number)
        if (problem := _named(path, sink, sinks)) is not None:
            yield problem
        elif sink in named[:number]:
            yield Problem(path, f"the sink `{sink}` is named twice", "leave one of them out")
        elif sink in _of_kind(sinks, tables=True):
            yield Problem(
                path, f"the sink `{sink}` holds tables and takes no documents", "name another sink here"
            )
        elif sink in _of_kind(sinks, tables=False) and sink not in taking:
            yield Problem(path, f"the sink `{sink}` takes changes and no documents", "name another sink here")


def _refused_name(at: int, index: dict[str, Any], prefix: Any, sinks: dict[str, Any]) -> Iterator[Problem]:
    """OpenSearch takes fewer names than the file does."""
    name, named = index.get("name"), index.get("sinks")
    if not isinstance(name, str) or not isinstance(prefix, str) or not isinstance(named, list):
        return
    whole = prefix + name
    for sink in named:
        section = sinks.get(sink) if isinstance(sink, str) else None
        if not isinstance(section, dict) or section.get("type") != "opensearch":
            continue
        if whole != whole.lower() or whole[:1] in ("_", "-", "."):
            yield Problem(
                ("index", at, "name"),
                f"OpenSearch, the sink `{sink}`, takes no index of the name `{whole}`",
                "use lower-case letters, and begin with one or with a digit; `prefix` is part of the name",
            )
            return


def _same_names(indexes: list[tuple[int, dict[str, Any]]]) -> Iterator[Problem]:
    taken: set[str] = set()
    for at, index in indexes:
        name = index.get("name")
        if isinstance(name, str) and name in taken:
            yield Problem(
                ("index", at, "name"), f"the name `{name}` is taken", "give one of them another name"
            )
        elif isinstance(name, str):
            taken.add(name)


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
    watched = _watched(tree)
    if watched is None:
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


def uncaptured_by(tree: dict[str, Any], index: dict[str, Any], schema: IndexSchema) -> Iterator[Problem]:
    """The tables of an index's schema that capture does not watch; the paths are those of the schema."""
    from tailrace.config.index.names import split

    watched = _watched(tree)
    if watched is None or index.get("enabled") is False:
        return
    known = [split(str(name).lower()) for name in watched]
    for path, name in schema.tables():
        wanted = split(name.lower())
        # Where only one of them says a schema, the source knows whether they mean the same table.
        if not any(
            all(a in (b, "*") for a, b in zip(one[::-1], wanted[::-1], strict=False)) for one in known
        ):
            yield Problem(
                path,
                f"index `{index.get('name', '')}` needs `{name}`, which is not among `source.tables`"
                f"{nearest(name, map(str, watched))}",
                "add it to `source.tables`, or leave `source.tables` out",
            )


def _watched(tree: dict[str, Any]) -> list[Any] | None:
    """The tables that `source.tables` names; None where that is all that is needed."""
    source = tree.get("source")
    watched = source.get("tables") if isinstance(source, dict) else None
    return watched if isinstance(watched, list) and watched and "*" not in watched else None

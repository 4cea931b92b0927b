"""What a configuration means for a source: its tables, its mirrors and feeds, its files."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.app.backends import feed_sink_for, table_sink_for
from tailrace.capture.contract import Capture
from tailrace.model.errors import ConfigError
from tailrace.model.secret import mask_url
from tailrace.model.table import TableRef

if TYPE_CHECKING:
    from tailrace.config import Config
    from tailrace.engine.spec import Feed, Mirror

NO_DIRECTORY = frozenset("/\\%\0")


def checkpoint_of(config: Config) -> str:
    """Spark's checkpoint directory."""
    return str(config.state.directory / "checkpoint")


def spark_log_of(config: Config) -> Path:
    """The file that has Spark's own output."""
    return config.state.directory / "spark.log"


def captured_tables(config: Config, capture: Capture) -> list[TableRef]:
    refs = _resolved(config, capture, config.captured)
    if not refs:
        raise ConfigError(
            f"{mask_url(config.source.url)} has no tables that could be captured",
            remedy="create a table first, or correct source.url",
        )
    check_types(capture, config.source.types)
    return refs


def _resolved(config: Config, capture: Capture, names: Sequence[str]) -> list[TableRef]:
    """The tables that these names mean, or meant for a former run that goes on without them."""
    from tailrace.engine.progress import logged
    from tailrace.spark.named import resolved

    offset = logged(checkpoint_of(config))
    return resolved(capture, names, () if offset is None else offset.snapshots)


def _meant(config: Config, capture: Capture, names: Sequence[str]) -> dict[str, list[TableRef]]:
    """What each of these names means. All are looked up at once where they mean a table each."""
    together = _resolved(config, capture, names) if names else []
    if len(together) == len(names):
        return {name: [ref] for name, ref in zip(names, together, strict=True)}
    return {name: _resolved(config, capture, [name]) for name in names}


def check_types(capture: Capture, types: Mapping[str, str]) -> None:
    """ConfigError where a type is given for a column that the source does not have."""
    if not types:
        return
    columns: dict[str, list[str]] = {}
    for ref in capture.tables():
        # A table that cannot be captured has no columns to give types to.
        with contextlib.suppress(ConfigError):
            columns[ref.name] = columns[str(ref)] = [c.name for c in capture.describe(ref).columns]
    known = [f"{table}.{column}" for table, names in columns.items() for column in names]
    for name in types:
        if name in known:
            continue
        table = next((table for table in columns if name.startswith(f"{table}.")), None)
        near = difflib.get_close_matches(name, known, 1)
        if near:
            remedy = f"did you mean {near[0]}?"
        else:
            remedy = f"its columns: {', '.join(columns[table])}" if table else "write table.column"
        what = "no column of this source" if table is None else f"no column of the table {table}"
        raise ConfigError(f"types: {name} is {what}", remedy=remedy)


def mirrored_tables(config: Config, capture: Capture, refs: Sequence[TableRef]) -> set[TableRef]:
    """The tables that some [[table]] means."""
    named = [table.name for table in config.tables]
    return set(refs) if "*" in named else set(_resolved(config, capture, named))


def mirrors_of(config: Config, capture: Capture, refs: Sequence[TableRef]) -> tuple[Mirror, ...]:
    from tailrace.engine.spec import Mirror

    sinks = {table.sink: table_sink_for(table.sink, config.sinks[table.sink]) for table in config.tables}
    mirrors: dict[tuple[TableRef, str], Mirror] = {}
    # What stands still because it was dropped has no key to ask for, and had one.
    gone = set(refs).difference(capture.tables()) if capture.capabilities.partial else set()
    # A table that is named has its own entry; `*` means the others.
    meant = _meant(config, capture, [table.name for table in config.tables if table.name != "*"])
    for table in sorted(config.tables, key=lambda table: table.name == "*"):
        for ref in list(refs) if table.name == "*" else meant[table.name]:
            if table.name == "*" and (ref, table.sink) in mirrors:
                continue
            if ref not in gone and not capture.describe(ref).key:
                raise _keyless(ref)
            target = table.target or ref.name
            if target in (".", "..") or set(target) & NO_DIRECTORY:
                raise ConfigError(
                    f"the table {ref.name} cannot be mirrored as `{target}`: that is no name of a directory",
                    remedy='give it a name without / \\ %: `as = "…"` in its [[table]]',
                )
            mirror = Mirror(ref, target, sinks[table.sink], table.schema_changes, table.sink)
            mirrors[ref, table.sink] = mirror
    places: dict[tuple[str, str], TableRef] = {}
    for (ref, sink), mirror in mirrors.items():
        other = places.setdefault((sink, mirror.target), ref)
        if other != ref:
            raise ConfigError(
                f"the tables {other} and {ref} have the same target {mirror.target} in sink {sink}",
                remedy='give one of them another name: `as = "…"` in its [[table]]',
                place=str(config.path),
            )
    return tuple(mirrors.values())


def _keyless(ref: TableRef) -> ConfigError:
    return ConfigError(
        f"the table {ref.name} has no primary key, so it cannot be mirrored",
        remedy=f"give {ref.name} a primary key, or send its changes by a [[feed]] instead",
    )


def feeds_of(config: Config, capture: Capture, refs: Sequence[TableRef]) -> tuple[Feed, ...]:
    from tailrace.engine.spec import Feed

    feeds = []
    for feed in config.feeds:
        tables = frozenset(refs if "*" in feed.tables else _resolved(config, capture, feed.tables))
        sink = feed_sink_for(feed.sink, config.sinks[feed.sink])
        feeds.append(Feed(tables, sink, feed.snapshot, feed.sink))
    return tuple(feeds)

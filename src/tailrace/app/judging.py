"""What stands in the way of a run, found before anything is created.

A run refuses the first error (`refuse`); `tailrace check` tells all of them (`check`).
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.app.backends import document_sink_for, opened
from tailrace.app.belonging import known_offset, strangers
from tailrace.app.parts import captured_tables, feeds_of, mirrored_tables, mirrors_of
from tailrace.capture.contract import KEY_UNTOLD, Capture, Finding
from tailrace.model.errors import (
    ConfigError,
    IdentityMismatch,
    NeedsOperator,
    SchemaDrift,
    SetupMissing,
    TailraceError,
    Transient,
)
from tailrace.model.scheme import scheme_of
from tailrace.model.table import TableRef

if TYPE_CHECKING:
    from tailrace.config import Config
    from tailrace.documents.mapping import IndexMapping

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_UNSET = ("not_set_up", "not_permitted", "no_table")
_MASTER = re.compile(r"local|local\[(\d+|\*)(,\s*\d+)?\]|local-cluster\[.*\]|yarn|(spark|k8s)://.+")


def judge(config: Config, capture: Capture, refs: Sequence[TableRef]) -> list[Finding]:
    """What stands in the way. What a run sets up by itself is told, but is no error."""
    findings = _unwritables(config)
    # Whose state it is can be asked only where there can be any.
    findings += [] if findings else strangers(config, capture)
    if findings:
        return findings
    offset = known_offset(config)
    read_before = set() if offset is None else set(offset.snapshots)
    for finding in covered(config, capture, refs):
        # What a former run relied on must not change under it; of any other table a run installs capture.
        if (
            finding.code in ("not_set_up", "drift")
            and config.source.setup == "auto"
            and finding.table not in read_before
        ):
            finding = replace(finding, severity="info", remedy="nothing to do: `tailrace run` sets it up")  # noqa: PLW2901
        findings.append(finding)
    if not _MASTER.fullmatch(config.spark.master):
        message = f"`{config.spark.master}` is not a master of Spark"
        remedy = "local[2], spark://host:7077, yarn or k8s://https://host:443 in [spark]"
        findings.append(Finding("error", "spark_master", message, remedy=remedy))
    return findings


def covered(config: Config, capture: Capture, refs: Sequence[TableRef]) -> list[Finding]:
    """What the capture finds; what only a mirror cannot live with is an error where there is one."""
    findings = capture.coverage(refs)
    if not any(finding.code == KEY_UNTOLD for finding in findings):
        return findings
    mirrored = {str(ref) for ref in mirrored_tables(config, capture, refs)}
    return [
        replace(finding, severity="error")
        if finding.code == KEY_UNTOLD and finding.table in mirrored
        else finding
        for finding in findings
    ]


def _unwritables(config: Config) -> list[Finding]:
    remedy = "choose another directory in the file, or give this user the right to write there"
    faults = [unwritable(directory, what) for what, directory in _directories(config)]
    return [Finding("error", "unwritable", fault, remedy=remedy) for fault in faults if fault is not None]


def _directories(config: Config) -> Iterator[tuple[str, Path]]:
    """The local directories that a run writes to."""
    yield "the state", config.state.directory
    for name, sink in config.sinks.items():
        if sink.type == "delta" and not _URI.match(sink.path):
            yield f"sink {name}", Path(sink.path)
        elif sink.type == "sqlite":
            yield f"sink {name}", sink.path.parent


def unwritable(directory: Path, what: str) -> str | None:
    there = directory
    while not os.path.exists(there) and there != there.parent:  # noqa: PTH110 - a Path's own raises
        there = there.parent
    if not there.is_dir():
        return f"{there} is not a directory, so {what} cannot be kept in {directory}"
    try:
        # Permissions do not tell it everywhere: some file systems take no directories at all.
        os.rmdir(tempfile.mkdtemp(prefix=".tailrace-", dir=there))  # noqa: PTH106
    except OSError as error:
        why = f"cannot be written ({error.strerror})"
        return f"{there} {why}, so {what} cannot be kept in {directory}"
    return None


def going_on(
    findings: Sequence[Finding], config: Config, capture: Capture, refs: Sequence[TableRef]
) -> list[Finding]:
    """The findings without those of tables that stand still alone, while a former run's others go on."""
    offset = known_offset(config)
    if offset is None or not capture.capabilities.partial:
        return list(findings)
    unset = {f.table for f in findings if f.severity == "error" and f.code in _UNSET}
    if not any(str(ref) in offset.snapshots and str(ref) not in unset for ref in refs):
        return list(findings)
    return [f for f in findings if f.table not in unset or f.table not in offset.snapshots]


def refuse(findings: Sequence[Finding]) -> None:
    """Raise the first error among them, as the kind it is."""
    kinds: dict[str, type[TailraceError]] = {
        "not_set_up": SetupMissing,
        "drift": SchemaDrift,
        "other_source": IdentityMismatch,
        KEY_UNTOLD: NeedsOperator,
    }
    for finding in findings:
        if finding.severity == "error":
            raise kinds.get(finding.code, ConfigError)(finding.message, remedy=finding.remedy)


def check(config: Config, *, offline: bool = False) -> list[Finding]:
    """Everything that is wrong, or worth knowing, before a run. Changes nothing.

    Offline nothing is opened: the configuration was read, and its indexes are judged by their schemas alone.
    """
    indexes = judge_indexes(config)
    found: list[Finding] = []
    with _told(found):
        opensearch_bodies(config)
    for name in dict.fromkeys(name for index in config.indexes for name in index.sinks):
        with _told(found):
            document_sink_for(config, name)
    if offline:
        return found + indexes
    try:
        with opened(config) as capture:
            # A source that does not answer is told once, not for every table.
            capture.tables()
            indexes = judge_indexes(config, capture)
            refs = _there(config, capture, found, indexes)
            found += judge(config, capture, refs)
            for part in (mirrors_of, feeds_of):
                with _told(found):
                    part(config, capture, refs)
    except ConfigError as error:
        _tell(found, error)
    except NeedsOperator as error:
        found.append(Finding("error", "source", error.message, remedy=error.remedy))
    return found + _unanswered(config) + indexes


def _unanswered(config: Config) -> list[Finding]:
    """Sinks that keep documents and cannot be asked for them, or have something else in an index's place.

    Each is asked once for an index, and not again where it does not answer. What is so for all is told once.
    """
    found: dict[tuple[str, str], Finding] = {}
    silent: set[str] = set()
    for index in (one for one in config.indexes if one.enabled):
        for name in index.sinks:
            try:
                sink = document_sink_for(config, name)
            except ConfigError:
                # It was told where the parts of the file are judged.
                continue
            if name in silent or not sink.keeps:
                continue
            sink.hurry()
            try:
                sink.look(config.prefix + index.name)
            except TailraceError as error:
                place = error.place or f"sinks.{name}"
                remedy = error.remedy or f"start it, or correct the settings of [sinks.{name}]"
                told = Finding("error", "sink", error.message, remedy=remedy, place=place)
                found.setdefault((name, error.message), told)
                if isinstance(error, Transient):
                    silent.add(name)
            finally:
                sink.close()
    return list(found.values())


def judge_indexes(config: Config, capture: Capture | None = None) -> list[Finding]:
    """What is wrong with the indexes. A source that is given is asked about those that are enabled."""
    if not config.indexes:
        return []
    from tailrace.documents.check import check_index

    dialect = "sqlite" if scheme_of(config.source.url) == "sqlite" else "postgres"
    return [
        finding
        for index in config.indexes
        for finding in check_index(
            index.name, index.schema_, capture if index.enabled else None, dialect=dialect
        )
    ]


def mappings(config: Config) -> dict[str, IndexMapping]:
    """What the documents of each index look like, by the index's name."""
    from tailrace.documents.mapping import derive_mapping

    return {index.name: derive_mapping(index.schema_) for index in config.indexes}


def opensearch_bodies(config: Config) -> dict[str, dict[str, Any]]:
    """How OpenSearch is told of each index, by the index's and the sink's name. Opens nothing."""
    if all(sink.type != "opensearch" for sink in config.sinks.values()):
        return {}
    found = mappings(config)
    bodies: dict[str, dict[str, Any]] = {}
    for index in config.indexes:
        for name in index.sinks:
            sink = config.sinks[name]
            if sink.type == "opensearch":
                from tailrace.sinks.opensearch.mapping import index_body

                body = index_body(
                    found[index.name].to_json(),
                    analysis=sink.analysis,
                    shards=sink.shards,
                    replicas=sink.replicas,
                    settings=sink.settings,
                )
                bodies.setdefault(index.name, {})[name] = body
    return bodies


def _there(
    config: Config, capture: Capture, found: list[Finding], indexes: Sequence[Finding]
) -> list[TableRef]:
    """The tables that capture watches; those that are not there are left out, and told once."""
    try:
        return captured_tables(config, capture)
    except ConfigError as error:
        first = error
    broken = {finding.index for finding in indexes if finding.code == "catalog"}
    # What an index misses is told where its schema names it.
    missed = {name for index in config.indexes if index.name in broken for _, name in index.schema_.tables()}
    refs: dict[TableRef, None] = {}
    absent = False
    for name in config.captured:
        try:
            refs.update(dict.fromkeys(capture.resolve([name])))
        except ConfigError as error:
            absent = True
            if name not in missed:
                _tell(found, error)
    if not absent:
        _tell(found, first)
    return list(refs)


@contextlib.contextmanager
def _told(found: list[Finding]) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        _tell(found, error)


def _tell(found: list[Finding], error: ConfigError) -> None:
    if not any(finding.message == error.message for finding in found):
        found.append(Finding("error", "config", error.message, remedy=error.remedy, place=error.place))

"""The Delta sink: each target is a Delta table that equals its source table, one commit a batch.

A commit carries the batch's progress as application transactions: the end of the log's range, and for a table
being snapshotted how many chunks of the plan are done. So the state and the record of it cannot part: what is
recorded is skipped, what is older than the record is skipped, and a batch may come any number of times.
"""

from __future__ import annotations

import os
import random
import time
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

from tailrace.model.errors import ConfigError, DataError, SchemaDrift, Transient, UsageError
from tailrace.model.net import NetChanges
from tailrace.model.secret import mask_url
from tailrace.model.table import TableSchema
from tailrace.sinks.contract import Progress, Report, TableSink
from tailrace.sinks.delta.client import Conflict, DeltaTarget
from tailrace.sinks.delta.config import DeltaConfig
from tailrace.sinks.delta.encode import lacking, merge_source, typed

_TELLS_PLACE = ("endpoint", "endpoint_url", "endpoint_url_s3", "account_name")


class DeltaSink(TableSink):
    """Mirrors tables under `config.path`."""

    def __init__(self, config: DeltaConfig) -> None:
        if not config.path:
            raise ConfigError("the delta sink needs a path", remedy='set path = "…" in its [sinks.…] table')
        self._config = config
        self._targets: dict[str, DeltaTarget] = {}

    def place(self, target: str) -> str:
        uri = mask_url(self._target(target).uri)
        if "://" not in uri or uri.startswith("file:"):
            return uri
        # A bucket of the same name at another endpoint is another one. What no option says, the library
        # takes from these variables.
        said = {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "AZURE_"))}
        said = {name.lower(): value for name, value in {**said, **self._config.storage_options}.items()}
        where = {name: value for name, value in said.items() if name.endswith(_TELLS_PLACE)}
        return " ".join([uri, *(f"{name}={mask_url(value)}" for name, value in sorted(where.items()))])

    def ensure(self, target: str, table: TableSchema) -> None:
        _check(table)
        delta = self._target(target)
        if not delta.refresh():
            delta.create(table)

    def exists(self, target: str) -> bool:
        return self._target(target).refresh()

    def apply(self, target: str, net: NetChanges, progress: Progress) -> Report:
        _check(net.table)
        delta = self._target(target)
        for attempt in range(self._config.attempts):
            try:
                return self._apply(delta, target, net, progress)
            except Conflict:
                delta.forget()
                time.sleep(random.uniform(0, 0.1 * 2**attempt))  # noqa: S311
        raise Transient(
            f"other writers kept committing to it, {self._config.attempts} times in a row",
            place=f"Delta table {delta.uri}",
        )

    def _apply(self, delta: DeltaTarget, target: str, net: NetChanges, progress: Progress) -> Report:
        exists = delta.refresh()
        name = f"tailrace:{progress.pipeline}:{progress.source}:{target}"
        log = f"{name}:log"
        snapshot = progress.snapshots.get(str(net.table.ref))
        plan = f"{name}:snapshot:{snapshot[0]}" if snapshot else None
        record = {log: progress.end}
        if snapshot and plan:
            record[plan] = snapshot[1]
        if progress.part:
            # What is in with a piece of a batch: whose, and how many of its changes.
            record = {f"{name}:piece-of": progress.end, f"{name}:piece": progress.part}
            if exists and _has_piece(delta, log, record):
                return Report(skipped=True)
        elif exists:
            known = {name: delta.recorded(name) for name in record}
            if all(version is not None and version >= record[name] for name, version in known.items()):
                return Report(skipped=True)
            if not net.reset:
                record[log] = max(progress.end, known[log] or 0)
            elif delta.recorded(f"{name}:piece-of"):
                # Positions may begin anew with what replaces everything.
                record |= {f"{name}:piece-of": 0, f"{name}:piece": 0}
        if exists and net.empty:
            return Report()
        before = delta.version if exists else 0
        unsettled = str(net.table.ref) in progress.unsettled
        report = self._write(delta, net, record, exists=exists, unsettled=unsettled)
        # Versions also grow by the clean-up itself, so it is due when a multiple was passed.
        every = self._config.maintain_every
        if delta.version // every > before // every and (note := delta.maintain()):
            report = Report(report.written, report.deleted, notes=(note,))
        return report

    def _write(
        self, delta: DeltaTarget, net: NetChanges, record: dict[str, int], *, exists: bool, unsettled: bool
    ) -> Report:
        missing = lacking(net)
        if not exists or net.reset:
            net = _completable(net, None, unsettled=unsettled)
            _refuse_filled(net.table, list(missing))
            upserts, _ = typed(net)
            if exists:
                delta.write(upserts, "overwrite", record)
            else:
                delta.start(upserts, record)
            return Report(written=net.upserts.num_rows)
        empty = delta.empty()
        # Of an empty mirror only rows of this very batch may be older than a column.
        _refuse_filled(net.table, [n for n in delta.lacking(net.table) if not empty or n in missing])
        delta.adapt(net.table, net.dropped)
        net = _completable(net, None if empty else delta, unsettled=unsettled)
        if net.empty:
            return Report()
        if empty:
            delta.write(delta.padded(typed(net)[0]), "append", record)
            return Report(written=net.upserts.num_rows)
        counts = delta.merge(merge_source(net), record)
        return Report(written=net.upserts.num_rows, deleted=int(counts.get("num_target_rows_deleted", 0)))

    def read(self, target: str) -> pa.Table:
        delta = self._target(target)
        if not delta.refresh():
            raise UsageError(f"there is no Delta table at {delta.uri}")
        return delta.read()

    def close(self) -> None:
        self._targets.clear()

    def _target(self, name: str) -> DeltaTarget:
        if name not in self._targets:
            # The object store takes % as the start of an escape, and would not find such a directory again.
            if not name or name in (".", "..") or set(name) & set("/\\%\0"):
                raise ConfigError(
                    f"{name!r} cannot be the name of a Delta table's directory",
                    remedy="give the table a target name without / \\ %",
                )
            path = self._config.path
            uri = path.rstrip("/") + "/" + name if len(path) > 1 else path + name
            if not urlsplit(path).scheme and "%" in path:
                raise ConfigError(
                    "the path of the delta sink must not contain %", remedy="choose another directory"
                )
            self._targets[name] = DeltaTarget(uri, self._config)
        return self._targets[name]


def _has_piece(delta: DeltaTarget, log: str, record: dict[str, int]) -> bool:
    """Whether the batch that the piece is of is recorded, or a piece of it that ends there or later."""
    end, _ = record.values()
    known = tuple(delta.recorded(name) or 0 for name in record)
    return (delta.recorded(log) or 0) >= end or known >= tuple(record.values())


def _check(table: TableSchema) -> None:
    if not table.identity:
        raise ConfigError(
            f"table {table.ref} has nothing that tells its rows apart and cannot be mirrored",
            remedy="declare a primary key",
            place=str(table.ref),
        )
    seen: dict[str, str] = {}
    for column in table.columns:
        other = seen.setdefault(column.name.lower(), column.name)
        if other != column.name:
            raise ConfigError(
                f"columns {other} and {column.name} of table {table.ref} differ only in case",
                remedy="rename one of the columns, or leave the table out of the mirror",
                place=str(table.ref),
            )


def _refuse_filled(table: TableSchema, added: list[str]) -> None:
    """Refuse columns that are new to older rows and may have a value in them all the same."""
    filled = [name for name in added if table.column(name).filled]
    if filled:
        raise SchemaDrift(
            f"table {table.ref} has new columns whose values in older rows are not in the log (a default?): "
            f"{', '.join(filled)}",
            remedy=f"make a new snapshot of {table.ref}",
            place=str(table.ref),
        )


def _completable(net: NetChanges, delta: DeltaTarget | None, *, unsettled: bool) -> NetChanges:
    """Without rows that lack columns and are not in the target, where nothing could complete them.

    They are an error, unless a chunk of the table's snapshot will bring them, or the log their delete.
    """
    strict = {name: rows for name, rows in lacking(net).items() if name not in net.later}
    if not strict:
        return net
    strangers = np.logical_or.reduce(list(strict.values()))
    if delta is not None:
        identity = list(net.table.identity)
        plain = [f"k{i}" for i in range(len(identity))]
        held = delta.keys(identity).select(identity).rename_columns(plain)
        keys = typed(net)[0].select(identity).rename_columns(plain)
        keys = keys.append_column("row", pa.array(np.arange(keys.num_rows))).filter(pa.array(strangers))
        found = keys.join(held, plain, join_type="left anti").column("row").to_numpy()
        strangers = np.zeros_like(strangers)
        strangers[found] = True
    if strangers.any() and not unsettled:
        names = [name for name, rows in strict.items() if (rows & strangers).any()]
        raise DataError(
            f"table {net.table.ref}: new rows lack the columns {', '.join(sorted(names))}",
            remedy=f"make a new snapshot of {net.table.ref}",
            place=str(net.table.ref),
        )
    return net.upserting(~strangers) if strangers.any() else net

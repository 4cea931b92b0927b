"""`tailrace status`: where a pipeline stands."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from tailrace.cli.options import AnswerFormat, ConfigPath, Format, LockPath, load
from tailrace.cli.screen import answers, columns, counted, seconds, size
from tailrace.cli.screen import waiting as held

if TYPE_CHECKING:
    from tailrace.engine.status import IndexStatus, Status, TableStatus


def command(
    context: typer.Context,
    config: ConfigPath = None,
    locked: LockPath = None,
    answer: AnswerFormat = Format.text,
) -> None:
    """Show where the pipeline stands: source, position, lag, snapshots, changelog, and whether it runs.

    Works while a pipeline runs and while none does, and disturbs neither. Lag counts from the last batch
    that Spark committed to the newest change of the source.

    Example: `tailrace status --format json | jq .lag.changes`
    """
    from tailrace import app

    loaded = load(context, config, locked)
    found = app.status(loaded)
    starting = found.running is None and app.is_starting(loaded)
    if answer is Format.json:
        typer.echo(json.dumps({**asdict(found), "starting": starting}, indent=2))
    else:
        _show(found, starting)


def _show(found: Status, starting: bool) -> None:
    console = answers()
    facts = _facts(found, starting)
    for (name, _), line in zip(facts, columns(facts), strict=True):
        line.stylize("bold", 0, len(name))
        console.print(line)
    parts: list[Sequence[Sequence[str]]] = [
        _consumers(found),
        _tables(found.tables),
        _indexes(found.indexes),
    ]
    for rows in parts:
        if not rows:
            continue
        console.print()
        for line in columns(rows, head=True):
            console.print(line)


def _facts(found: Status, starting: bool) -> list[tuple[str, str]]:
    if found.running:
        state = f"running: {found.running}"
    elif starting:
        state = "starting, or about to end: Spark is not at work"
    else:
        state = f"not running; last: {found.owner}" if found.owner else "never ran"
    source = f"{found.source}, newest position {found.head}" if found.source else str(found.problem)
    last = "none yet" if found.position is None else f"{found.batch}, up to position {found.position}"
    if found.lag is None:
        lag = "unknown until the first batch"
    else:
        known = [
            counted(found.lag.changes, "change") if found.lag.changes is not None else None,
            f"{size(found.lag.bytes)} of log" if found.lag.bytes is not None else None,
            seconds(found.lag.seconds) if found.lag.seconds is not None else None,
        ]
        lag = ", ".join(part for part in known if part is not None) or "unknown"
    waiting = [("snapshots wait", found.snapshots_wait)] if found.snapshots_wait else []
    if found.held_up is not None:
        waiting.append(("held up", held(found.held_up)))
    if found.stopped is not None:
        waiting.append(("stopped", f"{found.stopped.time}: {found.stopped.message}"))
    if found.waits_for:
        waiting.append(("waits for", found.waits_for))
    return [
        ("pipeline", found.name),
        ("state", state),
        ("source", source),
        ("last committed batch", last),
        ("lag", lag),
        *waiting,
        *(("warning", text) for text in found.limits_unseen),
        ("acknowledged", str(found.acknowledged) if found.acknowledged is not None else "nothing yet"),
        ("changelog", f"{size(found.changelog_bytes)} in {counted(found.changelog_segments, 'segment')}"),
        ("state directory", found.state_directory),
    ]


def _consumers(found: Status) -> list[tuple[str, str, str]]:
    if not found.consumers:
        return []
    rows = [("consumer", "acknowledged", "pending")]
    for consumer in found.consumers:
        pending = str(consumer.pending) if consumer.pending is not None else "unknown"
        if consumer.retained is not None:
            pending = f"{size(consumer.retained)} of log kept"
        pending += f": {consumer.risk}" if consumer.risk else ""
        mark = " (this pipeline)" if consumer.name == found.consumer else ""
        rows.append((consumer.name + mark, str(consumer.acknowledged), pending))
    return rows


def _tables(tables: list[TableStatus]) -> list[tuple[str, str]]:
    rows = [("table", "snapshot")]
    for table in tables:
        text = _snapshot(table)
        text += ", a fresh one is requested" if table.requested else ""
        rows.append((table.table, text + (f"; {table.problem}" if table.problem else "")))
    return rows


def _indexes(indexes: list[IndexStatus]) -> list[tuple[str, str]]:
    if not indexes:
        return []
    rows = [("index", "documents")]
    for index in indexes:
        parts = [index.state if index.state != "waiting" else f"waiting for {index.waits_for}"]
        if index.rows_done is not None and index.rows is not None:
            parts.append(f"about {index.rows_done:,} of {index.rows:,}")
        if index.rate is not None:
            parts.append(f"{index.rate:,.0f}/s")
        if index.seconds_left is not None:
            parts.append(f"{seconds(index.seconds_left)} left")
        if index.waits_for and index.state == "filling":
            parts.append(f"waits for {index.waits_for}")
        if index.requested:
            parts.append("to be filled again: somebody asked for it")
        if index.still is not None:
            parts.append(f"readers see what stands still since {index.still.time}")
        if index.reason and index.state == "complete":
            parts.append(f"to be filled again: {index.reason}")
        if index.dead_letters:
            parts.append(f"{counted(index.dead_letters, 'dead letter')} (tailrace deadletters list)")
        rows.append((index.index, ", ".join(parts)))
    return rows


def _snapshot(table: TableStatus) -> str:
    if table.snapshot == "none":
        return "paused before it began" if table.paused else "not begun"
    if table.snapshot in ("complete", "unneeded"):
        text = "complete" if table.snapshot == "complete" else "none needed"
        return text + (", the next one is paused" if table.paused else "")
    parts = [f"{table.chunks_done} of {counted(table.chunks, 'chunk')}"]
    if table.rows_done is not None and table.rows is not None:
        parts.append(f"about {table.rows_done:,} of {counted(table.rows, 'row')}")
    if table.rate is not None:
        parts.append(f"{table.rate:,.0f}/s")
    if table.seconds_left is not None:
        parts.append(f"{seconds(table.seconds_left)} left")
    state = "stopped at " if table.snapshot == "stopped" else "paused at " if table.paused else ""
    return state + ", ".join(parts) + (f" (where {table.where})" if table.where else "")

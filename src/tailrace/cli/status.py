"""`tailrace status`: where a pipeline stands."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer
from rich.table import Table
from rich.text import Text

from tailrace.cli.options import AnswerFormat, ConfigPath, Format, load
from tailrace.cli.screen import answers, seconds, size

if TYPE_CHECKING:
    from tailrace.engine.status import Status, TableStatus


def command(context: typer.Context, config: ConfigPath = None, answer: AnswerFormat = Format.text) -> None:
    """Show where the pipeline stands: source, position, lag, snapshots, changelog, and whether it runs.

    Works while a pipeline runs and while none does, and disturbs neither. Lag counts from the last batch
    that Spark committed to the newest change of the source.

    Example: `tailrace status --format json | jq .lag.changes`
    """
    from tailrace import app

    found = app.status(load(context, config))
    if answer is Format.json:
        typer.echo(json.dumps(asdict(found), indent=2))
    else:
        _show(found)


def _show(found: Status) -> None:
    console = answers()
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    for name, value in _facts(found):
        facts.add_row(name, Text(value))
    console.print(facts)
    if found.consumers:
        console.print(_consumers(found))
    console.print(_tables(found.tables))


def _facts(found: Status) -> list[tuple[str, str]]:
    if found.running:
        state = f"running: {found.running}"
    else:
        state = f"not running; last: {found.owner}" if found.owner else "never ran"
    source = f"{found.source}, newest position {found.head}" if found.source else str(found.problem)
    last = "none yet" if found.position is None else f"{found.batch}, up to position {found.position}"
    if found.lag is None:
        lag = "unknown until the first batch"
    else:
        lag = f"{found.lag.changes if found.lag.changes is not None else 'unknown'} changes"
        lag += f", {seconds(found.lag.seconds)}" if found.lag.seconds is not None else ""
    return [
        ("pipeline", found.name),
        ("state", state),
        ("source", source),
        ("last committed batch", last),
        ("lag", lag),
        ("acknowledged", str(found.acknowledged) if found.acknowledged is not None else "nothing yet"),
        ("changelog", f"{size(found.changelog_bytes)} in {found.changelog_segments} segments"),
        ("state directory", found.state_directory),
    ]


def _consumers(found: Status) -> Table:
    table = Table("consumer", "acknowledged", "pending", box=None, header_style="bold", padding=(0, 2, 0, 0))
    for consumer in found.consumers:
        pending = str(consumer.pending) if consumer.pending is not None else "unknown"
        mark = " (this pipeline)" if consumer.name == found.consumer else ""
        table.add_row(Text(consumer.name + mark), str(consumer.acknowledged), pending)
    return table


def _tables(tables: list[TableStatus]) -> Table:
    shown = Table("table", "snapshot", box=None, header_style="bold", padding=(0, 2, 0, 0))
    for table in tables:
        text = {"none": "not begun", "running": f"{table.chunks_done} of {table.chunks} chunks"}.get(
            table.snapshot, "complete"
        )
        shown.add_row(Text(table.table), text + (", a fresh one is requested" if table.requested else ""))
    return shown

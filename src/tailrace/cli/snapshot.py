"""`tailrace snapshot`: ask for a fresh snapshot."""

from __future__ import annotations

from typing import Annotated

import typer

from tailrace.cli.options import ConfigPath, load
from tailrace.cli.screen import answers, plain
from tailrace.model.errors import UsageError


def command(
    context: typer.Context,
    config: ConfigPath = None,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            "-t",
            metavar="TABLE",
            help="The table, or `*` for all of the pipeline's. May be given several times.",
        ),
    ] = None,
    waiting: Annotated[
        bool, typer.Option("--list", help="Show the requests that wait, and ask for nothing.")
    ] = False,
) -> None:
    """Ask for a fresh snapshot of tables, while a pipeline runs or before the next run.

    The request is a durable file in the state directory. A running pipeline takes it up within seconds, and
    changes keep flowing meanwhile; otherwise the next `tailrace run` does.

    Example: `tailrace snapshot --table orders --table items`
    """
    from tailrace import app

    loaded = load(context, config)
    if waiting:
        names = app.waiting_snapshots(loaded)
        for line in names or ["no snapshot is waiting"]:
            plain(answers(), line)
        return
    if not table:
        raise UsageError("which table?", remedy="tailrace snapshot --table TABLE, or --list")
    requests = app.request_snapshots(loaded, table)
    when = (
        "the running pipeline takes it up"
        if app.is_running(loaded)
        else "the next `tailrace run` takes it up"
    )
    for name, request in requests.items():
        plain(answers(), f"requested a snapshot of {name} ({request}): {when}")

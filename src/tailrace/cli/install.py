"""`tailrace setup` and `tailrace teardown`: what capture needs in the source, put there and taken away."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tailrace.cli.options import ConfigPath, LockPath, load
from tailrace.cli.screen import answers, plain
from tailrace.model.errors import UsageError


def setup(context: typer.Context, config: ConfigPath = None, locked: LockPath = None) -> None:
    """Install what capture needs in the source: for SQLite, triggers and log tables;
    for PostgreSQL, a publication.

    `tailrace run` does it by itself unless the file says `setup = "manual"`. Running it
    again does nothing, or mends a table that has changed since; such a table gets a fresh snapshot.
    """
    from tailrace import app

    done = app.setup(load(context, config, locked))
    for line in done or ["nothing to do: capture is set up for every table"]:
        plain(answers(), line)


def teardown(
    context: typer.Context,
    config: ConfigPath = None,
    locked: LockPath = None,
    *,
    table: Annotated[
        list[str] | None,
        typer.Option("--table", "-t", metavar="TABLE", help="Only this table. May be given several times."),
    ] = None,
    consumer: Annotated[
        str | None,
        typer.Option(
            "--consumer",
            metavar="NAME",
            help="Only the cursor of this consumer, which `tailrace status` lists: the source no longer keeps"
            " its log for it.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before removing everything.")] = False,
) -> None:
    """Remove from the source what setup put there.

    Without `--table` everything goes: triggers and logs, or publication and slots, and the cursors of every
    consumer, of other pipelines too. Changes that were not delivered yet are lost. The state directory and
    the mirrors stay.

    Examples: `tailrace teardown --yes`, `tailrace teardown --consumer old-pipeline`
    """
    from tailrace import app

    loaded = load(context, config, locked)
    if consumer is not None:
        if table:
            raise UsageError("--consumer and --table exclude each other", remedy="give one of them")
        app.forget_consumer(loaded, consumer)
        plain(answers(), f"removed the cursor of consumer {consumer}")
        return
    if not table and not yes:
        if not sys.stdin.isatty():
            raise UsageError(
                "teardown removes capture for every consumer, so it asks first, and there is nobody to ask",
                remedy="tailrace teardown --yes",
            )
        typer.confirm(
            "Remove everything of Tailrace from the source, for every consumer?", abort=True, err=True
        )
    done = app.teardown(loaded, table or ())
    for line in done or ["nothing to do: there is nothing of Tailrace in the source"]:
        plain(answers(), line)
    if not table and loaded.state.directory.exists():
        plain(
            answers(),
            f"left as it is: the state directory {loaded.state.directory} (remove it to start anew)",
        )

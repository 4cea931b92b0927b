"""`tailrace snapshot`: ask for a fresh snapshot, pause, resume and stop those that run."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Annotated

import typer

from tailrace.cli.options import ConfigPath, LockPath, load, pasteable
from tailrace.cli.screen import answers, plain
from tailrace.model.errors import UsageError


def command(
    context: typer.Context,
    config: ConfigPath = None,
    locked: LockPath = None,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            "-t",
            metavar="TABLE",
            help="The table, or `*` for all of the pipeline's. May be given several times.",
        ),
    ] = None,
    *,
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            metavar="CONDITION",
            help="Read only the rows for which this is true, in the source's own SQL. The other rows stay.",
        ),
    ] = None,
    pause: Annotated[
        bool, typer.Option("--pause", help="Take no further chunk, until resumed. All tables without -t.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="End a pause. All tables without -t.")] = False,
    stop: Annotated[
        bool,
        typer.Option(
            "--stop", help="End running snapshots where they are, withdraw waiting ones. All without -t."
        ),
    ] = False,
    waiting: Annotated[
        bool, typer.Option("--list", help="Show the requests that wait, and ask for nothing.")
    ] = False,
) -> None:
    """Ask for a fresh snapshot of tables, or pause, resume and stop snapshots, while a pipeline runs or not.

    Requests and orders are durable files in the state directory. A running pipeline takes them up within
    seconds, and changes keep flowing meanwhile; otherwise the next `tailrace run` does. A stopped snapshot
    leaves its mirror incomplete, and `tailrace status` says so.

    Examples: `tailrace snapshot --table orders --table items`, `tailrace snapshot -t orders --where "price >
    10"`, `tailrace snapshot --pause`
    """
    from tailrace import app

    loaded = load(context, config, locked)
    _refuse_mixtures(table, where, pause=pause, resume=resume, stop=stop, waiting=waiting)
    if waiting:
        _say(app.control(loaded).waiting() or ["no snapshot is waiting"])
        return
    control, tables = app.writable(loaded), table or []
    running = app.is_running(loaded)
    if pause:
        names = control.pause(*tables)
        _say(f"paused {name}: no chunk of it is read until `tailrace snapshot --resume`" for name in names)
    elif resume:
        _say([f"resumed {name}" for name in control.resume(*tables)] or ["nothing was paused"])
    elif stop:
        when = "the running pipeline ends it" if running else "the next `tailrace run` ends it"
        names = control.stop(*tables)
        _say([f"stopped the snapshot of {name}: {when}" for name in names] or ["no snapshot runs or waits"])
    else:
        made = control.snapshot(*tables, where=where)
        when = "the running pipeline" if running else "the next `tailrace run`"
        _say(
            f"requested a snapshot of {_short(name)} ({request}): {when} takes it up"
            for name, request in made.items()
        )
        for name in sorted(made.keys() & control.paused()):
            resuming = pasteable(f"tailrace snapshot --resume --table {shlex.quote(name)}")
            _say([f"{_short(name)} is paused, so it waits for: {resuming}"])


def _refuse_mixtures(
    table: list[str] | None, where: str | None, *, pause: bool, resume: bool, stop: bool, waiting: bool
) -> None:
    """UsageError where the options ask for several things at once, or for none."""
    given = {"--pause": pause, "--resume": resume, "--stop": stop, "--list": waiting}
    verbs = [name for name, is_given in given.items() if is_given]
    if len(verbs) > 1:
        raise UsageError(f"{' and '.join(verbs)} cannot be given together", remedy="give one of them")
    if where is not None and verbs:
        raise UsageError(f"--where is for a request, and {verbs[0]} is none", remedy="leave one of them out")
    if not verbs and not table:
        raise UsageError("which table?", remedy="tailrace snapshot --table TABLE, or --list")


def _short(name: str) -> str:
    """A table without its schema, where that is the usual one."""
    schema, _, rest = name.partition(".")
    return rest if schema in ("main", "public") else name


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        plain(answers(), line)

"""`tailrace reindex`: fill indexes again, beside what readers see."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn

from tailrace.cli.options import ConfigPath, LockPath, load, pasteable
from tailrace.cli.screen import answers, messages, plain, seconds
from tailrace.model.errors import NeedsOperator, UsageError

if TYPE_CHECKING:
    from tailrace.app.control import Control
    from tailrace.app.refilling import Refill
    from tailrace.config import Config
    from tailrace.engine.status import IndexStatus

LOOK_SECONDS = 0.5


def command(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="INDEX", help="The indexes.", show_default=False)
    ] = None,
    config: ConfigPath = None,
    locked: LockPath = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All indexes of the pipeline.")] = False,
    cancel: Annotated[
        bool,
        typer.Option("--cancel", help="End fillings that were asked for; readers keep what they see."),
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return when readers see the new documents; show how far it is.")
    ] = False,
) -> None:
    """Fill indexes again, beside the documents that readers see until the new ones are complete.

    The request is a durable file in the state directory: a running pipeline takes it up within seconds,
    otherwise the next `tailrace run` does. Changes go to both generations meanwhile, so readers miss nothing.
    Mirrors, feeds and other indexes are not touched. With `--wait` the exit code is 1 where it was cancelled.

    Examples: `tailrace reindex customers --wait`, `tailrace reindex --all`, `tailrace reindex customers
    --cancel`
    """
    from tailrace import app

    loaded = load(context, config, locked)
    if bool(names) == every:
        raise UsageError("which index?", remedy="tailrace reindex INDEX, or --all")
    if cancel and wait:
        raise UsageError("--cancel and --wait cannot be given together", remedy="give one of them")
    control, chosen = app.writable(loaded), ["*"] if every else names or []
    running = app.is_running(loaded)
    if cancel:
        ended = control.cancel_reindex(*chosen)
        when = "the running pipeline ends it" if running else "the next `tailrace run` ends it"
        for name in ended:
            plain(answers(), f"cancelled the filling of {name}: {when}, and readers keep what they see")
        if not ended:
            plain(answers(), "no filling was asked for")
        return
    refills = control.refills.ask(chosen)
    when = "the running pipeline takes it up" if running else "the next `tailrace run` takes it up"
    for one in refills:
        told = f"requested a filling of {one.index} ({one.request}): {when}"
        plain(answers(), told if one.request is not None else f"{one.index} is being filled, or is to be")
    if wait and not _wait(loaded, control, refills):
        raise typer.Exit(1)


def _wait(config: Config, control: Control, refills: Sequence[Refill]) -> bool:
    """Wait until all are complete; False where one was cancelled."""
    from tailrace import app

    left, cancelled = list(refills), False
    console = messages()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[words]}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        tasks = {one.index: bars.add_task(one.index, total=None, words="requested") for one in refills}
        while left:
            known = {one.index: one for one in control.status().indexes}
            for one in list(left):
                state = control.refills.state(one)
                if state in ("complete", "cancelled"):
                    left.remove(one)
                    cancelled |= state == "cancelled"
                    bars.remove_task(tasks[one.index])
                    said = "readers see the new documents" if state == "complete" else "it was cancelled"
                    plain(console, f"{one.index}: {said}")
                elif (look := known.get(one.index)) is not None and state == "filling":
                    bars.update(
                        tasks[one.index], total=look.rows, completed=look.rows_done or 0, words=_words(look)
                    )
            if left and not app.is_running(config) and not app.is_starting(config):
                raise NeedsOperator(
                    f"the pipeline does not run, so nothing fills {', '.join(one.index for one in left)}",
                    remedy=pasteable("tailrace run; the request waits for it"),
                )
            time.sleep(LOOK_SECONDS if left else 0)
    return not cancelled


def _words(look: IndexStatus) -> str:
    parts: list[str] = [look.state]
    if look.rows_done is not None and look.rows is not None:
        parts = [f"about {look.rows_done:,} of {look.rows:,}"]
    if look.rate is not None:
        parts.append(f"{look.rate:,.0f}/s")
    if look.seconds_left is not None:
        parts.append(f"{seconds(look.seconds_left)} left")
    if look.waits_for is not None:
        parts.append(f"waits for {look.waits_for}")
    return ", ".join(parts)

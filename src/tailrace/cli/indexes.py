"""`tailrace indexes`: what there is of each index."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from tailrace.cli.options import AnswerFormat, ConfigPath, Format, LockPath, load, pasteable
from tailrace.cli.screen import answers, columns, counted, messages, plain, seconds, waiting

if TYPE_CHECKING:
    from tailrace.app.looking import IndexesLook, IndexLook, SinkLook
    from tailrace.engine.heldup import HeldUp


def command(
    context: typer.Context,
    config: ConfigPath = None,
    locked: LockPath = None,
    answer: AnswerFormat = Format.text,
) -> None:
    """Show each index: what readers see of it, what is being filled, and what it waits for.

    Asks the sinks which generation they show and how many documents it has, where that is cheap, and compares
    the schema that it was filled with to the file's. A sink that does not answer is not waited for. Works
    while the pipeline runs and while it does not, and disturbs neither.

    Example: `tailrace indexes --format json | jq '.indexes[] | select(.state != "complete")'`
    """
    from tailrace import app

    found = app.indexes(load(context, config, locked))
    if answer is Format.json:
        typer.echo(json.dumps(asdict(found), indent=2))
    elif not found.indexes:
        plain(messages(), "the file has no index")
    else:
        _show(found)


def _show(found: IndexesLook) -> None:
    console = answers()
    if found.stopped is not None:
        plain(console, f"the pipeline stopped at {found.stopped.time}: {found.stopped.message}")
        console.print()
    for at, index in enumerate(found.indexes):
        if at:
            console.print()
        plain(console, index.name, "bold")
        for line in columns([(f"  {name}", text) for name, text in _facts(index)]):
            console.print(line)


def _facts(index: IndexLook) -> list[tuple[str, str]]:
    facts = [("state", _state(index))]
    if index.filling is not None:
        facts.append(("filling", _filling(index)))
    facts += [(f"sink {one.sink}", _sink(one, index.held_up)) for one in index.sinks]
    if index.held_up is not None:
        facts.append(("held up", waiting(index.held_up)))
    if index.still is not None:
        why = f"stands still since {index.still.time}, position {index.still.position}"
        facts.append(("readers", f"{why}: its schema is not the file's any more"))
    if index.schema_hash is not None:
        facts.append(("schema", _schema(index)))
    if index.problem is not None:
        facts.append(("problem", index.problem))
    if index.dead_letters:
        listing = pasteable("tailrace deadletters list")
        facts.append(("rejected", f"{counted(index.dead_letters, 'dead letter')} ({listing})"))
    return facts


def _state(index: IndexLook) -> str:
    words = {
        "disabled": "disabled in the file",
        "new": "not filled yet: the next run does it",
        "waiting": f"waits for {index.waits_for}",
        "filling": "being filled",
        "complete": f"complete, as of position {index.position}",
        "gone": f"gone from {_sinks([one for one in index.sinks if one.gone])}: the next run fills it again",
    }[index.state]
    if index.requested:
        words += "; to be filled again: somebody asked for it"
    elif index.reason and index.state == "complete":
        words += f"; to be filled again: {index.reason}"
    elif index.reason:
        words += f" ({index.reason})"
    silent = [one for one in index.sinks if one.problem is not None]
    if silent and index.state not in ("disabled", "gone"):
        tell = "does not tell" if len(silent) == 1 else "do not tell"
        words += f", by the state directory: {_sinks(silent)} {tell}"
    return words


def _sinks(some: Sequence[SinkLook]) -> str:
    names = [one.sink for one in some]
    return f"the sink{'' if len(names) == 1 else 's'} {' and '.join(names)}"


def _filling(index: IndexLook) -> str:
    parts = [str(index.filling)]
    if index.rows_done is not None and index.rows is not None:
        parts.append(f"about {index.rows_done:,} of {index.rows:,}")
    if index.rate is not None:
        parts.append(f"{index.rate:,.0f}/s")
    if index.seconds_left is not None:
        parts.append(f"{seconds(index.seconds_left)} left")
    if index.waits_for is not None:
        parts.append(f"waits for {index.waits_for}")
    return ", ".join(parts)


def _sink(one: SinkLook, wait: HeldUp | None) -> str:
    if one.problem is not None:
        return one.problem
    if one.shown is None:
        if one.gone:
            return "nothing any more"
        return "nothing yet" if one.keeps else "keeps nothing"
    parts = [f"shows {one.shown}"]
    if one.documents is not None:
        parts.append(counted(one.documents, "document"))
    # Readers see what is complete, or was, in the form that the settings asked for then.
    parts.append("complete" if one.complete else "not complete, or not as it would be stored now")
    held = wait is not None and wait.sink in (None, one.sink)
    parts.append("stands still" if not one.in_step else "held up" if held else "in step")
    return ", ".join(parts)


def _schema(index: IndexLook) -> str:
    if not index.outdated:
        return str(index.schema_hash)
    comes = "readers see the old one until it is filled" if index.filling else "it is filled again by a run"
    return f"{index.schema_hash}, and readers see {index.served_hash}: {comes}"

"""`tailrace deadletters`: documents that were passed over."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.options import AnswerFormat, ConfigPath, Format, LockPath, load
from tailrace.cli.screen import answers, columns, counted, messages, plain

if TYPE_CHECKING:
    from tailrace.engine.deadletters import DeadLetter

app = typer.Typer(
    help='Documents that were passed over, where an index has `on_error = "skip"`: list them, build them'
    " again.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
Index = Annotated[str | None, typer.Argument(metavar="INDEX", help="The index. Default: all of them.")]


@app.command("list")
def list_(
    context: typer.Context,
    index: Index = None,
    config: ConfigPath = None,
    locked: LockPath = None,
    answer: AnswerFormat = Format.text,
) -> None:
    """Show the documents that were passed over: index, id, when, and why.

    A document that was rejected several times is shown once. With `--format json` each is a line of JSON.

    Example: `tailrace deadletters list customers`
    """
    from tailrace import app as root

    letters = root.dead_letters(load(context, config, locked), index)
    _show(letters, answer)
    if not letters and answer is Format.text:
        plain(messages(), "no document was passed over")


@app.command()
def retry(
    context: typer.Context,
    index: Index = None,
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="ID", help="Only the document of this id; may be given several times."),
    ] = None,
    config: ConfigPath = None,
    locked: LockPath = None,
    *,
    answer: AnswerFormat = Format.text,
) -> None:
    """Build the documents that were passed over again, from the source as it is now, and write them.

    What is written is no dead letter any more; what is rejected again stays, is shown, and makes the exit
    code 1. Works while the pipeline runs and while it does not.

    Example: `tailrace deadletters retry customers --id 42`
    """
    from tailrace import app as root

    loaded = load(context, config, locked)
    known = {one.id for one in root.dead_letters(loaded, index)} if ids else set()
    for id_ in ids or ():
        if id_ not in known:
            plain(messages(), f"{id_} is no dead letter of {index}")
    done = root.retry_dead_letters(loaded, index, ids or None)
    _show(done.rejected, answer)
    if answer is Format.text:
        plain(messages(), f"{counted(done.written, 'document')} written, {len(done.rejected)} rejected again")
    if done.rejected:
        raise typer.Exit(1)


def _show(letters: Sequence[DeadLetter], answer: Format) -> None:
    if answer is Format.json:
        for letter in letters:
            typer.echo(json.dumps(asdict(letter), ensure_ascii=False))
        return
    rows = [(one.index, one.id, one.time, one.reason) for one in letters]
    for line in columns([("index", "id", "time", "reason"), *rows], head=True) if rows else ():
        answers().print(line)

"""`tailrace search`: find documents by their words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tailrace.cli.options import AnswerFormat, ConfigPath, Format, LockPath, load
from tailrace.cli.screen import answers, messages, plain

if TYPE_CHECKING:
    from tailrace.sinks.contract import Hit


def command(
    context: typer.Context,
    index: Annotated[str, typer.Argument(metavar="INDEX", help="The index to search in.")],
    words: Annotated[list[str], typer.Argument(metavar="WORDS", help="Words that all must be there.")],
    config: ConfigPath = None,
    locked: LockPath = None,
    *,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many documents.")] = 10,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Take the words as one expression of SQLite's FTS5: OR, NOT, NEAR, pre*."),
    ] = False,
    sink: Annotated[
        str | None,
        typer.Option("--sink", metavar="NAME", help="Which document store, where there are several."),
    ] = None,
    answer: AnswerFormat = Format.text,
) -> None:
    """Find documents in the document store by the texts in them, the best first.

    Case and accents do not matter. Several words in quotation marks must stand together. Nothing in them has
    a meaning of its own, unless `--raw` says so. Works while a pipeline runs and while none does.

    Examples: `tailrace search customers lovelace`, `tailrace search orders --raw 'engine OR motor*'`
    """
    from tailrace import app

    hits = app.search(load(context, config, locked), index, words, sink=sink, limit=limit, raw=raw)
    if answer is Format.json:
        for hit in hits:
            typer.echo(_line(hit))
        return
    for hit in hits:
        answers().print(_shown(hit))
    if not hits:
        plain(messages(), f"no document of {index} has {'that' if raw else 'all of these words'}")


def _line(hit: Hit) -> str:
    """A line of JSON, with the document's own text in it."""
    head = {"id": hit.id, "version": hit.version, "score": round(hit.score, 6), "excerpt": _marked(hit)}
    text = json.dumps(head, ensure_ascii=False)
    # Between tokens only: inside a string JSON has line breaks escaped.
    document = hit.document.replace("\n", " ").replace("\r", " ")
    return f'{text[:-1]}, "document": {document}}}'


def _shown(hit: Hit) -> Text:
    line = Text.assemble((_printable(hit.id), "bold"), "  ")
    if not answers().is_terminal:
        return line.append(_printable(_marked(hit)))
    for text, matches in hit.excerpt:
        line.append(_printable(text), "bold yellow" if matches else "")
    return line


def _printable(text: str) -> str:
    """The text without what a terminal would obey."""
    return "".join(character if character.isprintable() else " " for character in text)


def _marked(hit: Hit) -> str:
    """The excerpt with its matches in brackets."""
    return "".join(f"[{text}]" if matches else text for text, matches in hit.excerpt)

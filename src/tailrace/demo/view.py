"""What the demonstration shows: one picture a moment, for a terminal or as a plain line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich import box
from rich.console import Group, RenderableType
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tailrace.cli.screen import counted, seconds
from tailrace.demo.compare import Difference

STYLES = {"insert": "green", "update": "yellow", "delete": "red"}


@dataclass(frozen=True)
class TablePicture:
    """One table: rows in the source and in its mirror (None before there is one), changes that passed."""

    name: str
    source: int
    mirror: int | None
    changes: int


@dataclass(frozen=True)
class DocumentsPicture:
    """The documents of an index: root rows in the source, documents in the store, how many were written."""

    name: str
    source: int
    kept: int | None
    written: int


@dataclass(frozen=True)
class Picture:
    """One moment of the demonstration."""

    state: str
    elapsed: float
    left: float | None
    lag_changes: int | None
    lag_seconds: float | None
    rate: float
    tables: Sequence[TablePicture]
    documents: DocumentsPicture
    recent: Sequence[tuple[str, str, str]] = field(default=())


def render(picture: Picture, spinner: Spinner) -> RenderableType:
    """The picture for a terminal."""
    head = Table.grid(padding=(0, 1))
    left = f" · {picture.left:.0f} s left" if picture.left is not None else " · Ctrl-C ends it"
    head.add_row(
        spinner,
        Text("Tailrace", style="bold"),
        Text(picture.state),
        Text(f"{picture.elapsed:.0f} s{left}", style="dim"),
    )
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column("table", min_width=14)
    for name in ("rows in SQLite", "rows in Delta", "changes"):
        table.add_column(name, justify="right", min_width=14)
    for row in picture.tables:
        mirror = Text("–", style="dim") if row.mirror is None else Text(f"{row.mirror:,}")
        table.add_row(row.name, f"{row.source:,}", mirror, f"{row.changes:,}")
    documents = picture.documents
    kept = Text("–", style="dim") if documents.kept is None else Text(f"{documents.kept:,}")
    folded = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    folded.add_column("documents", min_width=14)
    for name in ("rows in SQLite", "in the store", "written"):
        folded.add_column(name, justify="right", min_width=14)
    folded.add_row(documents.name, f"{documents.source:,}", kept, f"{documents.written:,}")
    recent = Table.grid(padding=(0, 2))
    for operation, name, text in picture.recent:
        recent.add_row(Text(f"  {operation}", style=STYLES.get(operation, "")), name, Text(text, style="dim"))
    return Group(head, Text(_numbers(picture), style="dim"), table, folded, recent)


def line(picture: Picture) -> str:
    """The picture as one line."""
    tables = " ".join(
        f"{row.name}={row.source}/{'-' if row.mirror is None else row.mirror}" for row in picture.tables
    )
    numbers = _numbers(picture).strip()
    documents = "-" if picture.documents.kept is None else picture.documents.kept
    return (
        f"{picture.elapsed:5.1f} s  {picture.state}: {numbers}; rows in source/mirror: {tables};"
        f" documents={documents}"
    )


def _numbers(picture: Picture) -> str:
    if picture.lag_changes is None:
        return "  lag unknown yet"
    text = f"  {picture.rate:,.0f} changes/s, lag {counted(picture.lag_changes, 'change')}"
    return f"{text} ({seconds(picture.lag_seconds)})" if picture.lag_changes and picture.lag_seconds else text


def result(differences: Sequence[Difference]) -> Table:
    """The comparison at the end."""
    table = Table(
        title="source and mirrors, row by row; documents, rebuilt one by one",
        box=box.SIMPLE_HEAD,
        header_style="bold",
        title_justify="left",
    )
    table.add_column("table")
    for name in ("rows", "missing", "extra", "different"):
        table.add_column(name, justify="right")
    table.add_column("")
    for found in differences:
        mark = Text("equal", style="green") if found.equal else Text("NOT EQUAL", style="bold red")
        numbers = (found.rows, found.missing, found.extra, found.different)
        table.add_row(found.table, *(f"{number:,}" for number in numbers), mark)
    return table

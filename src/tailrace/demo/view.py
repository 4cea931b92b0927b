"""What the demonstration shows: one picture a moment, for a terminal or as a plain line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich import box
from rich.console import Group, RenderableType
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tailrace.cli.screen import counted, seconds, size
from tailrace.demo.compare import Difference

STYLES = {"insert": "green", "update": "yellow", "delete": "red"}


@dataclass(frozen=True)
class Names:
    """How the source, the store of documents and the mirrors are called; None where nothing is mirrored."""

    source: str
    store: str
    mirrors: str | None = None


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

    names: Names
    state: str
    elapsed: float
    left: float | None
    lag_changes: int | None
    lag_bytes: int | None
    lag_seconds: float | None
    rate: float
    tables: Sequence[TablePicture]
    documents: DocumentsPicture
    recent: Sequence[tuple[str, str, str]] = field(default=())

    @property
    def arrived(self) -> bool:
        """Whether there is anything at the other side."""
        return any(table.mirror for table in self.tables) or bool(self.documents.kept)


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
    names, documents = picture.names, picture.documents
    table = _table("table", f"rows in {names.source}")
    if names.mirrors is not None:
        table.add_column(f"rows in {names.mirrors}", justify="right", min_width=14)
    table.add_column("changes", justify="right", min_width=14)
    for row in picture.tables:
        mirror = [] if names.mirrors is None else [_number(row.mirror)]
        table.add_row(row.name, _number(row.source), *mirror, _number(row.changes))
    folded = _table("documents", f"rows in {names.source}", f"in {names.store}", "written")
    folded.add_row(documents.name, *map(_number, (documents.source, documents.kept, documents.written)))
    recent = Table.grid(padding=(0, 2))
    for operation, name, text in picture.recent:
        recent.add_row(Text(f"  {operation}", style=STYLES.get(operation, "")), name, Text(text, style="dim"))
    return Group(head, Text(_numbers(picture), style="dim"), table, folded, recent)


def _table(first: str, *numbers: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column(first, min_width=14)
    for name in numbers:
        table.add_column(name, justify="right", min_width=14)
    return table


def _number(number: int | None) -> Text:
    return Text("–", style="dim") if number is None else Text(f"{number:,}")


def line(picture: Picture) -> str:
    """The picture as one line."""
    mirrored = picture.names.mirrors is not None
    tables = " ".join(
        f"{row.name}={row.source}" + (f"/{_plain(row.mirror)}" if mirrored else "") for row in picture.tables
    )
    rows = "rows in source/mirror" if mirrored else f"rows in {picture.names.source}"
    return (
        f"{picture.elapsed:5.1f} s  {picture.state}: {_numbers(picture).strip()}; {rows}: {tables};"
        f" documents={_plain(picture.documents.kept)}"
    )


def _plain(number: int | None) -> str:
    return "-" if number is None else str(number)


def _numbers(picture: Picture) -> str:
    if picture.lag_changes is not None:
        behind, lag = picture.lag_changes, counted(picture.lag_changes, "change")
    elif picture.lag_bytes is not None:
        behind, lag = picture.lag_bytes, f"{size(picture.lag_bytes)} of log"
    else:
        return "  lag unknown yet"
    text = f"  {picture.rate:,.0f} changes/s, lag {lag}"
    return f"{text} ({seconds(picture.lag_seconds)})" if behind and picture.lag_seconds else text


def result(differences: Sequence[Difference], names: Names) -> Table:
    """The comparison at the end."""
    table = Table(
        title=("source and mirrors, row by row; " if names.mirrors is not None else "")
        + f"documents in {names.store}, rebuilt one by one",
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

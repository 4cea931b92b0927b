"""What the command line prints on: answers on the standard output, everything else on the standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from tailrace.model.errors import TailraceError

if TYPE_CHECKING:
    from tailrace.engine.heldup import HeldUp

WIDE = 120
LOG_REMEDY = "Spark's log: "


def answers() -> Console:
    """The console for what was asked for. Into a pipe it writes wide lines and no colour."""
    return _console(sys.stdout)


def messages() -> Console:
    """The console for messages to the person."""
    return _console(sys.stderr)


def _console(stream: TextIO) -> Console:
    return Console(file=stream, highlight=False, soft_wrap=True, width=None if stream.isatty() else WIDE)


@dataclass
class Screen:
    """The terminal itself: while Spark starts, the process's standard error is a file, but not this one."""

    console: Console = field(init=False)

    def __post_init__(self) -> None:
        self._file = os.fdopen(
            os.dup(sys.stderr.fileno()), "w", encoding="utf-8", errors="replace", buffering=1
        )
        self.console = Console(file=self._file, highlight=False)

    @property
    def stream(self) -> TextIO:
        """The stream behind the console, for lines that no markup may touch."""
        return self._file

    @property
    def watched(self) -> bool:
        """Whether a person looks at it."""
        return self._file.isatty() and os.environ.get("TERM") != "dumb"

    def close(self) -> None:
        """Give the descriptor back."""
        self._file.close()


def show_error(error: TailraceError, remedy: Callable[[str], str] = str) -> None:
    """`error: …`, its remedy as `remedy` words it, and where Spark's log is when Spark failed."""
    console = messages()
    text = f"{error.place}: {error.message}" if error.place else error.message
    console.print(Text.assemble(("error: ", "bold red"), text))
    if error.remedy is None:
        return
    if error.remedy.startswith(LOG_REMEDY):
        console.print(Text(f"  {error.remedy}"))
    else:
        console.print(Text.assemble(("  remedy: ", "bold"), remedy(error.remedy)))


def counted(number: int, one: str, many: str = "") -> str:
    """`1 change`, `2,000 changes`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def columns(rows: Sequence[Sequence[str]], *, head: bool = False) -> list[Text]:
    """Rows as lines with aligned columns and nothing behind the last; the first row bold as their `head`."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for index, row in enumerate(rows):
        cells = [cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        lines.append(Text("  ".join(cells).rstrip(), style="bold" if head and index == 0 else ""))
    return lines


def plain(console: Console, text: str, style: str = "") -> None:
    """A line in which nothing is markup."""
    console.print(Text(text, style=style))


def waiting(wait: HeldUp) -> str:
    """What holds a pipeline up, as a phrase."""
    what = f"waits for the sink {wait.sink}" if wait.sink is not None else "waits"
    return f"{what} since {wait.since}: {wait.reason}"


def size(count: int) -> str:
    """Bytes for people."""
    value, units = float(count), ["B", "KB", "MB", "GB", "TB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{value:.0f} {units[0]}" if units[0] == "B" or value >= 100 else f"{value:.1f} {units[0]}"


def seconds(value: float | None) -> str:
    """A duration for people."""
    if value is None:
        return "unknown"
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 120:
        return f"{value:.1f} s"
    minutes, rest = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"

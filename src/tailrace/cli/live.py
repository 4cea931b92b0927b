"""The live view of `tailrace run`: what a person sees while a pipeline runs."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tailrace.cli.screen import counted, seconds, size
from tailrace.cli.watch import Look, SnapshotLook, Watch

REFRESH = 8
MOST_BARS = 8


class LiveView:
    """Shows a watch on a console, several times a second, until left."""

    def __init__(self, watch: Watch, console: Console, title: str) -> None:
        self._watch = watch
        self._title = title
        self._spinner = Spinner("dots")
        self._live = Live(
            get_renderable=self._render,
            console=console,
            refresh_per_second=REFRESH,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> LiveView:
        self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def note(self, text: str) -> None:
        """A line that stays, above the view."""
        self._live.console.print(Text(text))

    def _render(self) -> RenderableType:
        return render(self._watch.look(), self._title, self._spinner)


def render(look: Look, title: str, spinner: RenderableType) -> RenderableType:
    """The view of one moment."""
    head = Table.grid(padding=(0, 1))
    # Spark takes its time to start, and a number that moves says that it is not stuck.
    state = f"{look.state}… {look.uptime:.0f} s" if look.batches == 0 else look.state
    head.add_row(spinner, Text(title, style="bold"), Text(state))
    parts: list[RenderableType] = [head]
    if look.trouble is not None:
        parts.append(Text(f"  {look.trouble}", style="yellow"))
    if look.batches or look.lag_changes is not None or look.lag_bytes is not None:
        parts.append(_numbers(look))
    if look.snapshots:
        parts.append(_snapshots(look.snapshots))
    elif look.chunks and look.chunks_done < look.chunks:
        bar = Table.grid(padding=(0, 1))
        done = Text(f"{look.chunks_done} of {counted(look.chunks, 'chunk')}")
        bar.add_row(
            Text("  snapshot"), ProgressBar(total=look.chunks, completed=look.chunks_done, width=30), done
        )
        parts.append(bar)
    if look.tables:
        parts.append(_tables(look))
    if look.indexes:
        parts.append(_indexes(look))
    return Group(*parts)


def _snapshots(snapshots: Sequence[SnapshotLook]) -> Table:
    """A bar for each running snapshot; of many, those that are furthest from their beginning."""
    bars = Table.grid(padding=(0, 1))
    shown = sorted(snapshots, key=lambda one: -one.chunks_done)[:MOST_BARS]
    for one in shown:
        words = [f"{one.chunks_done} of {counted(one.chunks, 'chunk')}"]
        words.append(f"{one.rows_done:,} of about {counted(one.rows, 'row')}")
        if one.state == "paused":
            words.append("paused")
        if one.rate is not None:
            words.append(f"{one.rate:,.0f}/s")
        if one.seconds_left is not None:
            words.append(f"{seconds(one.seconds_left)} left")
        bar = ProgressBar(total=max(one.chunks, 1), completed=one.chunks_done, width=24)
        bars.add_row(Text(f"  snapshot of {one.table}"), bar, Text(", ".join(words)))
    if len(snapshots) > len(shown):
        bars.add_row(Text(f"  and {len(snapshots) - len(shown)} more"))
    return bars


def _numbers(look: Look) -> Group:
    lag = "unknown"
    if look.lag_changes is not None:
        lag = counted(look.lag_changes, "change")
    elif look.lag_bytes is not None:
        lag = f"{size(look.lag_bytes)} of log"
    if look.lag_seconds is not None and (look.lag_changes or look.lag_bytes):
        lag += f" ({seconds(look.lag_seconds)})"
    lines = [f"  {counted(look.changes, 'change')}, {look.rate:,.0f}/s, lag {lag}"]
    if look.last_batch_ago is not None:
        took = seconds(look.last_batch_seconds)
        lines.append(f"  last batch {seconds(look.last_batch_ago)} ago, took {took}")
    return Group(*(Text(line, style="dim") for line in lines))


def _indexes(look: Look) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 2))
    table.add_column("index")
    for name in ("documents written", "deleted"):
        table.add_column(name, justify="right")
    table.add_column("")
    for name, count in sorted(look.indexes.items()):
        words = ["being filled"] if count.filling else []
        words += [counted(count.rejected, "dead letter")] if count.rejected else []
        table.add_row(Text(name), f"{count.written:,}", f"{count.deleted:,}", Text(", ".join(words)))
    return table


def _tables(look: Look) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 2))
    table.add_column("table")
    for name in ("changes", "rows written", "rows deleted"):
        table.add_column(name, justify="right")
    for name, count in sorted(look.tables.items()):
        table.add_row(Text(name), f"{count.changes:,}", f"{count.written:,}", f"{count.deleted:,}")
    return table

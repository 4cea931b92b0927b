"""Charts as SVG, small enough to be read as text: bars by groups, and lines on two logarithmic scales.

Nothing is drawn behind them, and the colours of text and grid follow the reader's light or dark page.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

WIDTH = 760
# The room of a bar's value, and of a character of its name.
_VALUES, _CHARACTER = 70, 6.8
_BAR, _GAP = 16, 12
_COLOURS = ("#0969da", "#54aeff", "#8250df", "#8c959f", "#bf8700", "#cf222e", "#1a7f37")
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f }
.h { font-weight: 600; font-size: 14px } .s { font-size: 11px }
.e { text-anchor: end } .m { text-anchor: middle }
.g { stroke: #d0d7de; fill: none } polyline { stroke-width: 2 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .g { stroke: #444c56 } }
""" + "".join(
    f".c{at} {{ fill: {colour} }} .l{at} {{ fill: none; stroke: {colour} }}\n"
    for at, colour in enumerate(_COLOURS)
)
# Ours are blue and violet, whoever is compared with us has the others.
_OURS, _OTHERS = (0, 1, 2), (3, 4, 5, 6)
Number = float | None


def svg(chart: Mapping[str, Any]) -> str:
    """The chart that a report describes."""
    if chart["kind"] == "bars":
        return bars(chart["title"], chart["unit"], chart["groups"], chart["series"], shared=chart["shared"])
    return lines(chart["title"], chart["x"], chart["y"], chart["series"])


def bars(
    title: str, unit: str, groups: Sequence[str], series: Mapping[str, Sequence[Number]], *, shared: bool
) -> str:
    """For each group a bar of each series that has a value there; scales begin at zero.

    Groups have one scale where it is `shared`, and otherwise each its own: they are about different things.
    """
    colours = _colours(series)
    tops = [max((values[at] or 0.0 for values in series.values()), default=0.0) for at in range(len(groups))]
    left = round(16 + _CHARACTER * max(map(len, series), default=0))
    room = WIDTH - left - _VALUES
    body: list[str] = []
    y = 44
    for at, group in enumerate(groups):
        body.append(f'<text class="s" x="8" y="{y}">{escape(group)}</text>')
        y += 8
        highest = (max(tops) if shared else tops[at]) or 1.0
        for name, values in series.items():
            value = values[at]
            if value is None:
                continue
            wide = max(1.0, room * value / highest)
            body += [
                f'<text class="e" x="{left - 8}" y="{y + 12}">{escape(name)}</text>',
                f'<rect class="c{colours[name]}" x="{left}" y="{y}" width="{wide:.1f}" height="{_BAR - 4}"/>',
                f'<text class="s" x="{left + wide + 6:.1f}" y="{y + 11}">{short(value)}</text>',
            ]
            y += _BAR
        y += _GAP + 8
    return _document(y, title, unit, body)


def lines(title: str, x: str, y: str, series: Mapping[str, Sequence[Sequence[float]]]) -> str:
    """A line of each series through its points, on logarithmic scales."""
    colours = _colours(series)
    left, right, top, bottom = 64, WIDTH - 150, 52, 330
    points = [point for line in series.values() for point in line]
    across, up = _decades([one for one, _ in points]), _decades([one for _, one in points])

    def place(value: float, scale: tuple[int, int], low: float, high: float) -> float:
        return low + (high - low) * (math.log10(value) - scale[0]) / (scale[1] - scale[0])

    body = []
    for power in range(across[0], across[1] + 1):
        at = place(10.0**power, across, left, right)
        body += [
            f'<path class="g" d="M{at:.1f} {top}V{bottom}"/>',
            f'<text class="s m" x="{at:.1f}" y="{bottom + 16}">{short(10.0**power)}</text>',
        ]
    for power in range(up[0], up[1] + 1):
        at = place(10.0**power, up, bottom, top)
        body += [
            f'<path class="g" d="M{left} {at:.1f}H{right}"/>',
            f'<text class="s e" x="{left - 6}" y="{at + 4:.1f}">{short(10.0**power)}</text>',
        ]
    body.append(f'<text class="s m" x="{(left + right) / 2:.0f}" y="{bottom + 34}">{escape(x)}</text>')
    ends: list[tuple[float, str]] = []
    for name, line in series.items():
        spots = [(place(a, across, left, right), place(b, up, bottom, top)) for a, b in line]
        drawn = " ".join(f"{a:.1f},{b:.1f}" for a, b in spots)
        body.append(f'<polyline class="l{colours[name]}" points="{drawn}"/>')
        for (a, b), (one, two) in zip(spots, line, strict=True):
            told = f"{name}: {short(two)} {y} at {short(one)}"
            body.append(
                f'<circle class="c{colours[name]}" cx="{a:.1f}" cy="{b:.1f}" r="3">'
                f"<title>{escape(told)}</title></circle>"
            )
        ends.append((spots[-1][1], name))
    for at, name in _apart(ends):
        body.append(f'<text class="c{colours[name]}" x="{right + 10}" y="{at + 4:.1f}">{escape(name)}</text>')
    return _document(bottom + 46, title, y, body)


def short(value: float) -> str:
    """A number in few characters: 340 k, 1.2 M."""
    for limit, sign in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= limit * 0.9995:
            return f"{value / limit:.3g}{sign}"
    return f"{value:.3g}"


def _document(height: float, title: str, unit: str, body: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}"'
        f' height="{height:.0f}" role="img" aria-label="{escape(title)}">'
    )
    told = f'<text class="h" x="8" y="20">{escape(title)}</text>'
    told += f'<text class="s e" x="{WIDTH - 8}" y="20">{escape(unit)}</text>'
    return "\n".join([head, f"<style>{_STYLE}</style>", told, *body, "</svg>"]) + "\n"


def _colours(series: Mapping[str, Any]) -> dict[str, int]:
    ours = [name for name in series if name.startswith("tailrace")]
    others = [name for name in series if name not in ours]
    return dict(_paired(ours, _OURS)) | dict(_paired(others, _OTHERS))


def _paired(names: Sequence[str], colours: Sequence[int]) -> Iterator[tuple[str, int]]:
    for at, name in enumerate(names):
        yield name, colours[at % len(colours)]


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """The powers of ten below and above all of them."""
    low, high = math.floor(math.log10(min(values)) + 1e-9), math.ceil(math.log10(max(values)) - 1e-9)
    return low, max(high, low + 1)


def _apart(ends: Sequence[tuple[float, str]], room: float = 15.0) -> Iterator[tuple[float, str]]:
    """Where names are written beside the ends of lines, so that none covers another."""
    below = -math.inf
    for at, name in sorted(ends):
        below = max(at, below + room)
        yield below, name

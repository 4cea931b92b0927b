"""The record as a picture: one small chart a measure, all over the same time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from tests.life.resources import MEASURES, Sample

WIDTH, HEIGHT, LEFT, TOP = 760, 110, 150, 34
STYLE = (
    "text { font: 12px sans-serif; fill: #666 } .title { font-size: 15px } "
    ".line { fill: none; stroke: #8aa4c8; stroke-width: 1 } .idle { fill: #c0392b } "
    ".axis { stroke: #999; stroke-width: 0.5 }"
)


def svg(samples: Sequence[Sample], title: str) -> str:
    """A line of all samples, and a dot for each idle point. Readable on a light and on a dark page."""
    end = max((sample["at"] or 0.0 for sample in samples), default=0.0) or 1.0
    height = TOP + HEIGHT * len(MEASURES) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {height}">',
        f"<style>{STYLE}</style>",
        f'<text class="title" x="10" y="20">{escape(title)}</text>',
    ]
    for number, measure in enumerate(MEASURES):
        top = TOP + number * HEIGHT
        points = [
            (sample["at"] or 0.0, value, bool(sample["idle"]))
            for sample in samples
            if (value := sample.get(measure.name)) is not None
        ]
        most = max((value for _, value, _ in points), default=0.0) or 1.0
        floor = top + HEIGHT - 12

        def place(at: float, value: float, floor: float = floor, most: float = most) -> tuple[float, float]:
            return LEFT + WIDTH * at / end, floor - (HEIGHT - 24) * value / most

        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(at, value) for at, value, _ in points))
        dots = [place(at, value) for at, value, idle in points if idle]
        parts += [
            f'<text x="10" y="{top + 24}">{escape(measure.name)}</text>',
            f'<text x="10" y="{top + 42}">most: {most:,.1f} {escape(measure.unit)}</text>',
            f'<line class="axis" x1="{LEFT}" y1="{floor}" x2="{LEFT + WIDTH}" y2="{floor}"/>',
            f'<polyline class="line" points="{line}"/>',
            *(f'<circle class="idle" cx="{x:.1f}" cy="{y:.1f}" r="2"/>' for x, y in dots),
        ]
    parts.append(
        f'<text x="{LEFT}" y="{height - 6}">0 to {end / 60:.0f} minutes; dots are idle points</text>'
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


def write(path: Path, samples: Sequence[Sample], title: str) -> None:
    path.write_text(svg(samples, title))

"""Flame graphs of folded stacks: lines of `outermost;…;innermost COUNT`, as py-spy writes them.

The outermost frame is on top; a frame is as wide as its share of all samples, and says what it is when one
points at it. The folded stacks stay beside the picture, and speedscope.app opens them.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT, _TOP = 1200, 17, 34
# Narrower ones are left out, and text that would have fewer characters.
_NARROWEST, _CHARACTERS, _CHARACTER = 0.4, 3, 6.6
_STYLE = """
text { font: 11px ui-monospace, monospace; fill: #1f2328 }
.h { font: 600 14px system-ui, sans-serif } rect { stroke: #ffffff; stroke-width: 0.5 }
@media (prefers-color-scheme: dark) { .h { fill: #e6edf3 } rect { stroke: #0d1117 } }
"""
_WARM = ("#ffb77c", "#ffd33d", "#f9c513", "#ff9e64", "#fb8f44", "#ffdf5d", "#e2c08d", "#ffc680")


@dataclass
class Frame:
    """A function where it was called from, how many samples it was in, and what it called."""

    name: str
    samples: int = 0
    below: dict[str, Frame] = field(default_factory=dict)

    def take(self, names: Iterable[str], samples: int) -> None:
        """A stack from here on."""
        self.samples += samples
        at = self
        for name in names:
            at = at.below.setdefault(name, Frame(name))
            at.samples += samples

    @property
    def depth(self) -> int:
        """How many frames are below each other, this one too."""
        return 1 + max((frame.depth for frame in self.below.values()), default=0)


def parsed(text: str) -> Counter[str]:
    """Stacks and how often each was seen."""
    found: Counter[str] = Counter()
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        if stack and count.isdigit():
            found[stack] += int(count)
    return found


def folded(stacks: Mapping[str, int]) -> str:
    """The text of stacks."""
    return "".join(f"{stack} {count}\n" for stack, count in sorted(stacks.items()))


def hottest(stacks: Mapping[str, int], count: int = 5) -> list[tuple[str, float]]:
    """The functions that were innermost most often, and their share of all samples."""
    found: Counter[str] = Counter()
    for stack, samples in stacks.items():
        found[stack.rpartition(";")[2]] += samples
    whole = sum(found.values()) or 1
    return [(name, samples / whole) for name, samples in found.most_common(count)]


def svg(title: str, stacks: Mapping[str, int]) -> str:
    """The picture."""
    root = Frame("all")
    for stack, samples in sorted(stacks.items()):
        root.take(stack.split(";"), samples)
    shown = list(_placed(root, 0.0, float(WIDTH), 0)) if root.samples else []
    height = _TOP + HEIGHT * (max((depth for _, _, _, depth in shown), default=0) + 1) + 8
    told = f"{title}: {root.samples:,} samples"
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}"'
        f' height="{height}" role="img" aria-label="{escape(told)}">',
        f"<style>{_STYLE}</style>",
        f'<text class="h" x="4" y="20">{escape(told)}</text>',
        *(_drawn(frame, x, wide, depth, root.samples) for frame, x, wide, depth in shown),
        "</svg>",
    ]
    return "\n".join(body) + "\n"


def _placed(frame: Frame, x: float, wide: float, depth: int) -> Iterator[tuple[Frame, float, float, int]]:
    yield frame, x, wide, depth
    for one in frame.below.values():
        share = wide * one.samples / frame.samples
        if share >= _NARROWEST:
            yield from _placed(one, x, share, depth + 1)
        x += share


def _drawn(frame: Frame, x: float, wide: float, depth: int, whole: int) -> str:
    y = _TOP + depth * HEIGHT
    colour = _WARM[zlib.crc32(frame.name.partition(" ")[0].encode()) % len(_WARM)]
    room = int((wide - 4) / _CHARACTER)
    name = frame.name if len(frame.name) <= room else frame.name[: max(0, room - 1)] + "…"
    text = f'<text x="{x + 2:.1f}" y="{y + 12}">{escape(name)}</text>' if room >= _CHARACTERS else ""
    told = f"{frame.name} ({frame.samples:,}, {frame.samples / whole:.1%})"
    return (
        f"<g><title>{escape(told)}</title>"
        f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{HEIGHT - 1}" fill="{colour}"/>{text}</g>'
    )

"""Charts are well-formed, small, and show every value."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest

from bench import plot

SVG = "{http://www.w3.org/2000/svg}"


def _drawn(text: str) -> ET.Element:
    assert len(text) < 20_000
    return ET.fromstring(text)  # noqa: S314


def _words(root: ET.Element) -> list[str]:
    return ["".join(one.itertext()) for one in root.iter(f"{SVG}text")]


@pytest.mark.parametrize("shared", [True, False])
def test_a_bar_is_as_long_as_its_value_and_says_it(shared: bool) -> None:
    series: dict[str, list[float | None]] = {"count": [100.0, 50.0], "tailrace-noop": [200.0, None]}
    root = _drawn(plot.bars("Rates <here> & there", "rows/s", ["small", "big"], series, shared=shared))
    wide = [float(one.attrib["width"]) for one in root.iter(f"{SVG}rect")]
    assert wide[1] == pytest.approx(2 * wide[0], abs=0.2)
    assert wide[2] == pytest.approx(wide[0] / 2 if shared else wide[1], abs=0.2)
    assert len(wide) == 3
    assert {"Rates <here> & there", "rows/s", "small", "big", "count", "200"} <= set(_words(root))


def test_lines_of_powers_of_ten_are_straight_and_have_every_point() -> None:
    line = [[10.0, 1000.0], [100.0, 10_000.0], [1000.0, 100_000.0]]
    root = _drawn(plot.lines("Growth", "rows", "rows/s", {"tailrace": line, "copy": [[10.0, 5.0]]}))
    spots = [one.attrib["points"].split() for one in root.iter(f"{SVG}polyline")]
    (first, second, third), (_,) = [[tuple(map(float, spot.split(","))) for spot in line] for line in spots]
    assert second[0] - first[0] == pytest.approx(third[0] - second[0], abs=0.2)
    assert second[1] - first[1] == pytest.approx(third[1] - second[1], abs=0.2)
    assert third[1] < first[1]
    assert len(list(root.iter(f"{SVG}circle"))) == 4
    assert {"tailrace", "copy", "rows", "100 k"} <= set(_words(root))


def test_a_line_of_equal_values_can_be_drawn() -> None:
    _drawn(plot.lines("Flat", "rows", "rows/s", {"tailrace": [[1.0, 10.0], [1.0, 10.0]]}))


def test_names_at_the_ends_of_lines_do_not_cover_each_other() -> None:
    series = {name: [[1.0, 10.0], [10.0, 10.0]] for name in ("tailrace-a", "tailrace-b", "copy")}
    root = _drawn(plot.lines("Equal", "rows", "rows/s", series))
    places = [float(one.attrib["y"]) for one in root.iter(f"{SVG}text") if "".join(one.itertext()) in series]
    assert sorted(places) == places
    assert all(after - before >= 12 for before, after in pairwise(places))


def test_text_follows_a_dark_page_and_ours_has_a_colour_of_its_own() -> None:
    text = plot.bars("A", "s", ["x"], {"tailrace": [1.0], "debezium": [2.0]}, shared=True)
    assert "prefers-color-scheme: dark" in text
    classes = [one.attrib["class"] for one in _drawn(text).iter(f"{SVG}rect")]
    assert len(set(classes)) == 2


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0.5"), (12.0, "12"), (999.9, "1 k"), (1234.0, "1.23 k"), (340_000.0, "340 k"), (1.2e6, "1.2 M")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert plot.short(value) == text

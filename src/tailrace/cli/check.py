"""`tailrace check`: what is wrong, before a run."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from tailrace.cli.options import AnswerFormat, ConfigPath, Format, LockPath, load, pasteable
from tailrace.cli.screen import answers, counted

if TYPE_CHECKING:
    from tailrace.capture.contract import Finding
    from tailrace.documents.mapping import IndexMapping

STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}


def command(
    context: typer.Context,
    *,
    config: ConfigPath = None,
    locked: LockPath = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Judge the file and its schemas only; open no database.")
    ] = False,
    mapping: Annotated[
        bool, typer.Option("--mapping", help="Also print what the documents of each index look like.")
    ] = False,
    answer: AnswerFormat = Format.text,
) -> None:
    """Check the configuration, its indexes and the source. Changes nothing.

    Each finding has a severity, a place and, where there is one, the exact command or SQL that mends it.
    Exit code 0: nothing stands in the way of a run. 1: there are errors. 2: the file itself cannot be read.

    Example: `tailrace check --format json`
    """
    from tailrace import app

    loaded = load(context, config, locked)
    findings = app.check(loaded, offline=offline)
    errors = sum(finding.severity == "error" for finding in findings)
    mappings = app.mappings(loaded) if mapping else {}
    if answer is Format.json:
        told: dict[str, Any] = {"errors": errors, "findings": [asdict(finding) for finding in findings]}
        if mapping:
            told["mappings"] = {name: each.to_json() for name, each in mappings.items()}
            if bodies := app.opensearch_bodies(loaded):
                told["opensearch"] = bodies
        typer.echo(json.dumps(told, indent=2))
    else:
        _show_mappings(mappings)
        _show(findings, loaded.path, errors, offline)
    if errors:
        raise typer.Exit(1)


def _show_mappings(mappings: dict[str, IndexMapping]) -> None:
    console = answers()
    for name, mapping in mappings.items():
        console.print(Text(f"index {name}", style="bold"))
        console.print(Text(indent(str(mapping), "  ")))


def _show(findings: list[Finding], path: Path, errors: int, offline: bool) -> None:
    console = answers()
    told: set[str] = set()
    for finding in findings:
        # A place in a schema says more than the table, which the message then names.
        where = finding.place or finding.table
        place = f"{where}: " if where else ""
        console.print(
            Text.assemble((finding.severity, STYLES[finding.severity]), f": {place}{finding.message}")
        )
        if finding.remedy:
            # What mends several things at once would fail the second time.
            again = finding.remedy in told
            console.print(Text(f"  remedy: {'as above' if again else pasteable(finding.remedy)}"))
            told.add(finding.remedy)
    what = "the file" if offline else "the file, its source and its sinks"
    if errors:
        console.print(Text(f"{counted(errors, 'error')} in {what} ({path})", style="bold red"))
    else:
        console.print(Text(f"{what} can be run ({path})", style="green"))

"""`tailrace check`: what is wrong, before a run."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tailrace.cli.options import AnswerFormat, ConfigPath, Format, load, pasteable
from tailrace.cli.screen import answers, counted

if TYPE_CHECKING:
    from tailrace.capture.contract import Finding

STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}


def command(
    context: typer.Context,
    config: ConfigPath = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Judge the file only; open no database.")
    ] = False,
    answer: AnswerFormat = Format.text,
) -> None:
    """Check the configuration and the source. Changes nothing.

    Each finding has a severity, a place and, where there is one, the exact command or SQL that mends it.
    Exit code 0: nothing stands in the way of a run. 1: there are errors. 2: the file itself cannot be read.

    Example: `tailrace check --format json`
    """
    from tailrace import app

    loaded = load(context, config)
    findings = app.check(loaded, offline=offline)
    errors = sum(finding.severity == "error" for finding in findings)
    if answer is Format.json:
        typer.echo(
            json.dumps({"errors": errors, "findings": [asdict(finding) for finding in findings]}, indent=2)
        )
    else:
        _show(findings, loaded.path, errors, offline)
    if errors:
        raise typer.Exit(1)


def _show(findings: list[Finding], path: Path, errors: int, offline: bool) -> None:
    console = answers()
    for finding in findings:
        place = f"{finding.table}: " if finding.table else ""
        console.print(
            Text.assemble((finding.severity, STYLES[finding.severity]), f": {place}{finding.message}")
        )
        if finding.remedy:
            console.print(Text(f"  remedy: {pasteable(finding.remedy)}"))
    what = "the file" if offline else "the file and its source"
    if errors:
        console.print(Text(f"{counted(errors, 'error')} in {what} ({path})", style="bold red"))
    else:
        console.print(Text(f"{what} can be run ({path})", style="green"))

"""`tailrace init`: a configuration to begin with."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from tailrace.cli.screen import answers, counted, plain
from tailrace.cli.starter import starter
from tailrace.model.errors import ConfigError
from tailrace.model.secret import holds_secret


def command(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="The database, e.g. sqlite:shop.db or postgresql://user@host/database",
            show_default=False,
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="PATH", help="The file to write.")] = Path(
        "tailrace.toml"
    ),
    force: Annotated[bool, typer.Option("--force", help="Replace the file if there is one.")] = False,
) -> None:
    """Write a commented tailrace.toml for a database, with a mirror for each of its tables.

    Only reads the database. Tables without a primary key cannot be mirrored; they stand in the file as
    comments. Edit the file, then `tailrace check` and `tailrace run`.

    Example: `tailrace init sqlite:shop.db`
    """
    from tailrace import app

    if output.exists() and not force:
        raise ConfigError(
            "there is a file already", place=str(output), remedy="choose another --output, or --force"
        )
    if not output.absolute().parent.is_dir():
        raise ConfigError(
            f"there is no directory {output.parent}", remedy="create it, or choose another --output"
        )
    # A database that cannot be captured is told first: how its password is given does not matter then.
    app.capture_for(url).close()
    if holds_secret(url):
        raise ConfigError(
            "the URL has a password in it, which would stand in the file",
            remedy="write '${NAME}' in its place and export NAME, or use PGPASSWORD or the password file",
        )
    tables = app.tables_of(url)
    text = starter(app.rebase(url, output.absolute().parent), tables)
    try:
        _write(output, text)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", place=str(output)) from None
    obstacles = app.obstacles(url)
    mirrored = sum(keyed for _, keyed in tables)
    console = answers()
    plain(console, f"wrote {output}: {mirrored} of {counted(len(tables), 'table')} as mirrors")
    for obstacle in obstacles:
        plain(console, f"first: {obstacle.message}: {obstacle.remedy}")
    option = "" if str(output) == "tailrace.toml" else f" -c {shlex.quote(str(output))}"
    plain(console, f"next: tailrace check{option} && tailrace run{option}")


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)

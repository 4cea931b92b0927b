"""Options that several commands share, and the configuration they lead to."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tailrace.config import Config

DEFAULT = "tailrace.toml"

ConfigPath = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="PATH",
        envvar="TAILRACE_CONFIG",
        help="The configuration file. Default: tailrace.toml in this directory.",
        show_default=False,
    ),
]


class Format(StrEnum):
    """How a command answers."""

    text = "text"
    json = "json"


AnswerFormat = Annotated[Format, typer.Option("--format", help="`text` for people, `json` for programs.")]


def load(context: typer.Context, path: Path | None) -> Config:
    """The configuration that a command was pointed at, by its own option or by the one before it."""
    from tailrace.config import load_config

    outer: dict[str, Any] = context.obj or {}
    chosen = path or outer.get("config") or Path(DEFAULT)
    return load_config(chosen)

"""Options that several commands share, and the configuration they lead to."""

from __future__ import annotations

import re
import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tailrace.config import Config

DEFAULT = "tailrace.toml"
_COMMAND = re.compile(r"\btailrace (?:check|run|search|setup|snapshot|status|teardown)\b(?! -c )")
_file = Path(DEFAULT)

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

    global _file  # noqa: PLW0603 - remedies name it after the context is gone
    outer: dict[str, Any] = context.obj or {}
    _file = path or outer.get("config") or Path(DEFAULT)
    return load_config(_file)


def pasteable(remedy: str) -> str:
    """The remedy with `-c FILE` in its commands, where this command was pointed at another file too."""
    if str(_file) == DEFAULT:
        return remedy
    return _COMMAND.sub(lambda found: f"{found[0]} -c {shlex.quote(str(_file))}", remedy)


def forget() -> None:
    """No file was chosen: a process may run several command lines."""
    global _file  # noqa: PLW0603
    _file = Path(DEFAULT)

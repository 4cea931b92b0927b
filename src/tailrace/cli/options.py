"""Options that several commands share, and the configuration they lead to."""

from __future__ import annotations

import re
import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.model.errors import UsageError

if TYPE_CHECKING:
    from tailrace.config import Config

DEFAULT = "tailrace.toml"
_COMMAND = re.compile(
    r"\btailrace (?P<name>build|check|deadletters (?:list|retry)|indexes|reindex|run|search|setup|snapshot"
    r"|status|teardown)\b"
    r"(?! -c )(?! --locked )"
)
_file = Path(DEFAULT)
_locked = False

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

LockPath = Annotated[
    Path | None,
    typer.Option(
        "--locked",
        metavar="PATH",
        help="A lock file, which `tailrace build` wrote, in place of a configuration file.",
        show_default=False,
    ),
]


class Format(StrEnum):
    """How a command answers."""

    text = "text"
    json = "json"


AnswerFormat = Annotated[Format, typer.Option("--format", help="`text` for people, `json` for programs.")]


def load(context: typer.Context, path: Path | None, locked: Path | None = None) -> Config:
    """The configuration that a command was pointed at, by its own options or by those before it."""
    from tailrace.config import load_config, load_lock

    global _file, _locked
    outer: dict[str, Any] = context.obj or {}
    lock = locked or outer.get("locked")
    if lock is None:
        return load_config(config_path(context, path))
    if any(_given("config", one) for one in (context, context.parent) if one is not None):
        raise UsageError("--config and --locked name two pipelines", remedy="give one of them")
    _file, _locked = lock, True
    return load_lock(lock)


def config_path(context: typer.Context, path: Path | None) -> Path:
    """The configuration file that a command was pointed at."""
    global _file  # noqa: PLW0603
    outer: dict[str, Any] = context.obj or {}
    _file = path or outer.get("config") or Path(DEFAULT)
    return _file


def _given(name: str, context: Any) -> bool:
    """Whether an option stands on the command line, and is not only in the environment."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def pasteable(remedy: str) -> str:
    """The remedy with `-c FILE` in its commands, where this command was pointed at another file too."""
    if _locked:
        # Nothing but the lock file may be there, and it is built elsewhere.
        option = shlex.quote(str(_file))
        return _COMMAND.sub(
            lambda found: found[0] if found["name"] == "build" else f"{found[0]} --locked {option}", remedy
        )
    if str(_file) == DEFAULT:
        return remedy
    return _COMMAND.sub(lambda found: f"{found[0]} -c {shlex.quote(str(_file))}", remedy)


def forget() -> None:
    """No file was chosen: a process may run several command lines."""
    global _file, _locked
    _file, _locked = Path(DEFAULT), False

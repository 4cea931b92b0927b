"""`tailrace build`: configuration and schemas as one lock file."""

from __future__ import annotations

import contextlib
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.options import ConfigPath, config_path
from tailrace.cli.screen import answers, counted, plain
from tailrace.model.errors import ConfigError

if TYPE_CHECKING:
    from tailrace.config.lock import Lock


def command(
    context: typer.Context,
    config: ConfigPath = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="The lock file. Default: beside the configuration file, tailrace.lock for tailrace.toml.",
            show_default=False,
        ),
    ] = None,
    *,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Write nothing; exit with 1 where a file that the lock was built of has changed."
        ),
    ] = False,
) -> None:
    """Compile configuration and schemas into one lock file that holds no secret.

    `tailrace run --locked tailrace.lock` runs it and reads no other file. References to the environment stay
    references, which are resolved where it runs; a secret that is written out is refused. Relative paths
    start at the lock file's directory, wherever that is. The same files give the same lock file.

    Examples: `tailrace build`, `tailrace build --check`
    """
    file = config_path(context, config)
    output = output or file.with_suffix(".lock")
    if check:
        _check(file, output)
        return
    from tailrace import __version__
    from tailrace.config import build_lock

    lock = build_lock(file, output=output, version=__version__)
    _refuse_other_files(output)
    console = answers()
    if _write(output, lock.text()):
        plain(console, f"wrote {output}: {_contents(lock)}")
    else:
        plain(console, f"{output} is up to date: {_contents(lock)}")
    if output.absolute().parent != file.absolute().parent:
        plain(console, f"relative paths in it start at {output.absolute().parent}")


def _contents(lock: Lock) -> str:
    return f"{counted(len(lock.inputs), 'file')}, {counted(len(lock.schemas), 'schema')}"


def _check(file: Path, output: Path) -> None:
    from tailrace.config import inputs_of

    console = answers()
    found = inputs_of(output)
    for name in found.changed:
        plain(console, f"changed since {output} was built: {name}", "bold red")
    for name in found.missing:
        plain(console, f"not here to be compared: {name}")
    if found.changed:
        options = "" if str(file) == "tailrace.toml" else f" -c {shlex.quote(str(file))}"
        if output != file.with_suffix(".lock"):
            options += f" -o {shlex.quote(str(output))}"
        plain(console, f"  remedy: tailrace build{options}")
        raise typer.Exit(1)
    plain(console, f"{output} fits {counted(len(found.same), 'file')} that it was built of", "green")


def _refuse_other_files(output: Path) -> None:
    """A lock file may be replaced, and nothing else: `--output tailrace.toml` is a slip."""
    from tailrace.config.lock import KIND

    if not output.absolute().parent.is_dir():
        raise ConfigError(
            f"there is no directory {output.parent}", remedy="create it, or choose another --output"
        )
    try:
        text = output.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", place=str(output)) from None
    if f'"{KIND}"' not in text:
        raise ConfigError(
            "there is a file already that is no lock file",
            place=str(output),
            remedy="choose another --output, or remove it",
        )


def _write(output: Path, text: str) -> bool:
    """Replace the file as a whole; False where it is the same."""
    with contextlib.suppress(OSError):
        if output.read_bytes() == text.encode():
            return False
    temporary = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(output)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", place=str(output)) from None
    finally:
        temporary.unlink(missing_ok=True)
    return True

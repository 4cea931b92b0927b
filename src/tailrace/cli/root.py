"""The command `tailrace` itself: global options, and where errors become messages and exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from tailrace.cli import (
    build,
    check,
    deadletters,
    indexes,
    init,
    install,
    reindex,
    run,
    schema,
    search,
    snapshot,
    status,
)
from tailrace.cli.options import ConfigPath, LockPath, forget, pasteable
from tailrace.cli.screen import messages, plain, show_error
from tailrace.model.errors import TailraceError, UsageError, policy

ABORTED = 130
_debug = False

EPILOG = (
    "Begin with: `tailrace init sqlite:shop.db` or `tailrace init postgresql://…`, then `tailrace check`,"
    " then `tailrace run`. Exit codes: 0 done, 1 failure or findings, 2 bad input, 3 a person must act,"
    " 4 a passing fault that lasted, 5 a value that cannot be carried, 130 aborted."
)

app = typer.Typer(
    name="tailrace",
    help="Keep tables and feeds in step with a database, through Spark.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
)


def _version(value: bool) -> None:
    if value:
        try:
            number = version("tailrace")
        except PackageNotFoundError:
            from tailrace import __version__ as number
        typer.echo(f"tailrace {number}")
        raise typer.Exit


@app.callback()
def _global(
    context: typer.Context,
    config: ConfigPath = None,
    locked: LockPath = None,
    show_version: Annotated[  # noqa: ARG001 - its callback acts
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the Python traceback of an error.")] = False,
) -> None:
    global _debug  # noqa: PLW0603 - main needs it after the context is gone
    _debug = debug
    context.obj = {"config": config, "locked": locked}


app.command("init")(init.command)
app.command("check")(check.command)
app.command("build")(build.command)
app.command("setup")(install.setup)
app.command("teardown")(install.teardown)
app.command("run")(run.command)
app.command("snapshot")(snapshot.command)
app.command("status")(status.command)
app.command("indexes")(indexes.command)
app.command("reindex")(reindex.command)
app.command("search")(search.command)
app.add_typer(deadletters.app, name="deadletters")
app.add_typer(schema.app, name="schema")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line; leaves the process with its exit code."""
    sys.exit(_run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    global _debug  # noqa: PLW0603
    _debug = False
    forget()
    try:
        result = app(
            list(arguments) if arguments is not None else None, prog_name="tailrace", standalone_mode=False
        )
        return result if isinstance(result, int) else 0
    except TailraceError as error:
        _traceback()
        show_error(error, pasteable)
        return policy(error).exit_code
    except typer.TyperException as error:
        return _usage(error)
    except (KeyboardInterrupt, typer.Abort):
        plain(messages(), "aborted")
        return ABORTED
    except BrokenPipeError:
        # Whoever read the output has left (`tailrace status | head`): Python must not complain at exit.
        sys.stdout = None
        return 0
    except Exception as error:
        _traceback()
        show_error(
            TailraceError(f"unexpected {type(error).__name__}: {error}", remedy="run it again with --debug")
        )
        return policy(error).exit_code


def _usage(error: typer.TyperException) -> int:
    message = error.format_message()
    if not message:
        # No command was given: the help is already on the screen.
        return error.exit_code
    path = getattr(getattr(error, "ctx", None), "command_path", "tailrace")
    text = message[:1].lower() + message[1:].rstrip(".")
    show_error(UsageError(text, remedy=f"{path} --help"))
    return error.exit_code


def _traceback() -> None:
    if _debug:
        import traceback

        traceback.print_exc()

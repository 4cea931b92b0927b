"""`tailrace schema`: schemas for editors."""

from __future__ import annotations

import json

import typer

app = typer.Typer(
    help="Print JSON Schemas, for editors and other programs.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@app.callback()
def _schemas() -> None:
    pass


@app.command("config")
def config() -> None:
    """Print the JSON Schema of tailrace.toml.

    Editors that know JSON Schema for TOML complete keys with it and mark mistakes.

    Example: `tailrace schema config > tailrace.schema.json`
    """
    from tailrace.config import config_schema

    typer.echo(json.dumps(config_schema(), indent=2))


@app.command("index")
def index() -> None:
    """Print the JSON Schema of an index schema, the YAML file that says what documents look like.

    Editors that know JSON Schema for YAML complete keys with it and mark mistakes.

    Example: `tailrace schema index > index.schema.json`
    """
    from tailrace.config.index import index_schema

    typer.echo(json.dumps(index_schema(), indent=2))

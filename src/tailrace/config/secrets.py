"""Secrets that are written out in a configuration, where a reference to the environment belongs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tailrace.config.lines import Path
from tailrace.config.models import is_secret_setting
from tailrace.config.outline import has_free_keys
from tailrace.config.problems import Problem
from tailrace.config.references import names_in
from tailrace.model.secret import holds_secret

REMEDY = 'write `{ env = "NAME" }` or `${NAME}` in its place, and export NAME where the pipeline runs'


def written_out(tree: Any) -> list[Problem]:
    """Every value of a tree that is a secret, or has one in it, and is no reference."""
    return [
        Problem(path, "is or holds a secret that is written out, and a lock file holds none", REMEDY)
        for path, text in _texts(tree, ())
        if _is_secret(path, text)
    ]


def _is_secret(path: Path, text: str) -> bool:
    # `$${` stands for characters, and begins no reference.
    if holds_secret(text.replace("$${", "__")):
        return True
    if names_in(text):
        return False
    match path:
        case ("sinks", _, "headers", *_) | ("sinks", _, "password" | "api_key"):
            return bool(text)
        case ("spark", *keys) | ("source", "options", *keys) if text not in ("true", "false"):
            return is_secret_setting(".".join(map(str, keys)), text)
    return False


def _texts(node: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(node, str):
        yield path, node
    elif isinstance(node, int | float) and not isinstance(node, bool):
        # A password may have digits only.
        yield path, str(node)
    elif isinstance(node, dict):
        if set(node) != {"env"} or has_free_keys(path):
            for key, inner in node.items():
                yield from _texts(inner, (*path, key))
    elif isinstance(node, list):
        for at, inner in enumerate(node):
            yield from _texts(inner, (*path, at))

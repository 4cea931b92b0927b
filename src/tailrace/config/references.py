"""References to the environment in a configuration's strings: `{ env = "NAME" }` and `${NAME}`.

`resolve` replaces them in the parsed tree and remembers what stood there, so that a configuration can be
printed, and sent to other processes, as references instead of values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.config.lines import Path
from tailrace.model.errors import ConfigError

_REFERENCE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$\{")


class MissingVariable(ValueError):
    """A referenced variable is not set; the text is the message."""


def names_in(text: str) -> list[str]:
    """The variables that a string refers to."""
    return [match[1] for match in _REFERENCE.finditer(text) if match[1]]


def _expand(text: str, environ: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        name = match[1]
        if name is None:
            raise ValueError(
                "`${` begins a reference like `${NAME}`; write `$${` for the characters themselves"
            )
        if name not in environ:
            raise MissingVariable(f"the environment variable `{name}` is not set")
        return environ[name]

    return _REFERENCE.sub(value, text)


def expand(text: str, environ: Mapping[str, str]) -> str:
    """The text with every `${NAME}` replaced from the environment; `$${` stands for `${`."""
    try:
        return _expand(text, environ)
    except ValueError as error:
        raise ConfigError(str(error), remedy=_remedy(error, text, environ)) from None


def _remedy(error: ValueError, text: str, environ: Mapping[str, str]) -> str | None:
    if not isinstance(error, MissingVariable):
        return None
    return "; ".join(f"export {name}=…" for name in dict.fromkeys(names_in(text)) if name not in environ)


@dataclass(frozen=True)
class Failure:
    """A reference that could not be resolved: its variable is not set, or it is none."""

    path: Path
    text: str
    remedy: str | None
    is_unset: bool


@dataclass
class Resolved:
    """A tree without references, what stood in their places, and what could not be resolved."""

    tree: Any
    references: dict[Path, str] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    names: set[str] = field(default_factory=set)


def resolve(tree: Any, environ: Mapping[str, str], *, is_table: Callable[[Path], bool]) -> Resolved:
    """Replace every reference in a parsed tree.

    `is_table` says whether a table with free keys belongs at a path: there `{ env = "x" }` is a table whose
    key happens to be `env`.
    """
    result = Resolved(None)

    def visit(node: Any, path: Path) -> Any:
        if isinstance(node, dict):
            if set(node) == {"env"} and isinstance(node["env"], str) and not is_table(path):
                return leaf("${" + node["env"] + "}", path)
            return {key: visit(inner, (*path, key)) for key, inner in node.items()}
        if isinstance(node, list):
            return [visit(inner, (*path, index)) for index, inner in enumerate(node)]
        if isinstance(node, str) and "${" in node:
            return leaf(node, path)
        return node

    def leaf(text: str, path: Path) -> str:
        found = names_in(text)
        result.names.update(found)
        if found:
            result.references[path] = text
        try:
            return _expand(text, environ)
        except ValueError as error:
            unset = isinstance(error, MissingVariable)
            result.failures.append(Failure(path, str(error), _remedy(error, text, environ), unset))
            return ""

    result.tree = visit(tree, ())
    return result

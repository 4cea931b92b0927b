"""Values laid over the file's: `TAILRACE_*` variables, and flags over both.

`TAILRACE_SOURCE__URL` is `source.url`: two underscores between levels, letters in any case, a number for an
entry of an array. A variable without two underscores counts only where it names a key of the top level, so
that variables of other use may begin with `TAILRACE_`; so does a variable that the file refers to by name.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.config.hints import nearest
from tailrace.config.lines import Path
from tailrace.config.outline import children, has_free_keys, takes_boolean, takes_list
from tailrace.config.problems import Problem

PREFIX = "TAILRACE_"


class Overrides:
    """Lays values over a tree and remembers where each came from."""

    def __init__(self, tree: dict[str, Any]) -> None:
        self.tree = tree
        self.origins: dict[Path, str] = {}
        self.problems: list[Problem] = []

    def take_variables(self, environ: Mapping[str, str], *, referenced: set[str]) -> None:
        """Every `TAILRACE_*` variable that means a key."""
        for name in sorted(environ):
            if not name.startswith(PREFIX) or name in referenced:
                continue
            steps = name.removeprefix(PREFIX).split("__")
            if len(steps) > 1 or steps[0].lower() in children(()):
                self._lay(steps, environ[name], f"variable {name}", any_case=True)

    def take_flags(self, flags: Mapping[str, str]) -> None:
        """Flags, by dotted key: `source.url`."""
        for key, value in flags.items():
            self._lay(key.split("."), value, f"option {key}", any_case=False)

    def covers(self, path: Path) -> bool:
        """Whether a value of the file was replaced."""
        return any(path[:length] in self.origins for length in range(1, len(path) + 1))

    def _lay(self, steps: Sequence[str], text: str, origin: str, *, any_case: bool) -> None:
        path = self._path(steps, any_case=any_case)
        self.origins[path] = origin
        for length in range(1, len(path) + 1):
            if not self._known(path[:length]):
                *parents, last = path[:length]
                hint = nearest(str(last), children(parents))
                self.problems.append(Problem(path, f"unknown key `{last}`{hint}"))
                return
        node: Any = self.tree
        for step in path[:-1]:
            if isinstance(node, dict):
                node = node.setdefault(str(step), {})
            else:
                node = node[step] if self._has(node, step) else None
        if isinstance(node, dict):
            node[path[-1]] = self._value(path, text)
        elif isinstance(path[-1], int) and self._has(node, path[-1]):
            node[path[-1]] = text
        else:
            self.problems.append(Problem(path, "the file has no such entry"))

    def _path(self, steps: Sequence[str], *, any_case: bool) -> Path:
        path: Path = ()
        node: Any = self.tree
        for at, step in enumerate(steps):
            # A setting's name has dots in it, a header's or column's may: there the rest is one key.
            is_rest = has_free_keys(path) and path != ("sinks",)
            key = self._key(node, ".".join(steps[at:]) if is_rest else step, path, any_case=any_case)
            path = (*path, key)
            if is_rest:
                break
            if isinstance(node, dict):
                node = node.get(str(key))
            else:
                node = node[key] if self._has(node, key) else None
        return path

    def _has(self, node: Any, key: str | int) -> bool:
        return isinstance(node, list) and isinstance(key, int) and key < len(node)

    def _key(self, node: Any, step: str, path: Path, *, any_case: bool) -> str | int:
        if isinstance(node, list) and step.isdecimal() and len(step) < 6:
            return int(step)
        if not any_case:
            return step
        known = [*(node if isinstance(node, dict) else ()), *children(path)]
        return next((name for name in known if name.lower() == step.lower()), step.lower())

    def _known(self, path: Path) -> bool:
        parent, last = path[:-1], path[-1]
        if isinstance(last, int):
            return takes_list(parent)
        return has_free_keys(parent) or last in children(parent)

    def _value(self, path: Path, text: str) -> Any:
        stripped = text.strip()
        is_list = takes_list(path)
        if (stripped.startswith("[") and is_list) or (stripped.startswith("{") and has_free_keys(path)):
            try:
                return tomllib.loads(f"value = {stripped}")["value"]
            except ValueError:
                self.problems.append(Problem(path, "is not a value that TOML can read"))
        if is_list:
            return [item.strip() for item in text.split(",")]
        if takes_boolean(path) and stripped.lower() in ("true", "false"):
            return stripped.lower() == "true"
        return text

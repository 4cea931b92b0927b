"""Where a part of an index schema stands: file, line, and the field as the document names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.config.lines import Lines, Path
from tailrace.config.problems import Places, dotted


@dataclass(frozen=True)
class IndexPlaces(Places):
    """`names` are those of the fields, by path: `("fields", 3)` is `orders`."""

    names: Mapping[Path, str] = field(default_factory=dict)

    @classmethod
    def unknown(cls) -> IndexPlaces:
        """The places of a schema that comes from no file."""
        return cls("index schema", Lines({}), {})

    def described(self, path: Path) -> str:
        """The field, and the key of it: `field orders.total, column`."""
        fields: list[str] = []
        at = 0
        while len(path) >= at + 2 and path[at] == "fields" and isinstance(path[at + 1], int):
            fields.append(self.names.get(path[: at + 2]) or dotted(path[at : at + 2]))
            at += 2
        key = dotted(path[at:])
        if not fields:
            return key
        named = "" if path[:at] not in self.names else "field "
        return f"{named}{'.'.join(fields)}" + (f", {key}" if key else "")


def field_names(tree: Any, kinds: Mapping[str, Any]) -> dict[Path, str]:
    """The names of all fields of a tree, right or wrong, by path."""
    found: dict[Path, str] = {}
    waiting: list[tuple[Path, Any]] = [((), tree)]
    while waiting:
        path, node = waiting.pop()
        inside = node.get("fields") if isinstance(node, dict) else None
        for index, item in enumerate(inside if isinstance(inside, list | tuple) else ()):
            here = (*path, "fields", index)
            if isinstance(item, dict):
                name = next((item[key] for key in item if key in kinds), None)
                if isinstance(name, str) and name:
                    found[here] = name[:63]
                waiting.append((here, item))
    return found

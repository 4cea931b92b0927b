"""A YAML text as a tree of plain values, with the line of everything in it.

Only what an index schema needs: mappings, lists, and scalars as YAML 1.2 reads them, with the text of those
that are written without quotes (`Plain`). Anchors, aliases, tags and second documents are refused, so that a
file means what it shows. The parser's events are read one by one, and nesting is bounded.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from tailrace.config.index.values import Plain
from tailrace.config.lines import Lines, Path
from tailrace.config.problems import Problem
from tailrace.model.errors import ConfigError

MAX_DEPTH = 100
_MAX_DIGITS = 300
_NULL = re.compile(r"~|null|Null|NULL|")
_TRUE = re.compile(r"true|True|TRUE")
_FALSE = re.compile(r"false|False|FALSE")
# A zero in front makes a text of it: `0123` is a code, in one version of YAML 83 and in another 123.
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")


@dataclass
class Tree:
    """A parsed text. `problems` are about places whose value is not to be trusted."""

    value: Any = None
    lines: Lines = field(default_factory=lambda: Lines({}))
    problems: list[Problem] = field(default_factory=list)


@dataclass
class _Frame:
    """A mapping or list that is being read."""

    node: Any
    path: Path
    line: int
    key: str | None = None


def read_tree(text: str, file: str) -> Tree:
    """The tree of a text; one that is not YAML is refused with the line."""
    reader = _Reader(file)
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            reader.take(event)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, file) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        code = error.character if isinstance(error.character, int) else ord(str(error.character)[:1] or "\0")
        raise ConfigError(
            f"is not YAML: it holds the character U+{code:04X}", place=f"{file}:{line}"
        ) from None
    return reader.tree


class _Reader:
    def __init__(self, file: str) -> None:
        self.tree = Tree()
        self._file = file
        self._frames: list[_Frame] = []
        self._documents = 0

    def take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise self._refused(event, "holds a second document after `---`", "one file is one index")
        elif isinstance(event, yaml.AliasEvent):
            path = self._place(event)
            self._problem(path, f"`*{event.anchor}` repeats another part of the file", "write it out")
            self._put(path, None)
        elif isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self._open(event)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self._frames.pop()

    def _open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        if len(self._frames) >= MAX_DEPTH:
            raise self._refused(event, f"is nested more than {MAX_DEPTH} levels deep")
        if self._wants_key():
            raise self._refused(event, "has a key that is no text")
        path = self._place(event)
        self._unwanted(event, path)
        node: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
        self._put(path, node)
        self._frames.append(_Frame(node, path, _line(event)))

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        if self._wants_key():
            self._key(event)
            return
        path = self._place(event)
        self._unwanted(event, path)
        plain = event.style is None and event.implicit[0]
        try:
            self._put(path, scalar(event.value) if plain else event.value)
        except ValueError as error:
            self._problem(path, str(error))
            self._put(path, None)

    def _key(self, event: yaml.ScalarEvent) -> None:
        frame = self._frames[-1]
        path = (*frame.path, event.value)
        if event.value in frame.node:
            line = self.tree.lines.found.get(path)
            self._problem(path, f"the key stands there twice, first in line {line}", line=_line(event))
        else:
            self.tree.lines.found[path] = _line(event)
        self._unwanted(event, path)
        frame.key = event.value

    def _wants_key(self) -> bool:
        return bool(self._frames) and isinstance(self._frames[-1].node, dict) and self._frames[-1].key is None

    def _place(self, event: yaml.Event) -> Path:
        """The path of the value that begins here."""
        if not self._frames:
            self.tree.lines.found[()] = _line(event)
            return ()
        frame = self._frames[-1]
        if isinstance(frame.node, dict):
            return (*frame.path, frame.key or "")
        path = (*frame.path, len(frame.node))
        self.tree.lines.found[path] = _line(event)
        return path

    def _put(self, path: Path, value: Any) -> None:
        if not self._frames:
            self.tree.value = value
            return
        frame = self._frames[-1]
        if isinstance(frame.node, dict):
            frame.node.setdefault(path[-1], value)
            frame.key = None
        else:
            frame.node.append(value)

    def _unwanted(self, event: yaml.NodeEvent, path: Path) -> None:
        if event.anchor is not None:
            self._problem(path, f"`&{event.anchor}` names a part of the file", "leave it out")
        tag = getattr(event, "tag", None)
        if tag is not None and tag != "!":
            self._problem(path, "has a tag; the language has none", "leave out the word that begins with `!`")

    def _problem(self, path: Path, text: str, remedy: str | None = None, line: int | None = None) -> None:
        self.tree.problems.append(Problem(path, text, remedy))
        if line is not None:
            self.tree.lines.found[path] = line

    def _refused(self, event: yaml.Event, text: str, remedy: str | None = None) -> ConfigError:
        return ConfigError(text, place=f"{self._file}:{_line(event)}", remedy=remedy)


def scalar(text: str) -> Any:
    """What an unquoted scalar is: null, a `Plain` with its value, or the text itself."""
    if _NULL.fullmatch(text):
        return None
    if _TRUE.fullmatch(text):
        return Plain(text, True)
    if _FALSE.fullmatch(text):
        return Plain(text, False)
    if len(text) > _MAX_DIGITS:
        return text
    if _INTEGER.fullmatch(text):
        return Plain(text, int(text))
    if _FLOAT.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise ValueError("is too large for a number; put it in quotes where it is a text")
        return Plain(text, number)
    return text


def _line(event: yaml.Event) -> int:
    mark = event.start_mark
    return int(mark.line) + 1 if mark is not None else 1


def _syntax_error(error: yaml.MarkedYAMLError, file: str) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark is not None else 1
    column = f", column {mark.column + 1}" if mark is not None else ""
    what = error.problem or error.context or "it cannot be read"
    remedy = "indent with spaces" if "\\t" in what else None
    return ConfigError(f"is not YAML: {what}{column}", place=f"{file}:{line}", remedy=remedy)

"""Where each key of a TOML text stands: tomllib gives values without their lines.

`find_lines` scans a text that tomllib has accepted and notes the line of every key, table header and array
element. It understands just enough of TOML for that. On a text that is not TOML it finds less, and never
fails.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

Path = tuple[str | int, ...]

_DEPTH = 64
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[^\s.=\[\]{},#\"']+")
_STRINGS = (
    # Up to two quotation marks may stand right before the closing three.
    re.compile(r'"""(?:\\.|[^\\])*?"""(?:"{1,2})?', re.DOTALL),
    re.compile(r"'''.*?'''(?:'{1,2})?", re.DOTALL),
    re.compile(r'"(?:\\.|[^"\\\n])*"'),
    re.compile(r"'[^'\n]*'"),
)
_SCALAR = re.compile(r"[^,\]}#\n]*")
_ESCAPE = re.compile(r'\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[btnfr"\\])')
_ESCAPED = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\"}


@dataclass(frozen=True)
class Lines:
    """The lines that were found, by path: `("table", 0, "name")`."""

    found: dict[Path, int]

    def line(self, path: Sequence[str | int]) -> int:
        """The line of a path, or of the nearest thing around it; 1 where nothing is known."""
        for length in range(len(path), 0, -1):
            if (line := self.found.get(tuple(path[:length]))) is not None:
                return line
        return 1


def find_lines(text: str) -> Lines:
    """The line, counted from 1, of every key in a TOML text."""
    scanner = _Scanner(text)
    scanner.run()
    return Lines(scanner.found)


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.found: dict[Path, int] = {}
        self._starts = [match.end() for match in re.finditer("\n", text)]
        self._counts: dict[Path, int] = {}

    def run(self) -> None:
        base: Path = ()
        while True:
            self._skip(_BLANK)
            if self.at >= len(self.text):
                return
            begun = self.at
            if self.text[self.at] == "[":
                base = self._header()
            else:
                self._pair(base, 0)
            self._skip(_SCALAR)
            # Whatever could not be understood is stepped over, so that every turn makes progress.
            if self.at == begun:
                self.at += 1

    def _header(self) -> Path:
        line = self._line()
        is_array = self.text.startswith("[[", self.at)
        self.at += 2 if is_array else 1
        names = self._keys()
        while self.at < len(self.text) and self.text[self.at] == "]":
            self.at += 1
        if not names:
            return ()
        if is_array:
            path: Path = (*self._resolve(names[:-1]), names[-1])
            self._counts[path] = self._counts.get(path, -1) + 1
            path = (*path, self._counts[path])
        else:
            path = self._resolve(names)
        self._note(path, line)
        return path

    def _resolve(self, names: Sequence[str]) -> Path:
        """The path that a header means: under an array of tables it means the newest element."""
        path: Path = ()
        for name in names:
            path = (*path, name)
            if path in self._counts:
                path = (*path, self._counts[path])
        return path

    def _pair(self, base: Path, depth: int) -> None:
        line = self._line()
        names = self._keys()
        if not names or self.at >= len(self.text) or self.text[self.at] != "=":
            return
        self.at += 1
        path = (*base, *names)
        self._note(path, line)
        self._skip(_SPACE)
        self._value(path, depth)

    def _value(self, path: Path, depth: int) -> None:
        opening = self.text[self.at : self.at + 1]
        if opening in ('"', "'"):
            self._string()
        elif opening == "[" and depth < _DEPTH:
            self._array(path, depth + 1)
        elif opening == "{" and depth < _DEPTH:
            self._inline_table(path, depth + 1)
        else:
            self._skip(_SCALAR)

    def _array(self, path: Path, depth: int) -> None:
        self.at += 1
        index = 0
        while True:
            self._skip(_BLANK)
            if self._ends("]"):
                return
            begun = self.at
            if self.text[self.at] == ",":
                self.at += 1
                index += 1
                continue
            self._note((*path, index), self._line())
            self._value((*path, index), depth)
            self.at += self.at == begun

    def _inline_table(self, path: Path, depth: int) -> None:
        self.at += 1
        while True:
            self._skip(_BLANK)
            if self._ends("}"):
                return
            begun = self.at
            if self.text[self.at] == ",":
                self.at += 1
                continue
            self._pair(path, depth)
            self.at += self.at == begun

    def _ends(self, closing: str) -> bool:
        if self.at >= len(self.text):
            return True
        if self.text[self.at] == closing:
            self.at += 1
            return True
        return False

    def _keys(self) -> list[str]:
        names: list[str] = []
        while True:
            self._skip(_SPACE)
            if self.text[self.at : self.at + 1] in ('"', "'"):
                quoted = self._string()
                body = quoted[1:-1]
                names.append(_unescape(body) if quoted.startswith('"') else body)
            elif match := _BARE_KEY.match(self.text, self.at):
                self.at = match.end()
                names.append(match[0])
            else:
                return names
            self._skip(_SPACE)
            if not self.text.startswith(".", self.at):
                return names
            self.at += 1

    def _string(self) -> str:
        for pattern in _STRINGS:
            if match := pattern.match(self.text, self.at):
                self.at = match.end()
                return match[0]
        self.at += 1
        return '""'

    def _skip(self, pattern: re.Pattern[str]) -> None:
        if match := pattern.match(self.text, self.at):
            self.at = match.end()

    def _line(self) -> int:
        return bisect_right(self._starts, self.at) + 1

    def _note(self, path: Path, line: int) -> None:
        for length in range(1, len(path) + 1):
            self.found.setdefault(path[:length], line)


def _unescape(body: str) -> str:
    def character(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] in "uU":
            number = int(code[1:], 16)
            return chr(number) if number < 0x110000 else "\ufffd"
        return _ESCAPED[code]

    return _ESCAPE.sub(character, body)

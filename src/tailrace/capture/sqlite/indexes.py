"""SQL texts of the catalog taken apart: indexed expressions, a partial index's condition, a column's default,
an application's trigger.

SQLite's catalog names the columns of an index but not its expressions; those are only in the text of the
statement. A small tokenizer is enough: SQLite has accepted the text already.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise

from tailrace.model.table import quote

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*(?:\n|$)|/\*.*?(?:\*/|$))
      | (?P<string>[xX]?'(?:[^']|'')*')
      | (?P<quoted>"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\])
      | (?P<number>\d[\w.]*|\.\d\w*)
      | (?P<word>[^\W\d][\w$]*)
      | (?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
# Words that, unquoted, are never a column inside an expression.
_KEYWORDS = frozenset(
    (
        *(
            "AND",
            "AS",
            "ASC",
            "BETWEEN",
            "CASE",
            "CAST",
            "COLLATE",
            "DESC",
            "DISTINCT",
            "ELSE",
            "END",
            "ESCAPE",
        ),
        *("EXISTS", "FROM", "GLOB", "IN", "IS", "ISNULL", "LIKE", "MATCH", "NOT", "NOTNULL", "NULL", "OR"),
        *("REGEXP", "THEN", "WHEN"),
    )
)
# Words that are no text where a default stands.
_CONSTANTS = frozenset(("CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "FALSE", "NULL", "TRUE"))


@dataclass(frozen=True)
class Token:
    """One token; `text` is as written."""

    kind: str
    text: str

    @property
    def name(self) -> str | None:
        """The identifier it spells, without quotes."""
        if self.kind == "word":
            return self.text
        if self.kind == "quoted":
            closing = "]" if self.text[0] == "[" else self.text[0]
            return self.text[1:-1].replace(closing * 2, closing)
        return None


@dataclass(frozen=True)
class IndexText:
    """The indexed terms, without ASC and DESC, and the condition of a partial index."""

    terms: tuple[str, ...]
    where: str | None


def tokens(text: str) -> list[Token]:
    """The tokens of an SQL text, comments and white space as single spaces."""
    found = []
    for match in _TOKEN.finditer(text):
        kind = str(match.lastgroup)
        found.append(Token(kind, " " if kind == "space" else match.group()))
    return found


def parse(sql: str) -> IndexText:
    """The terms and the condition of a CREATE INDEX statement."""
    found = _unqualified(tokens(sql))
    opening = next(i for i, token in enumerate(found) if token.text == "(")
    terms: list[list[Token]] = [[]]
    depth, at = 1, opening
    while depth:
        at += 1
        token = found[at]
        depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "sign" else 0
        if depth == 1 and token.text == ",":
            terms.append([])
        elif depth:
            terms[-1].append(token)
    rest = [token for token in found[at + 1 :] if token.text != ";"]
    start = next((i for i, t in enumerate(rest) if t.kind == "word" and t.text.upper() == "WHERE"), None)
    where = None if start is None else "".join(token.text for token in rest[start + 1 :]).strip()
    return IndexText(tuple(_without_order(term) for term in terms), where)


def _unqualified(found: list[Token]) -> list[Token]:
    """The tokens without the names before a dot: they can only be those of the index's own table."""
    solid = [i for i, token in enumerate(found) if token.kind != "space"]
    gone: set[int] = set()
    for here, following in pairwise(solid):
        if found[here].name is not None and found[following] == Token("sign", "."):
            gone |= {here, following}
    return [token for i, token in enumerate(found) if i not in gone]


def default_value(text: str) -> str:
    """A column's default as an expression: an identifier in its place is a text, with or without quotes."""
    found = [token for token in tokens(text) if token.kind != "space"]
    if len(found) == 1 and (name := found[0].name) is not None and name.upper() not in _CONSTANTS:
        return "'" + name.replace("'", "''") + "'"
    return f"({text})"


def runs_before(trigger: str) -> bool:
    """Does the trigger of a table run before its row is written? It does where it does not say when."""
    return not _after(trigger)


def may_skip_others(trigger: str) -> bool:
    """Does the trigger run after its row is written, and may it then keep other triggers from running?"""
    words = _after(trigger)
    return any(words[i : i + 3] == ["RAISE", "(", "IGNORE"] for i in range(len(words)))


def _after(trigger: str) -> list[str]:
    """What follows the word AFTER, in capitals; nothing where the trigger runs before."""
    found = [token for token in tokens(trigger) if token.kind != "space"]
    words = [token.text.upper() for token in found]
    at = words.index("TRIGGER") + 1
    if words[at : at + 3] == ["IF", "NOT", "EXISTS"]:
        at += 3
    at += 3 if words[at + 1] == "." else 1
    return words[at + 1 :] if words[at] == "AFTER" else []


def _without_order(term: list[Token]) -> str:
    while term and (term[-1].kind == "space" or term[-1].text.upper() in ("ASC", "DESC")):
        term = term[:-1]
    return "".join(token.text for token in term).strip()


def qualify(expression: str, prefix: str, columns: Collection[str]) -> str:
    """The expression with every column of `columns` written as `prefix`.column."""
    names = {column.lower(): column for column in columns}
    found = tokens(expression)
    solid = [i for i, token in enumerate(found) if token.kind != "space"]
    out = [token.text for token in found]
    for place, i in enumerate(solid):
        token = found[i]
        before = found[solid[place - 1]].text.upper() if place else ""
        after = found[solid[place + 1]].text if place + 1 < len(solid) else ""
        name = token.name
        if name is None or name.lower() not in names or after == "(" or before in ("COLLATE", "AS"):
            continue
        if token.kind == "word" and name.upper() in _KEYWORDS:
            continue
        out[i] = f"{prefix}.{quote(names[name.lower()])}"
    return "".join(out)

"""Code blocks and links of Markdown files, for the tests that hold documentation to its word."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(
    r"^(?P<fence>`{3,})(?P<language>[\w-]*)[^\n]*\n(?P<body>.*?)^(?P=fence)\s*$", re.MULTILINE | re.DOTALL
)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(?P<title>.+?)\s*$", re.MULTILINE)
_CODE = re.compile(r"`[^`\n]*`")


@dataclass(frozen=True)
class Block:
    """A fenced block and the line it begins on."""

    line: int
    body: str


def code_blocks(text: str, language: str) -> list[Block]:
    """The fenced blocks of one language, in order."""
    return [
        Block(text.count("\n", 0, match.start("body")) + 1, match["body"])
        for match in _FENCE.finditer(text)
        if match["language"] == language
    ]


def runnable(page: Path) -> list[Block]:
    """The Python of a page that runs as it stands; what needs the reader's session begins by saying so."""
    blocks = code_blocks(page.read_text(encoding="utf-8"), "python")
    return [block for block in blocks if not block.body.startswith("# in a session `spark`")]


def links(text: str) -> list[str]:
    """The targets of all links outside code."""
    return [match["target"] for match in _LINK.finditer(_CODE.sub("", _FENCE.sub("", text)))]


def anchors(text: str) -> set[str]:
    """The anchors of all headings, as forges make them."""
    titles = [match["title"].replace("`", "") for match in _HEADING.finditer(_FENCE.sub("", text))]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(file: Path) -> list[str]:
    """The links of a file that lead to no file or no heading; links to the outside are not followed."""
    text = file.read_text(encoding="utf-8")
    broken = []
    for target in links(text):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, anchor = target.partition("#")
        goal = file.parent / path if path else file
        is_page = goal.suffix == ".md" and goal.is_file()
        if not goal.exists() or (
            anchor and is_page and anchor not in anchors(goal.read_text(encoding="utf-8"))
        ):
            broken.append(target)
    return broken

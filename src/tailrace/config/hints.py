"""A hint at what a misspelt word may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean …?` with the most similar known word, or nothing where none is similar."""
    spelled = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), spelled, 1)
    return f"; did you mean `{spelled[found[0]]}`?" if found else ""


def listed(words: Iterable[str]) -> str:
    """Words as a list for a sentence: `a`, `b`."""
    return ", ".join(f"`{word}`" for word in words)

"""How texts are cut into words for searching: the analyzers and normalizers of every index.

There are two families. `builtin` is in every OpenSearch and Elasticsearch. `icu` needs the plugin
`analysis-icu` on every node, and knows words and letters of all scripts.

| name | for |
| --- | --- |
| `tailrace_text` | natural text: words, whatever their case and accents |
| `tailrace_identifier`, `tailrace_identifier_search` | codes like `C-01234`, stored and asked for |
| `tailrace_lower` | whole texts, whatever their case |
| `tailrace_digits` | a decimal's digits, without the zeros that say nothing |
| `tailrace_rank_…` | the place of an enum's text among its variants |
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Literal

Analysis = Literal["builtin", "icu"]

TEXT, IDENTIFIER, IDENTIFIER_SEARCH = "tailrace_text", "tailrace_identifier", "tailrace_identifier_search"
LOWER, DIGITS = "tailrace_lower", "tailrace_digits"

_LETTER_OR_DIGIT = r"[\p{L}\p{M}\p{N}]"
# Where a part of a code begins: after a separator, and between letters and digits.
_BORDER = rf"(?:(?<!{_LETTER_OR_DIGIT})|(?<=[\p{{L}}\p{{M}}])(?=\p{{N}})|(?<=\p{{N}})(?=\p{{L}}))"
# A rank is told from a text by its first character, one that nobody uses; what has none comes last.
_RANKED, _UNRANKED = "\ue000", "\ue001"
# A code has few parts. Of a longer text no more are kept.
_MOST_PARTS = 100
_LONGEST_PART = 200


def analysis_settings(analysis: Analysis, ranks: Sequence[tuple[str, ...]] = ()) -> dict[str, Any]:
    """The `analysis` part of an index's settings; `ranks` are the variants of its ordered enums."""
    folded = ["icu_folding"] if analysis == "icu" else ["lowercase", "asciifolding"]
    settings: dict[str, Any] = {
        "analyzer": {
            TEXT: {
                "type": "custom",
                "tokenizer": "icu_tokenizer" if analysis == "icu" else "standard",
                "filter": folded,
            },
            IDENTIFIER: {
                "type": "custom",
                "tokenizer": "keyword",
                "filter": [
                    "tailrace_parts",
                    *folded,
                    "tailrace_with_and_without_zeros",
                    "tailrace_some",
                    "tailrace_short",
                    "unique",
                    "tailrace_few",
                ],
            },
            IDENTIFIER_SEARCH: {
                "type": "custom",
                "char_filter": ["tailrace_unseparated"],
                "tokenizer": "keyword",
                "filter": [
                    "tailrace_words",
                    *folded,
                    "tailrace_joined",
                    "tailrace_some",
                    "tailrace_short",
                    "unique",
                    "tailrace_few",
                ],
            },
        },
        "filter": {
            # What stands from a border to the end, and what stands between two borders.
            "tailrace_parts": {
                "type": "pattern_capture",
                "preserve_original": True,
                "patterns": [
                    rf"(?={_BORDER}({_LETTER_OR_DIGIT}.*))",
                    rf"({_LETTER_OR_DIGIT}+)",
                    r"(\p{N}+)",
                    r"([\p{L}\p{M}]+)",
                ],
            },
            # Words one after the other, so that a query may ask for all of them, and all in one.
            "tailrace_words": {
                "type": "word_delimiter",
                "catenate_all": True,
                "split_on_case_change": False,
                "split_on_numerics": False,
                "stem_english_possessive": False,
            },
            "tailrace_joined": {
                "type": "pattern_replace",
                "pattern": r"[^\p{L}\p{M}\p{N}]+",
                "replacement": "",
            },
            "tailrace_no_zeros": {
                "type": "pattern_replace",
                "pattern": r"(?<!\p{N})0+(?=\p{N})",
                "replacement": "",
            },
            "tailrace_with_and_without_zeros": {
                "type": "multiplexer",
                "preserve_original": False,
                # Zeros are looked for while separators still show where a number begins.
                "filters": ["tailrace_joined", "tailrace_no_zeros,tailrace_joined"],
            },
            "tailrace_some": {"type": "length", "min": 1},
            "tailrace_short": {"type": "truncate", "length": _LONGEST_PART},
            "tailrace_few": {"type": "limit", "max_token_count": _MOST_PARTS},
        },
        "char_filter": {
            # Of what separates parts only blanks separate words.
            "tailrace_unseparated": {
                "type": "pattern_replace",
                "pattern": r"[^\p{L}\p{M}\p{N}\s]+",
                "replacement": "",
            },
            # A document has the zeros that its source shows: 1.50.
            DIGITS: {
                "type": "pattern_replace",
                "pattern": r"^(-?[0-9]+)(?:\.0*|(\.[0-9]*[1-9])0*)$",
                "replacement": "$1$2",
            },
        },
        "normalizer": {
            LOWER: {
                "type": "custom",
                "filter": ["icu_normalizer"] if analysis == "icu" else ["lowercase"],
            },
            DIGITS: {"type": "custom", "char_filter": [DIGITS]},
        },
    }
    for variants in ranks:
        _add_rank(settings, variants)
    return settings


def rank_normalizer(variants: Sequence[str]) -> str:
    """The name of the normalizer that makes of a variant its place among all of them."""
    return "tailrace_rank_" + hashlib.sha256("\0".join(variants).encode()).hexdigest()[:12]


def _add_rank(settings: dict[str, Any], variants: tuple[str, ...]) -> None:
    name = rank_normalizer(variants)
    digits = len(str(len(variants)))
    filters = settings["char_filter"]
    filters[name] = {
        "type": "mapping",
        "mappings": [
            f"{_escaped(variant)} => {_escaped(f'{_RANKED}{at:0{digits}}')}"
            for at, variant in enumerate(variants)
        ],
    }
    filters["tailrace_unranked"] = {
        "type": "pattern_replace",
        # With the text itself: or every word of a query would be every text that is no variant.
        "pattern": rf"(?s)^(?!{_RANKED}[0-9]+$)(.*)$",
        "replacement": f"{_UNRANKED}$1",
    }
    settings["normalizer"][name] = {"type": "custom", "char_filter": [name, "tailrace_unranked"]}


def _escaped(text: str) -> str:
    """A text as a rule of a mapping takes it, whatever it holds."""
    units = text.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))

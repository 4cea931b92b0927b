"""Documents compared by value: numbers however they are written, but no number for a truth or a text."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa


class Near:
    """A number of reals: engines add in different orders, so the last digits may differ."""

    def __init__(self, value: float) -> None:
        self.value = value

    def is_like(self, found: Any) -> bool:
        return _is_number(found) and math.isclose(float(found), self.value, rel_tol=1e-9, abs_tol=1e-9)

    def __repr__(self) -> str:
        return f"about {self.value!r}"


def parsed(text: str) -> Any:
    """A document's text as Python objects, numbers exact. A key that stands twice is an error."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        assert len(made) == len(pairs), f"a key stands twice: {[key for key, _ in pairs]}"
        return made

    return json.loads(text, parse_float=Decimal, object_pairs_hook=once, parse_constant=_no_constant)


def _no_constant(name: str) -> Any:
    raise AssertionError(f"{name} is no JSON")


def differences(expected: Any, found: Any, path: str = "") -> list[str]:
    """Every place where the two are not the same, in words; empty where they are."""
    here = path or "the document"
    if isinstance(expected, Near):
        return [] if expected.is_like(found) else [f"{here}: {found!r} is not {expected!r}"]
    if isinstance(expected, dict) and isinstance(found, dict):
        if list(expected) != list(found):
            return [f"{here}: has the keys {list(found)}, not {list(expected)}"]
        return [
            line for key, one in expected.items() for line in differences(one, found[key], f"{path}.{key}")
        ]
    if isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            return [f"{here}: has {len(found)} elements, not {len(expected)}: {found!r}, not {expected!r}"]
        pairs = enumerate(zip(expected, found, strict=True))
        return [line for at, (one, other) in pairs for line in differences(one, other, f"{path}[{at}]")]
    if _is_number(expected) and _is_number(found):
        return [] if _exact(expected) == _exact(found) else [f"{here}: {found!r} is not {expected!r}"]
    if type(expected) is type(found) and expected == found:
        return []
    return [f"{here}: {found!r} is not {expected!r}"]


def compare(expected: Mapping[str, Any], found: pa.Table) -> list[str]:
    """What differs between the oracle's documents and a sink's (`DocumentSink.read`)."""
    texts = dict(zip(found.column("id").to_pylist(), found.column("document").to_pylist(), strict=True))
    lines = [f"{id_}: is missing" for id_ in expected if id_ not in texts]
    lines += [f"{id_}: should not be there" for id_ in texts if id_ not in expected]
    for id_, document in expected.items():
        if id_ in texts:
            lines += [f"{id_}: {line}" for line in differences(document, parsed(texts[id_]))]
    return lines


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _exact(value: Any) -> Fraction:
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)

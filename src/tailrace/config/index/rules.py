"""The rules that span several keys of an index schema.

They work on the tree as it is written, so that all problems of a file are told at once. Whatever has the
wrong shape is left to the models.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import decimal
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from tailrace.config.hints import nearest
from tailrace.config.index.fields import (
    MODELS,
    SHOWN_AS_TEXT,
    TRANSFORMED,
    Aggregate,
    Custom,
    Geo,
    Join,
    Map,
    Object,
    Scalar,
    kinds_in,
)
from tailrace.config.index.values import listed, text_of, value_of
from tailrace.config.lines import Path
from tailrace.config.problems import Problem

RULE = "rule"
_WHOLE = {"short": 15, "integer": 31, "long": 63}


def rules(tree: dict[str, Any]) -> Iterator[Problem]:
    """Every rule that a schema breaks."""
    yield from _soft_delete(tree)
    yield from _fields(tree, (), tree.get("primary_key"))


def with_rules(tree: dict[str, Any], error: ValidationError | None) -> None:
    """Raise what the models found and what the rules find, together."""
    broken = list(rules(tree))
    if not broken:
        if error is not None:
            raise error
        return
    details = [_again(found) for found in error.errors(include_url=False)] if error is not None else []
    details += [
        InitErrorDetails(
            type=PydanticCustomError(RULE, "{text}", {"text": problem.text, "remedy": problem.remedy}),
            loc=problem.path,
            input=None,
        )
        for problem in broken
    ]
    raise ValidationError.from_exception_data("IndexSchema", details, hide_input=True)


def _again(found: ErrorDetails) -> InitErrorDetails:
    return InitErrorDetails(
        type=found["type"], loc=found["loc"], input=found["input"], ctx=found.get("ctx", {})
    )


def _fields(owner: dict[str, Any], path: Path, parent_key: Any) -> Iterator[Problem]:
    """The fields of a row whose primary key is declared as `parent_key`, if it is."""
    fields = owner.get("fields")
    if not isinstance(fields, list | tuple):
        return
    taken: dict[str, int] = {}
    for index, field in enumerate(fields):
        here: Path = (*path, "fields", index)
        if not isinstance(field, dict):
            yield Problem(here, "must be a field: its kind and its name, `- keyword: email`")
            continue
        kinds = kinds_in(field)
        if len(kinds) != 1:
            yield _no_kind(here, field, kinds)
            continue
        kind, name = kinds[0], text_of(field[kinds[0]])
        if isinstance(name, str):
            name = name.strip()
            if name in taken:
                yield Problem(
                    (*here, kind),
                    f"there is a field `{name}` already, the {_ordinal(taken[name])} of the list",
                )
            taken.setdefault(name, index)
        yield from _of_kind(kind, field, here, parent_key)


def _no_kind(path: Path, field: dict[str, Any], kinds: list[str]) -> Problem:
    if kinds:
        said = " and ".join(f"`{kind}`" for kind in kinds)
        return Problem(path, f"a field has one kind, and this one has {said}")
    hints = (nearest(str(key), MODELS) for key in field if key not in _SIBLINGS)
    return Problem(
        path,
        f"says no kind{next((hint for hint in hints if hint), '')}",
        "begin the field with one, `- keyword: email`: " + ", ".join(MODELS),
    )


def _of_kind(kind: str, field: dict[str, Any], path: Path, parent_key: Any) -> Iterator[Problem]:
    model = MODELS[kind]
    if issubclass(model, Scalar | Custom):
        yield from _scalar(kind, field, path)
    if model is Geo:
        yield from _geo(field, path)
    if issubclass(model, Aggregate):
        yield from _aggregate(field, path)
    if issubclass(model, Join | Aggregate):
        yield from _lengths(kind, field, path, parent_key)
    if model is Object:
        yield from _fields(field, path, parent_key)
    elif issubclass(model, Join):
        yield from _fields(field, path, field.get("primary_key"))


def _scalar(kind: str, field: dict[str, Any], path: Path) -> Iterator[Problem]:
    if field.get("transforms") and kind not in TRANSFORMED and kind != "custom":
        yield Problem(
            (*path, "transforms"),
            f"`{kind}` takes no transforms, they change texts",
            "use `keyword` where the text of the value shall be changed",
        )
    if (problem := default_problem(kind, field.get("default"))) is not None:
        yield Problem((*path, "default"), problem)
    variants = field.get("variants")
    if isinstance(variants, list):
        texts = [text_of(variant) for variant in variants]
        for index, text in enumerate(texts):
            if isinstance(text, str) and not text.strip():
                yield Problem((*path, "variants", index), "a variant must not be blank")
            elif text in texts[:index]:
                yield Problem((*path, "variants", index), f"the variant `{text}` stands there twice")


def default_problem(kind: str, default: Any) -> str | None:
    """What is wrong with a default of a kind."""
    value = text_of(default) if kind in SHOWN_AS_TEXT else value_of(default)
    if value is None or isinstance(value, dict | list) or kind in ("custom", "json"):
        return None
    reader, what = _DEFAULTS.get(kind, (None, ""))
    if reader is None:
        return None
    try:
        reader(value)
    except (ValueError, TypeError, ArithmeticError):
        return f"the default of a `{kind}` must be {what}"
    return None


def _text(value: Any) -> None:
    if not isinstance(value, str):
        raise ValueError


def _boolean(value: Any) -> None:
    if not isinstance(value, bool):
        raise ValueError


def _whole(bits: int) -> Callable[[Any], None]:
    def read(value: Any) -> None:
        if type(value) is not int or not -(1 << bits) <= value < (1 << bits):
            raise ValueError

    return read


def _number(value: Any) -> None:
    if isinstance(value, bool) or not decimal.Decimal(str(value)).is_finite():
        raise ValueError


def _base64(value: Any) -> None:
    try:
        base64.b64decode(value, validate=True)
    except binascii.Error:
        raise ValueError from None


_DEFAULTS: dict[str, tuple[Callable[[Any], Any], str]] = {
    **dict.fromkeys(TRANSFORMED, (_text, "a text")),
    "boolean": (_boolean, "`true` or `false`"),
    **{kind: (_whole(bits), "a whole number that fits in it") for kind, bits in _WHOLE.items()},
    **dict.fromkeys(("float", "double", "decimal"), (_number, "a number")),
    "date": (dt.date.fromisoformat, "a date like `2024-12-31`"),
    "timestamp": (dt.datetime.fromisoformat, "a time like `2024-12-31T23:59:59Z`"),
    "uuid": (uuid.UUID, "a UUID"),
    "binary": (_base64, "base64"),
}


def _geo(field: dict[str, Any], path: Path) -> Iterator[Problem]:
    given = [key for key in ("lat", "lon", "column") if field.get(key) is not None]
    if given not in ([], ["column"], ["lat", "lon"]):
        yield Problem(path, "a point is `lat` and `lon`, or one `column` that holds both")


def _aggregate(field: dict[str, Any], path: Path) -> Iterator[Problem]:
    direct, junction = field.get("foreign_key") is not None, field.get("through") is not None
    if direct == junction:
        yield Problem(
            path,
            "needs either `foreign_key` or `through`, and not both"
            if direct
            else "needs `foreign_key` or `through`",
            "`foreign_key` is the related table's column that points here, `through` the junction between",
        )
    if value_of(field.get("distinct")) is True and not junction:
        yield Problem(
            (*path, "distinct"), "is for `through` only: by a `foreign_key` every row counts once anyway"
        )


def _lengths(kind: str, field: dict[str, Any], path: Path, parent_key: Any) -> Iterator[Problem]:
    """Lists of columns that stand for each other have the same length."""
    own = field.get("primary_key")
    pairs: list[tuple[tuple[str, ...], Any, str, Any]] = []
    if kind == "belongs_to":
        column = field.get("column")
        pairs.append((("column",), [kind] if column is None else column, "the related table's key", own))
    else:
        pairs.append(
            (("foreign_key",), field.get("foreign_key"), "the key of the row it points at", parent_key)
        )
    through = field.get("through")
    if isinstance(through, dict):
        pairs.append((("through", "left_key"), through.get("left_key"), "the key of this row", parent_key))
        pairs.append((("through", "right_key"), through.get("right_key"), "the related table's key", own))
    for key, columns, what, other in pairs:
        if columns is None or other is None:
            continue
        count, wanted = len(listed(columns)), len(listed(other))
        if count != wanted:
            yield Problem((*path, *key), f"has {_columns(count)}, and {what} has {_columns(wanted)}")


def _columns(count: int) -> str:
    return "one column" if count == 1 else f"{count} columns"


def _soft_delete(tree: dict[str, Any]) -> Iterator[Problem]:
    rule = tree.get("soft_delete")
    if not isinstance(rule, dict):
        return
    column, field = text_of(rule.get("column")), text_of(rule.get("field"))
    if (column is None) == (field is None):
        yield Problem(("soft_delete",), "needs `column` or `field`, one of them")
    if not isinstance(field, str) or column is not None:
        return
    columns = dict(_row_fields(tree))
    if field not in columns:
        yield Problem(
            ("soft_delete", "field"),
            f"the document has no field `{field}` that shows a column{nearest(field, columns)}",
            "name the column itself with `column`",
        )


def _row_fields(owner: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The fields that show a column of the row itself, with those of objects in it."""
    fields = owner.get("fields")
    for field in fields if isinstance(fields, list | tuple) else ():
        if not isinstance(field, dict) or len(kinds := kinds_in(field)) != 1:
            continue
        name = text_of(field[kinds[0]])
        model = MODELS[kinds[0]]
        if isinstance(name, str) and issubclass(model, Scalar | Custom | Map):
            yield name, field
        elif model is Object:
            yield from _row_fields(field)


def _ordinal(index: int) -> str:
    return {0: "first", 1: "second", 2: "third"}.get(index, f"{index + 1}th")


_SIBLINGS = {field.alias or name for model in MODELS.values() for name, field in model.model_fields.items()}

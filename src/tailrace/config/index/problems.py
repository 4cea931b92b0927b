"""What is wrong with an index schema, in our words."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tailrace.config.hints import listed, nearest
from tailrace.config.index.fields import KIND, MODELS, NAME, kinds_in
from tailrace.config.index.models import IndexSchema, SoftDelete
from tailrace.config.index.parts import Comparison, Order, Part, RawFilter, Through
from tailrace.config.index.rules import RULE
from tailrace.config.index.values import text_of
from tailrace.config.lines import Path
from tailrace.config.problems import Problem

_LISTS = ("fields", "filters", "when")


def from_validation(error: ValidationError, tree: Any) -> list[Problem]:
    """Pydantic's findings and the rules' as problems; a field without a kind is told by the rules alone."""
    found: dict[tuple[Path, str], Problem] = {}
    for details in error.errors(include_url=False):
        problem = _problem(details, tree)
        if problem is not None:
            found.setdefault((problem.path, problem.text), problem)
    return list(found.values())


def _problem(details: ErrorDetails, tree: Any) -> Problem | None:
    kind = details["type"]
    path = details["loc"] if kind == RULE else _path(details["loc"])
    context = details.get("ctx", {})
    last = str(path[-1]) if path else ""
    if kind == RULE:
        return Problem(path, context["text"], context.get("remedy"))
    if kind == "union_tag_not_found":
        return None
    if kind == "extra_forbidden":
        return _unknown(path, last, tree)
    if kind == "literal_error":
        known = [word.strip(" '") for word in str(context["expected"]).replace(" or ", ",").split(",")]
        given = text_of(details["input"])
        hint = nearest(given, known) if isinstance(given, str) else ""
        return Problem(path, f"must be {_one_of(known)}{hint}")
    if last == NAME:
        return _name(path[:-1], details, tree)
    if kind == "missing":
        return Problem(path, f"the key `{last}` is missing")
    if kind == "value_error":
        return Problem(path, str(context["error"]), getattr(context["error"], "remedy", None))
    return Problem(path, _SENTENCES.get(kind) or details["msg"].replace("Input should be", "must be"))


def _path(loc: tuple[int | str, ...]) -> Path:
    """The loc without the names of models, which pydantic puts behind each place in a list of variants."""
    path: list[int | str] = []
    skip = False
    for at, step in enumerate(loc):
        if skip and isinstance(step, str):
            skip = False
            continue
        skip = isinstance(step, int) and at > 0 and loc[at - 1] in _LISTS
        path.append(step)
    return tuple(path)


def _unknown(path: Path, key: str, tree: Any) -> Problem:
    owner = _node(tree, path[:-1])
    kinds = kinds_in(owner) if isinstance(owner, dict) and path[:-1] else []
    if path == ("doc_id",):
        return Problem(
            path, "the document's id is always its primary key", "leave `doc_id` out of the schema"
        )
    if len(path) >= 3 and path[-3] == "fields" and len(kinds) == 1:
        known = keys_of(MODELS[kinds[0]])
        if any(key in keys_of(model) for model in MODELS.values()):
            return Problem(path, f"`{kinds[0]}` takes no `{key}`; it takes {listed(known)}")
        return Problem(path, f"unknown key `{key}`{nearest(key, known)}")
    return Problem(path, f"unknown key `{key}`{nearest(key, _siblings(path[:-1], owner))}")


def keys_of(model: type[Part]) -> list[str]:
    """The keys that a part of the file takes, but for a field's kind."""
    aliases = [field.alias or name for name, field in model.model_fields.items()]
    return [name for name in aliases if name not in (KIND, NAME)]


def _siblings(path: Path, owner: Any) -> list[str]:
    if not path:
        return keys_of(IndexSchema)
    last = [step for step in path if isinstance(step, str)][-1]
    if last in ("filters", "when"):
        return keys_of(RawFilter) if "raw" in owner else keys_of(Comparison)
    known: dict[str, type[Part]] = {
        "soft_delete": SoftDelete,
        "through": Through,
        "order_by": Order,
    }
    return keys_of(known[last]) if last in known else []


def _name(field: Path, details: ErrorDetails, tree: Any) -> Problem:
    node = _node(tree, field)
    kind = next(iter(kinds_in(node)), "") if isinstance(node, dict) else ""
    error = details.get("ctx", {}).get("error")
    if error is None:
        return Problem((*field, kind), f"`{kind}` needs the field's name: `- {kind}: name`")
    return Problem((*field, kind), str(error), getattr(error, "remedy", None))


def _node(tree: Any, path: Path) -> Any:
    for step in path:
        try:
            tree = tree[step]
        except (KeyError, IndexError, TypeError):
            return None
    return tree


def _one_of(words: list[str]) -> str:
    quoted = [f"`{word}`" for word in words]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"


_SENTENCES = {
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping of keys and values",
    "model_type": "must be a mapping of keys and values",
    "model_attributes_type": "must be a mapping of keys and values",
    "string_type": "must be a text",
    "string_too_short": "must not be empty",
    "int_type": "must be a whole number",
    "bool_type": "must be `true` or `false`",
}

"""An index as OpenSearch is told of it: its fields, strict at every level, and its settings.

The document's text is never touched: whatever a query needs beside it is derived by the mapping alone.

| kind | field | subfields |
| --- | --- | --- |
| `text` | full text | `keyword` exact, `lower` exact in lower case |
| `identifier` | found by its parts, whatever separates them | `keyword`, `lower` |
| `keyword` | exact | `lower`, `text` full text |
| `enum` | exact | `lower`, `rank` where it has variants: sorts and ranges by their order |
| `uuid` | exact, whatever the case of the query | |
| `short` `integer` `long` `float` `double` | that number; one that does not fit is refused | |
| `decimal` | the nearest `double`, for ranges and sorting | `exact` all its digits, for equality |
| `date` `timestamp` | a moment to the millisecond | |
| `geo` | a point | |
| `binary` `json` | kept, not searched | |
| `map` | an object whose values are all of one kind | those of the kind |
| `object`, `nested` | an object, an array of them, each found as a whole | |

The `options` of a field override any of it, deep down; null takes something away, and with another `type`
they say everything. Options of a map are about its values, but for `type`, `dynamic` and `enabled`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

from tailrace.model.errors import ConfigError
from tailrace.sinks.opensearch.analysis import (
    DIGITS,
    IDENTIFIER,
    IDENTIFIER_SEARCH,
    LOWER,
    TEXT,
    Analysis,
    analysis_settings,
    rank_normalizer,
)

# Lucene takes no term of more than 32,766 bytes: as many characters are always fewer bytes.
LONGEST_KEYWORD = 8191
# Of natural text only what a person would compare as a whole is kept so.
LONGEST_EXACT = 1024
# The server's own limits, raised where the mapping needs more, and the most rows in a document's arrays.
TOTAL_FIELDS, NESTED_FIELDS, DEPTH, NESTED_OBJECTS = 1000, 50, 20, 100_000
# Keys of maps become fields too.
ROOM_FOR_MAPS = 1000
# What a document's own fields cannot be called, at the top level.
RESERVED = frozenset(
    [
        "_id",
        "_index",
        "_routing",
        "_source",
        "_version",
        "_seq_no",
        "_primary_term",
        "_field_names",
        "_ignored",
        "_nested_path",
        "_doc_count",
        "_size",
        "_data_stream_timestamp",
        "_tier",
        "_feature",
    ]
)
# Settings that change neither what the index stores nor what it finds.
_PASSING = frozenset(
    ["number_of_shards", "number_of_replicas", "refresh_interval", "gc_deletes", "mapping", "translog"]
)
# What a value of a map may be in JSON.
_JSON_TYPES = ("string", "long", "double", "boolean")
_OF_A_MAP = ("type", "dynamic", "enabled")
# For a new key of a map the server looks at what a number is. A field of texts then takes its text, and the
# server's parser gives out a fraction, or what is beyond 64 bits, for the next number too: of another field,
# as if it were its value. This field keeps nothing, but reads the number, and so the next one is itself.
NUMBERS = "_tailrace_numbers"
_READ_AS_NUMBER = {"type": "double", "index": False, "doc_values": False, "ignore_malformed": True}
_OF_TEXTS = frozenset(["text", "keyword", "wildcard", "match_only_text", "search_as_you_type"])


def index_body(
    mapping: Mapping[str, Any],
    *,
    analysis: Analysis = "builtin",
    shards: int = 1,
    replicas: int = 1,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The body that creates an index for documents of this mapping (`IndexMapping.to_json()`).

    `settings` override those of the index, as `{"refresh_interval": "5s"}` or `{"index.sort.field": …}`.
    """
    root: dict[str, Any] = {"dynamic": "strict", "date_detection": False, "properties": {}}
    templates: list[dict[str, Any]] = []
    ranks: set[tuple[str, ...]] = set()
    within: dict[str, dict[str, Any]] = {"": root}
    numbers = NUMBERS
    while numbers in mapping:
        numbers += "_"
    # A mapping that the cluster kept has its fields in any order, the inner ones before what they are in.
    for path, said in sorted(mapping.items()):
        above, _, name = path.rpartition(".")
        if not above and name in RESERVED:
            raise ConfigError(
                f"OpenSearch keeps the name {name} for itself, and an index has a field of that name",
                remedy="give the field another name in the index schema, and name its column with `column`",
            )
        made = _field(path, said, templates, ranks, numbers)
        within[above].setdefault("properties", {})[name] = made
        if said["type"] in ("object", "nested"):
            within[path] = made
    if templates:
        root["dynamic_templates"] = templates
    if any(numbers in _targets(one["mapping"]) for template in templates for one in template.values()):
        root["properties"][numbers] = dict(_READ_AS_NUMBER)
    own: dict[str, Any] = {
        "number_of_shards": shards,
        "number_of_replicas": replicas,
        "analysis": analysis_settings(analysis, sorted(ranks)),
        "mapping": _limits(root, has_maps=bool(templates)),
    }
    return {"settings": {"index": _merged(own, _nested(settings or {}))}, "mappings": root}


def canonical(body: Mapping[str, Any]) -> str:
    """What of an index decides how documents are stored and found, as one text.

    Equal texts are equal indexes, in how many copies and pieces whatever.
    """
    settings = {name: value for name, value in body["settings"]["index"].items() if name not in _PASSING}
    mappings = {name: value for name, value in body["mappings"].items() if name != "_meta"}
    kept = {"settings": settings, "mappings": mappings}
    return json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _field(
    path: str,
    said: Mapping[str, Any],
    templates: list[dict[str, Any]],
    ranks: set[tuple[str, ...]],
    numbers: str,
) -> dict[str, Any]:
    kind, options = said["type"], said.get("options", {})
    if kind == "map":
        return _map(path, said, options, templates, numbers)
    if kind == "custom":
        return _with_options({"type": said["native"]["opensearch"]}, options)
    if kind in ("object", "nested"):
        # The fields inside come afterwards.
        return _merged({"type": kind, "dynamic": "strict", "properties": {}}, options)
    variants = tuple(said.get("variants", ()))
    made = _with_options(_kind(kind, variants), options)
    if made.get("fields", {}).get("rank", {}).get("normalizer") == rank_normalizer(variants):
        ranks.add(variants)
    return made


def _map(
    path: str,
    said: Mapping[str, Any],
    options: Mapping[str, Any],
    templates: list[dict[str, Any]],
    numbers: str,
) -> dict[str, Any]:
    own = {name: value for name, value in options.items() if name in _OF_A_MAP}
    if own.get("type", "object") != "object":
        return dict(options)
    value = _with_options(
        _kind(said["values"]), {name: one for name, one in options.items() if name not in own}
    )
    if own.get("dynamic", True) is True and own.get("enabled", True) is True:
        number = value
        if value.get("type") in _OF_TEXTS:
            number = {**value, "copy_to": [*_targets(value), numbers]}
        templates += [
            {
                f"{path}: {json_type}": {
                    "path_match": f"{path}.*",
                    "match_mapping_type": json_type,
                    "mapping": number if json_type in ("long", "double") else value,
                }
            }
            for json_type in _JSON_TYPES
        ]
    return {"type": "object", "dynamic": True, **own}


def _targets(field: Mapping[str, Any]) -> list[str]:
    """Where a field's values are copied to."""
    said = field.get("copy_to", [])
    return [said] if isinstance(said, str) else list(said)


def _kind(kind: str, variants: tuple[str, ...] = ()) -> dict[str, Any]:
    """A field of this kind, as it is without options."""
    exact = {"type": "keyword", "ignore_above": LONGEST_EXACT}
    lower = {**exact, "normalizer": LOWER}
    keyword = {"type": "keyword", "ignore_above": LONGEST_KEYWORD}
    text = {"type": "text", "analyzer": TEXT}
    identifier = {
        "type": "text",
        "analyzer": IDENTIFIER,
        "search_analyzer": IDENTIFIER_SEARCH,
        # All parts stand at one place, so its length would say nothing.
        "norms": False,
    }
    rank = {**keyword, "normalizer": rank_normalizer(variants)}
    kinds: dict[str, dict[str, Any]] = {
        "text": {**text, "fields": {"keyword": exact, "lower": lower}},
        "identifier": {**identifier, "fields": {"keyword": exact, "lower": lower}},
        "keyword": {**keyword, "fields": {"lower": lower, "text": text}},
        "enum": {**keyword, "fields": {"lower": lower, **({"rank": rank} if variants else {})}},
        "uuid": {**keyword, "normalizer": LOWER},
        "boolean": {"type": "boolean"},
        **{kind: {"type": kind, "coerce": False} for kind in ("short", "integer", "long", "float", "double")},
        "decimal": {
            "type": "double",
            "coerce": False,
            "fields": {"exact": {**keyword, "normalizer": DIGITS}},
        },
        # `strict_date` would take a 13th month.
        "date": {"type": "date", "format": "yyyy-MM-dd"},
        # The zone and up to six digits of a fraction may be there or not.
        "timestamp": {"type": "date", "format": "strict_date_optional_time"},
        "binary": {"type": "binary"},
        "json": {"type": "object", "enabled": False},
        "geo": {"type": "geo_point"},
    }
    if kind not in kinds:
        raise ConfigError(
            f"OpenSearch has no field for the kind {kind}",
            remedy="give the field another kind in the index schema",
        )
    return copy.deepcopy(kinds[kind])


def _with_options(made: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """With another type nothing of what was derived fits."""
    return _merged(made if options.get("type", made["type"]) == made["type"] else {}, options)


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """The one with what the other says, deep down; None takes away."""
    made = dict(base)
    for name, value in over.items():
        if value is None:
            made.pop(name, None)
        elif isinstance(value, Mapping) and isinstance(made.get(name), Mapping):
            made[name] = _merged(made[name], value)
        else:
            made[name] = copy.deepcopy(value)
    return made


def _nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as objects in objects, however they were written."""
    made: dict[str, Any] = {}
    for key, value in settings.items():
        name, _, rest = key.partition(".")
        inner = _nested({rest: value}) if rest else _nested(value) if isinstance(value, Mapping) else value
        if name == "index" and isinstance(inner, Mapping):
            made = _merged(made, inner)
        elif isinstance(inner, Mapping):
            made[name] = _merged(made.get(name, {}), inner)
        else:
            made[name] = inner
    return made


def _limits(root: Mapping[str, Any], *, has_maps: bool) -> dict[str, Any]:
    """The server's limits, raised as far as the mapping needs."""
    found = list(_walk(root, 1))
    fields = len(found) + sum(len(one.get("fields", {})) for one, _ in found)
    nested = sum(one.get("type") == "nested" for one, _ in found)
    deepest = max((depth for _, depth in found), default=1)
    return {
        "total_fields": {"limit": max(TOTAL_FIELDS, fields + (ROOM_FOR_MAPS if has_maps else 0))},
        "nested_fields": {"limit": max(NESTED_FIELDS, nested)},
        # A map may have objects in it.
        "depth": {"limit": max(DEPTH, deepest + 2)},
        "nested_objects": {"limit": NESTED_OBJECTS},
    }


def _walk(owner: Mapping[str, Any], depth: int) -> Iterator[tuple[Mapping[str, Any], int]]:
    for one in owner.get("properties", {}).values():
        yield one, depth
        yield from _walk(one, depth + 1)

"""The kinds of values that a key may have: durations, sizes, names, secrets, places of files.

Each is an annotated type that validates, describes itself in the JSON Schema, and serialises without what
must not be shown. Relative paths are taken from the directory in the validation's context, which is that of
the configuration file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, ValidationInfo, WithJsonSchema

from tailrace.model.secret import MASK, Secret, mask_url
from tailrace.model.units import (
    Limit,
    Share,
    parse_duration,
    parse_lag,
    parse_limit,
    parse_share,
    parse_size,
    show_duration,
    show_size,
)

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


class Wrong(ValueError):
    """A value that cannot be taken, and what to do about it."""

    def __init__(self, text: str, remedy: str | None = None) -> None:
        super().__init__(text)
        self.remedy = remedy


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a whole number")
    return value


def check_name(value: str) -> str:
    """The name, if it may be part of file and object names."""
    if not _NAME.fullmatch(value):
        raise ValueError("must be a name of letters, digits, `_`, `-` and `.`, at most 63 of them")
    return value


def _check_prefix(value: str) -> str:
    return check_name(value) if value else value


def _secret(value: Any) -> Secret:
    if isinstance(value, Secret):
        return value
    if not isinstance(value, str):
        raise ValueError("must be a string")
    return Secret(value)


def directory_of(info: ValidationInfo) -> Path:
    """The directory that relative paths start from."""
    context: dict[str, Any] = info.context or {}
    return Path(context.get("directory", "."))


def _local_path(value: Any, info: ValidationInfo) -> Path:
    return value if isinstance(value, Path) else local_path(value, directory_of(info))


def local_path(value: Any, directory: Path) -> Path:
    """The path that a text means in a directory; ValueError where it is none of this machine."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("must be a path")
    if _SCHEME.match(value) and not value.startswith("file:"):
        raise ValueError("must be a path of this machine")
    return directory / Path(value.removeprefix("file://").removeprefix("file:")).expanduser()


def _path_or_uri(value: str, info: ValidationInfo) -> str:
    if not value or "\0" in value:
        raise ValueError("must be a path or a URI")
    if _SCHEME.match(value):
        return value
    return str(directory_of(info) / Path(value).expanduser())


Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    PlainSerializer(show_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": r"^\d+(\.\d+)?\s*(ms|s|m|h|d)$", "title": "duration"}),
]
Size = Annotated[
    int,
    BeforeValidator(parse_size),
    PlainSerializer(show_size, return_type=str),
    WithJsonSchema({"type": ["string", "integer"], "title": "size"}),
]
LagLimit = Annotated[
    Limit,
    BeforeValidator(parse_limit),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "title": "size or duration"}),
]
StandbyLimit = Annotated[
    Limit,
    BeforeValidator(parse_lag),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "title": "size or duration"}),
]
ShareOrCount = Annotated[
    Share,
    BeforeValidator(parse_share),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": ["integer", "string"], "title": "integer or percentage"}),
]
Count = Annotated[int, BeforeValidator(_no_bool)]
Name = Annotated[str, AfterValidator(check_name)]
Prefix = Annotated[str, AfterValidator(_check_prefix)]
SecretString = Annotated[
    Secret,
    BeforeValidator(_secret),
    PlainSerializer(lambda _: MASK, return_type=str),
    WithJsonSchema({"type": "string", "title": "secret"}),
]
# A string outside, so that code can use it; whatever prints or dumps a model shows it masked.
Url = Annotated[
    str, PlainSerializer(mask_url, return_type=str), WithJsonSchema({"type": "string", "title": "URL"})
]
LocalPath = Annotated[
    Path,
    BeforeValidator(_local_path),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "title": "path"}),
]
PathOrUri = Annotated[str, AfterValidator(_path_or_uri), PlainSerializer(mask_url, return_type=str)]


def flatten(value: Any) -> Any:
    """Tables within a table as dotted keys: TOML reads an unquoted `orders.price` as a table in a table."""
    if not isinstance(value, dict):
        return value
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, dict):
            flat |= {f"{key}.{rest}": leaf for rest, leaf in flatten(inner).items()}
        else:
            flat[key] = inner
    return flat

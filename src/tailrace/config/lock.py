"""The lock file: a configuration and its schemas in one portable file that holds no secret.

It has the configuration as it is written, so that references to the environment stay references, relative
paths are relative to wherever the lock file is, and variables win over it as they do over `tailrace.toml`.
Filled in are only the pipeline's name, which would depend on the place, and the schemas, as what they say.
Keys of the configuration and of schemas keep their order, which means something; all else is sorted.
"""

from __future__ import annotations

import copy
import datetime
import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.config import lines
from tailrace.config.checks import entries
from tailrace.config.files import read_content
from tailrace.config.load import (
    Written,
    configured,
    default_name,
    load_config,
    places,
    read_written,
    understood,
)
from tailrace.config.models import Config
from tailrace.config.problems import Problem, as_error, combined
from tailrace.config.schemas import SchemaBodies, SchemaFiles
from tailrace.config.secrets import written_out
from tailrace.model.errors import ConfigError

FORMAT = 1
KIND = "tailrace lock"
MAX_BYTES = 64 * 1024 * 1024
_BODY = ("configuration", "inputs", "schemas", "tailrace")


@dataclass(frozen=True)
class Lock:
    """What a lock file holds. `inputs` has the SHA-256 of each file it was made of, by path from its own."""

    configuration: dict[str, Any]
    inputs: dict[str, str]
    schemas: dict[str, Any]
    tailrace: str

    def text(self) -> str:
        """The file: JSON, the same for the same inputs."""
        body = {name: getattr(self, name) for name in _BODY}
        whole = {**body, "checksum": _checksum(body), "format": FORMAT, "kind": KIND}
        return json.dumps({name: whole[name] for name in sorted(whole)}, indent=2, ensure_ascii=False) + "\n"


def build_lock(
    path: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str],
    version: str,
    environ: Mapping[str, str] | None = None,
) -> Lock:
    """Compile a configuration and the schemas it names for a lock file at `output`; nothing is written.

    Everything is checked as `load_config` checks it, except what a variable says that is not set here.
    """
    file = Path(path)
    environ = os.environ if environ is None else environ
    written = read_written(file)
    files = written.schemas
    assert isinstance(files, SchemaFiles)  # noqa: S101 (it was read from a file)
    meant = understood(written, environ, variables={}, overrides={}, may_be_unset=True)
    tree = {"name": default_name(file.absolute()), **copy.deepcopy(written.tree)}
    schemas: dict[str, Any] = {}
    found: list[ConfigError] = []
    for (at, entry), (_, filled) in zip(entries(tree, "index"), entries(meant.tree, "index"), strict=True):
        # A reference says where the schema is; what it says is in the lock file from now on.
        entry["schema"] = name = str(Path(filled["schema"]))
        schema = meant.schemas.found[at]
        if name not in schemas:
            schemas[name] = schema.written()
            if told := written_out(schemas[name]):
                found.append(as_error(told, schema.places))
    if problems := [*written_out(written.tree), *_not_portable(written.tree, ())]:
        found.insert(0, as_error(problems, places(written, {})))
    if found:
        raise combined(found)
    base = Path(output).absolute().parent
    digests = {file: written.digest, **files.digests}
    inputs = {_from(base, one): digest for one, digest in digests.items()}
    return Lock(tree, dict(sorted(inputs.items())), dict(sorted(schemas.items())), version)


def load_lock(
    path: str | os.PathLike[str],
    *,
    overrides: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """The configuration in a lock file, as `load_config` gives it; no other file is read."""
    file = Path(path)
    lock = read_lock(file)
    written = Written(file, lock.configuration, lines.Lines({}), SchemaBodies(lock.schemas))
    config = configured(written, overrides=overrides, environ=environ)
    config._locked = True
    return config


def reload(config: Config) -> Config:
    """The configuration in the file that this one was read from, as it is now."""
    return load_lock(config.path) if config.locked else load_config(config.path)


def read_lock(file: Path) -> Lock:
    """What a lock file holds; ConfigError where it is none, damaged, or newer than this Tailrace."""
    text = read_content(file, "a lock file", missing="tailrace build", max_bytes=MAX_BYTES).text
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        # Cut off, or of two minds after a merge.
        body = {"kind": KIND} if f'"{KIND}"' in text else None
    if not isinstance(body, dict) or body.get("kind") != KIND:
        raise ConfigError(
            "is not a lock file",
            place=str(file),
            remedy="name one that `tailrace build` has written; a tailrace.toml is named with --config",
        )
    form = body.get("format")
    if isinstance(form, int) and form > FORMAT:
        raise ConfigError(
            f"was built by a newer Tailrace: its format is {form}, this one reads {FORMAT}",
            place=str(file),
            remedy="upgrade tailrace, or build it again with this one: tailrace build",
        )
    kinds = {"configuration": dict, "inputs": dict, "schemas": dict, "tailrace": str}
    held: dict[str, Any] = {name: body.get(name) for name in _BODY}
    is_whole = form == FORMAT and all(isinstance(held[name], kind) for name, kind in kinds.items())
    if is_whole and body.get("checksum") == _checksum(held):
        return Lock(**held)
    raise ConfigError(
        "is damaged, or was edited: its checksum does not fit",
        place=str(file),
        remedy="build it again: tailrace build",
    )


@dataclass(frozen=True)
class Inputs:
    """The files that a lock file was made of, by path as it names them."""

    changed: tuple[str, ...]
    missing: tuple[str, ...]
    same: tuple[str, ...]


def inputs_of(file: Path) -> Inputs:
    """Which inputs of a lock file are as they were; those that are not here cannot be compared."""
    found: dict[str, list[str]] = {"changed": [], "missing": [], "same": []}
    for name, digest in read_lock(file).inputs.items():
        try:
            now = hashlib.sha256((file.absolute().parent / name).read_bytes()).hexdigest()
        except OSError:
            found["missing"].append(name)
            continue
        found["same" if now == digest else "changed"].append(name)
    return Inputs(**{kind: tuple(names) for kind, names in found.items()})


def _checksum(body: Mapping[str, Any]) -> str:
    canonical = json.dumps([body[name] for name in _BODY], separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _from(base: Path, file: Path) -> str:
    return Path(os.path.relpath(file.absolute(), base)).as_posix()


def _not_portable(node: Any, path: lines.Path) -> Iterator[Problem]:
    """What TOML has and JSON has not."""
    if isinstance(node, dict):
        for key, inner in node.items():
            yield from _not_portable(inner, (*path, key))
    elif isinstance(node, list):
        for at, inner in enumerate(node):
            yield from _not_portable(inner, (*path, at))
    elif isinstance(node, datetime.date | datetime.time):
        yield Problem(path, "is a date or a time, which no key takes", "write it in quotes")
    elif isinstance(node, float) and not math.isfinite(node):
        yield Problem(path, "is no number that a lock file can hold", "write it in quotes")

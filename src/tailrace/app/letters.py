"""Documents that were passed over: told, and built again on request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.app.backends import opened
from tailrace.app.indexing import indexes_of
from tailrace.app.parts import checkpoint_of
from tailrace.model.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from tailrace.capture.contract import Capture
    from tailrace.config import Config
    from tailrace.engine.deadletters import DeadLetter, DeadLetters, Retried
    from tailrace.engine.spec import Index
    from tailrace.sinks.contract import Rejection


def dead_letters(config: Config, index: str | None = None) -> list[DeadLetter]:
    """The documents that were passed over, the oldest first. Opens nothing but the file they stand in."""
    return _letters(config).letters(_known(config, index))


def retry_dead_letters(config: Config, index: str | None = None, ids: Sequence[str] | None = None) -> Retried:
    """Build documents that were passed over again, from the source as it is now; of an index, or of all.

    May be done while the pipeline runs.
    """
    if ids and index is None:
        raise UsageError("ids are those of an index", remedy="name the index before them")
    known = _known(config, index)
    letters = _letters(config)
    if not letters.letters(known):
        return letters.retry(lambda _name, _ids: (), known, ids)
    with opened(config) as capture:
        by_name = {one.name: one for one in indexes_of(config, capture)}

        def rebuild(name: str, wanted: Sequence[str]) -> Sequence[Rejection]:
            if name not in by_name:
                raise ConfigError(
                    f"the dead letters are of the index {name}, which the file does not have",
                    remedy="enable it again, or retry those of another index by its name",
                )
            return _rebuilt(config, capture, by_name[name], wanted)

        return letters.retry(rebuild, known, ids)


def _rebuilt(config: Config, capture: Capture, index: Index, ids: Sequence[str]) -> Sequence[Rejection]:
    from tailrace.engine.documents.build import Build
    from tailrace.engine.documents.ids import keys_of
    from tailrace.engine.documents.state import States
    from tailrace.engine.progress import committed

    state = States(str(config.state.directory)).get(index.name)
    if state is None or not state.generation:
        raise ConfigError(
            f"the index {index.name} is to be filled again, which builds all of its documents",
            remedy="tailrace run",
        )
    if state.schema_hash != index.plan.schema_hash:
        raise ConfigError(
            f"the schema of the index {index.name} is another one than its documents have; they are to be"
            " filled again",
            remedy="tailrace run",
        )
    keys, odd = keys_of(index.plan.root, ids)
    # What readers see while it is filled is to have them too.
    before = state.before if state.before is not None and state.before.still is None else None
    sink = index.sink.holding(index.name, before.generation) if before is not None else None
    last = committed(checkpoint_of(config))
    build = Build(
        plan=index.plan,
        index=index.name,
        generation=state.generation,
        # All up to the last commit was visible before it. Of what the source has beyond some may not be yet:
        # a document without it must not have a version that keeps the right one out.
        version=last[1].position.version if last is not None else 0,
        sink=index.sink,
        strict=False,
        also=(before.generation, sink) if before is not None and sink is not None else None,
    )
    try:
        with capture.together():
            return [*odd, *build.keys(capture, keys).rejected]
    finally:
        build.close()


def _letters(config: Config) -> DeadLetters:
    from tailrace.engine.deadletters import DIRECTORY, DeadLetters

    return DeadLetters(config.state.directory / DIRECTORY)


def _known(config: Config, index: str | None) -> str | None:
    """The index's name at the sinks, which may be given too; ConfigError where the file has no such index."""
    if index is None:
        return None
    names = [one.name for one in config.indexes]
    if index not in names and index in {config.prefix + name for name in names}:
        return index
    if index not in names:
        told = f"its indexes: {', '.join(names)}" if names else "it has none: add an [[index]]"
        raise ConfigError(f"the file has no index {index}", remedy=told, place=str(config.path))
    return config.prefix + index

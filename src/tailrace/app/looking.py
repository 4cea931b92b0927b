"""The indexes of a configuration: what the pipeline knows of them, and what their sinks have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from tailrace.app.backends import document_sink_for, opened
from tailrace.app.operations import status
from tailrace.model.errors import TailraceError, Transient

if TYPE_CHECKING:
    from tailrace.config import Config, Index
    from tailrace.engine.documents.state import Still
    from tailrace.engine.heldup import HeldUp, Stopped
    from tailrace.engine.status import IndexStatus, Status

State = Literal["disabled", "new", "waiting", "filling", "complete", "gone"]


@dataclass(frozen=True)
class SinkLook:
    """What a sink has: the generation that readers see there, whether changes come to it, how many documents.

    `position` is that of its marker: it was complete there. `in_step`: changes come to it. A sink that keeps
    nothing has none of this; one that does not answer has a `problem`. `gone`: by the pipeline's state it has
    a complete generation, and it has none.
    """

    sink: str
    type: str
    shown: str | None = None
    complete: bool = False
    in_step: bool = False
    position: int | None = None
    schema_hash: str | None = None
    documents: int | None = None
    problem: str | None = None
    keeps: bool = True
    gone: bool = False


@dataclass(frozen=True)
class IndexLook:
    """An index of the file.

    `state` is `disabled`, `new` before its first run, `gone` where it was complete and a sink has nothing of
    it any more, or as `status` has it. `filling` is the generation that is being filled, with how far that
    is. `schema_hash` is the file's and `served_hash` that of the documents that readers see; where they
    differ a filling comes or is under way. `still` says since when what readers see stands still, `held_up`
    what the running pipeline waits for before changes come to it.
    """

    index: str
    name: str
    state: State
    root: str | None = None
    shown: str | None = None
    filling: str | None = None
    position: int | None = None
    still: Still | None = None
    rows_done: int | None = None
    rows: int | None = None
    rate: float | None = None
    seconds_left: float | None = None
    reason: str | None = None
    waits_for: str | None = None
    requested: bool = False
    dead_letters: int = 0
    schema_hash: str | None = None
    served_hash: str | None = None
    outdated: bool = False
    problem: str | None = None
    sinks: tuple[SinkLook, ...] = ()
    held_up: HeldUp | None = None


@dataclass(frozen=True)
class IndexesLook:
    """All of them, whether the pipeline runs, and what the last run stopped on."""

    pipeline: str
    running: bool
    indexes: tuple[IndexLook, ...]
    stopped: Stopped | None = None


def indexes(config: Config) -> IndexesLook:
    """Look at the indexes, whether the pipeline runs or not. Changes nothing."""
    found = status(config)
    known = {one.index: one for one in found.indexes}
    hashes = _hashes(config)
    sinks = _Sinks(config)
    looks = tuple(
        _look(config, one, known.get(config.prefix + one.name), hashes, sinks) for one in config.indexes
    )
    wait = found.held_up
    looks = tuple(
        replace(look, held_up=wait)
        if wait is not None and look.state != "disabled" and wait.sink in (None, *index.sinks)
        else look
        for look, index in zip(looks, config.indexes, strict=True)
    )
    return IndexesLook(config.name, _runs(found), looks, found.stopped)


def _runs(found: Status) -> bool:
    return found.running is not None


def _look(
    config: Config,
    index: Index,
    known: IndexStatus | None,
    hashes: dict[str, tuple[str | None, str | None]],
    asked: _Sinks,
) -> IndexLook:
    name = config.prefix + index.name
    sinks = tuple(asked.look(sink, name, known) for sink in index.sinks)
    if not index.enabled:
        return IndexLook(index.name, name, "disabled", sinks=sinks)
    wanted, problem = hashes[index.name]
    served = next((one.schema_hash for one in sinks if one.schema_hash is not None), None)
    if known is None:
        return IndexLook(
            index.name, name, "new", schema_hash=wanted, served_hash=served, problem=problem, sinks=sinks
        )
    state: State = known.state
    if state == "complete" and any(one.gone for one in sinks):
        state = "gone"
    if served is None and state == "complete":
        served = known.schema_hash
    return IndexLook(
        index.name,
        name,
        state,
        root=known.root,
        shown=known.shown,
        filling=known.generation if known.state == "filling" else None,
        position=known.position,
        still=known.still,
        rows_done=known.rows_done,
        rows=known.rows,
        rate=known.rate,
        seconds_left=known.seconds_left,
        reason=known.reason,
        waits_for=known.waits_for,
        requested=known.requested,
        dead_letters=known.dead_letters,
        schema_hash=wanted,
        served_hash=served,
        outdated=wanted is not None and served is not None and wanted != served,
        problem=problem,
        sinks=sinks,
    )


def _hashes(config: Config) -> dict[str, tuple[str | None, str | None]]:
    """The hash of what the file says of each index, or why it has none."""
    from tailrace.documents.compile import catalog_of, compile_index

    found: dict[str, tuple[str | None, str | None]] = {}
    with opened(config) as capture:
        catalog = catalog_of(capture)
        for index in config.indexes:
            try:
                found[index.name] = compile_index(index.name, index.schema_, catalog).schema_hash, None
            except TailraceError as error:
                found[index.name] = None, error.message
    return found


class _Sinks:
    """The sinks of a configuration, asked once for each index, and no more once they do not answer."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._silent: dict[str, str] = {}

    def look(self, sink: str, name: str, known: IndexStatus | None) -> SinkLook:
        kind = self._config.sinks[sink].type
        if sink in self._silent:
            return SinkLook(sink, kind, problem=self._silent[sink])
        made = document_sink_for(self._config, sink)
        if not made.keeps:
            return SinkLook(sink, kind, keeps=False)
        made.hurry()
        try:
            held = made.look(name)
        except TailraceError as error:
            if isinstance(error, Transient):
                self._silent[sink] = error.message
            return SinkLook(sink, kind, problem=error.message)
        finally:
            made.close()
        if held.shown is None:
            return SinkLook(
                sink, kind, gone=known is not None and known.shown is not None and sink in known.sinks
            )
        return SinkLook(
            sink,
            kind,
            held.shown,
            held.marker is not None,
            known is not None and known.still is None and known.shown == held.shown,
            held.marker.position if held.marker is not None else None,
            held.marker.schema_hash if held.marker is not None else None,
            held.documents,
        )

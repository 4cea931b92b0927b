"""Whom a state directory belongs to, and what it was last run with.

`pipeline.json` names the pipeline, so that two configurations in one directory cannot mix their states, and
the type overrides of the last run: a table whose overrides changed is read afresh, because what was captured
and mirrored before has the old types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tailrace.app.parts import checkpoint_of
from tailrace.capture.contract import Capture, Finding
from tailrace.changelog.filesystem import make_directory, open_filesystem
from tailrace.changelog.statefile import read_state, write_state
from tailrace.model.errors import IdentityMismatch, SetupMissing
from tailrace.model.table import TableRef

if TYPE_CHECKING:
    from tailrace.config import Config
    from tailrace.spark.offsets import Offset

KIND = "pipeline"


def known_offset(config: Config) -> Offset | None:
    """The newest offset of the pipeline's query, if it ever logged one."""
    from tailrace.engine.progress import logged

    return logged(checkpoint_of(config))


def strangers(config: Config, capture: Capture) -> list[Finding]:
    """Why the state directory cannot be this pipeline's on this source."""
    findings = []
    directory = config.state.directory
    marker = _read(config)
    if marker is not None and marker["consumer"] != config.consumer:
        findings.append(
            Finding(
                "error",
                "state_of_another",
                f"the state directory {directory} belongs to the pipeline {marker['name']}",
                remedy=f'give this pipeline its own: directory = ".tailrace-{config.name}" in [state]',
            )
        )
    offset = known_offset(config)
    if offset is not None:
        why: str | None = None
        try:
            capture.moved(offset.position)
        except SetupMissing:
            why = "a database without capture answers"
        except IdentityMismatch as error:
            why = error.message
        if why is not None:
            findings.append(
                Finding(
                    "error",
                    "other_source",
                    f"the state in {directory} belongs to source {offset.position.source}: {why}",
                    remedy=f"remove {directory} to start anew with fresh snapshots, or correct source.url",
                )
            )
    return findings


def claim(config: Config, tables: Sequence[TableRef]) -> list[TableRef]:
    """Make the state directory this pipeline's; the tables that need a fresh snapshot, which is requested."""
    from tailrace.spark.plans import PlanStore

    fs, root = open_filesystem(str(config.state.directory))
    make_directory(fs, root)
    marker = _read(config)
    types = dict(config.source.types)
    body = {"name": config.name, "consumer": config.consumer, "types": types}
    if marker == body:
        return []
    before = types if marker is None else marker["types"]
    changed = {
        key.rpartition(".")[0] for key in set(before) | set(types) if before.get(key) != types.get(key)
    }
    fresh = [ref for ref in tables if ref.name in changed or str(ref) in changed]
    store = PlanStore(fs, root)
    for ref in fresh:
        store.request(ref)
    # Last: where this fails, the requests are made again.
    write_state(fs, f"{root}/pipeline.json", KIND, body)
    return fresh


def _read(config: Config) -> dict[str, Any] | None:
    fs, root = open_filesystem(str(config.state.directory))
    return read_state(fs, f"{root}/pipeline.json", KIND)

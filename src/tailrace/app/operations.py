"""What a person asks for beside a run: setup, teardown, snapshots, status."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from tailrace.app.backends import capture_for, opened
from tailrace.app.control import Control
from tailrace.app.indexing import indexes_of
from tailrace.app.judging import covered, refuse, unwritable
from tailrace.app.parts import captured_tables, checkpoint_of, spark_log_of
from tailrace.app.refilling import Refills
from tailrace.capture.contract import Capture, Finding
from tailrace.changelog.filesystem import open_filesystem
from tailrace.model.errors import ConfigError, StateOwned
from tailrace.model.table import TableRef

if TYPE_CHECKING:
    from tailrace.config import Config
    from tailrace.engine.status import Status


# A run that has just ended lets go of its state a moment after its last word.
LEAVING_SECONDS = 3.0


def tables_of(url: str) -> list[tuple[TableRef, bool]]:
    """Every table that could be captured, and whether it has a primary key."""
    capture = capture_for(url)
    try:
        return [(ref, bool(capture.describe(ref).key)) for ref in capture.tables()]
    finally:
        capture.close()


def obstacles(url: str) -> list[Finding]:
    """What must be mended at the source before any table of it can be captured."""
    capture = capture_for(url)
    try:
        return [finding for finding in capture.coverage(()) if finding.severity == "error"]
    finally:
        capture.close()


def setup(config: Config) -> list[str]:
    """Install capture for the configuration's tables; a sentence for each thing done."""
    refuse_while_running(config, patience=LEAVING_SECONDS)
    with opened(config) as capture:
        refs = captured_tables(config, capture)
        refuse([f for f in covered(config, capture, refs) if f.code not in ("not_set_up", "drift")])
        return capture.setup(refs)


def teardown(config: Config, tables: Sequence[str] = ()) -> list[str]:
    """Remove capture of some tables, or of everything. The state directory is left as it is."""
    refuse_while_running(config, patience=LEAVING_SECONDS)
    with opened(config) as capture:
        return capture.teardown(capture.resolve(tables) if tables else None)


def forget_consumer(config: Config, consumer: str) -> None:
    """Remove a consumer's cursor from the source: the log need no longer be kept for it."""
    with opened(config) as capture:
        known = [found.name for found in capture.consumers()]
        if consumer not in known:
            raise ConfigError(
                f"the source has no consumer {consumer}",
                remedy=f"consumers: {', '.join(known) or 'none'}",
            )
        if consumer == config.consumer:
            refuse_while_running(config, patience=LEAVING_SECONDS)
        capture.forget(consumer)


def control(config: Config) -> Control:
    """The snapshots of a configured pipeline, to be asked for and steered."""

    def roots() -> dict[str, TableRef]:
        with opened(config) as capture:
            return {one.name: one.root for one in indexes_of(config, capture)}

    state, checkpoint = str(config.state.directory), checkpoint_of(config)
    return Control(
        lambda: opened(config),
        lambda capture: captured_tables(config, capture),
        state,
        checkpoint=checkpoint,
        name=config.name,
        consumer=config.consumer,
        refills=Refills(roots, state, checkpoint, prefix=config.prefix),
    )


def writable(config: Config) -> Control:
    """The same, where the state directory can be written; ConfigError otherwise."""
    if (fault := unwritable(config.state.directory, "the state")) is not None:
        raise ConfigError(fault, remedy="correct `directory` of [state] in the file")
    return control(config)


def control_of_query(
    url: str,
    tables: str | Sequence[str],
    state_dir: str,
    checkpoint: str | None,
    *,
    types: Mapping[str, str] | None = None,
    source_options: Mapping[str, object] | None = None,
    consumer: str | None = None,
) -> Control:
    """The snapshots of a query that has no configuration, by its options."""
    from tailrace.spark.driver import consumer_name
    from tailrace.spark.filled import filled
    from tailrace.spark.named import resolved
    from tailrace.spark.options import names_of

    names = names_of(tables, "tables") if isinstance(tables, str) else tuple(tables)

    def of(capture: Capture) -> list[TableRef]:
        return resolved(capture, names, filled(*open_filesystem(state_dir)) or ())

    return Control(
        lambda: closing(capture_for(url, types=types, options=source_options)),
        of,
        state_dir,
        checkpoint=checkpoint,
        consumer=consumer or consumer_name(state_dir),
    )


def status(config: Config) -> Status:
    """Where the pipeline stands, whether one runs or not. Takes no ownership and changes nothing."""
    found = control(config).status()
    if found.running is None and is_starting(config):
        from tailrace.engine.heldup import held_up

        # It asks its sinks before Spark is at work.
        return replace(found, held_up=held_up(str(config.state.directory)), stopped=None)
    return found


def refuse_while_running(config: Config, *, patience: float = 0.0) -> None:
    """StateOwned where a process runs this pipeline and goes on doing so for `patience` seconds."""
    from tailrace.engine.status import living_owner

    deadline = time.monotonic() + patience
    while (owner := living_owner(str(config.state.directory))) is not None:
        if time.monotonic() >= deadline:
            raise StateOwned(
                f"the pipeline is running: {owner}",
                remedy="stop it first (SIGTERM or Ctrl-C finishes its batch)",
            )
        time.sleep(0.1)


def is_starting(config: Config) -> bool:
    """Whether a process is about to run this pipeline, or has just done: it holds its log of Spark."""
    try:
        log = os.open(spark_log_of(config), os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(log)
    return False


def is_running(config: Config) -> bool:
    """Whether a process runs this pipeline now."""
    from tailrace.engine.status import living_owner

    return living_owner(str(config.state.directory)) is not None

"""A running pipeline takes up a changed configuration between two batches.

Asked for by a signal, or by a request for the snapshot of a table that the query does not know yet: then the
file was given a new [[table]] or [[feed]] since. What cannot work is told, and the pipeline goes on as it is;
where the source cannot be asked at the moment, it is asked again.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from tailrace.app.backends import opened
from tailrace.app.belonging import claim
from tailrace.app.parts import captured_tables
from tailrace.app.running import pipeline_spec
from tailrace.changelog.filesystem import open_filesystem
from tailrace.model.errors import ConfigError, TailraceError, Transient
from tailrace.runtime.observer import Observer

if TYPE_CHECKING:
    from tailrace.config import Config
    from tailrace.engine.spec import PipelineSpec

LOOK_SECONDS = 1.0


class Renewal:
    """Decides when a run begins again with the file as it is now, and with what."""

    def __init__(
        self, config: Config, spec: PipelineSpec, observer: Observer, *, on_data_loss: str | None = None
    ) -> None:
        self.config, self.spec = config, spec
        self._observer = observer
        self._on_data_loss = on_data_loss
        self._asked = False
        # Asked for, and not possible at the moment; and whether that was told.
        self._waits = self._told = False
        self._looked = time.monotonic()
        self._refused: set[str] = set()

    def ask(self) -> None:
        """Read the file again soon. Safe in a signal handler."""
        self._asked = True

    def due(self) -> bool:
        """Whether the run is to begin again; `config` and `spec` are the new ones then."""
        if asked := self._asked:
            # Only then: a signal that comes in between is not to be overwritten, and the file is read below.
            self._asked = self._waits = self._told = False
            self._refused.clear()
        elif time.monotonic() - self._looked < LOOK_SECONDS:
            return False
        self._looked = time.monotonic()
        asked = asked or self._waits
        strangers = {} if asked else self._strangers()
        if not asked and not strangers:
            return False
        # Not again for the same request: a person reads why, mends the file and asks anew.
        self._refused.update(strangers)
        try:
            config, spec = self._loaded()
        except Transient as error:
            # What passes by itself is waited for, and told once: nobody would ask again for its sake.
            if not self._told:
                self._observer.event("pipeline.renewal_waits", message=error.message)
            self._waits, self._told = asked, True
            self._refused.difference_update(strangers)
            return False
        except TailraceError as error:
            self._waits = self._told = False
            self._refuse(error)
            return False
        tables = _tables(spec)
        if unserved := sorted(set(strangers.values()).difference(tables)):
            self._refuse(
                ConfigError(
                    f"a snapshot is asked for of {', '.join(unserved)}, which the file does not name",
                    remedy="add it to the file by a [[table]] or [[feed]]; the request waits until then",
                )
            )
        if not asked and not set(strangers.values()).intersection(tables):
            return False
        self._waits = self._told = False
        self.config, self.spec = config, spec
        self._observer.event("pipeline.renewed", tables=tables)
        return True

    def settle(self) -> None:
        """Between the former query and the next: what the former must not take up, with types it has not."""
        from tailrace.spark.patience import patiently

        patiently(self._claim)

    def _claim(self) -> None:
        with opened(self.config) as capture:
            claim(self.config, captured_tables(self.config, capture))

    def _refuse(self, error: TailraceError) -> None:
        self._observer.event("pipeline.renewal_refused", message=error.message, remedy=error.remedy or "")

    def _strangers(self) -> dict[str, str]:
        """Requests, by id, of tables that the query does not know; the ones refused before are left out."""
        from tailrace.spark.plans import PlanStore

        known = set(_tables(self.spec))
        try:
            plans = PlanStore(*open_filesystem(str(self.config.state.directory)))
            plans.forget_remembered(known)
            found = plans.requests()
        except TailraceError:
            # It may pass, and is looked at again soon; the query reads them too and tells what stays.
            return {}
        tables = {key: str(one.table) for key, one in found.items() if key not in self._refused}
        return {key: table for key, table in tables.items() if table not in known}

    def _loaded(self) -> tuple[Config, PipelineSpec]:
        from tailrace.config import reload

        config = reload(self.config)
        for what, old, new in (
            ("the name", self.config.name, config.name),
            ("source.url", self.config.source.url, config.source.url),
            ("source.consumer", self.config.consumer, config.consumer),
            ("state.directory", self.config.state.directory, config.state.directory),
            ("[spark]", self.config.spark, config.spark),
        ):
            if old != new:
                raise ConfigError(
                    f"{what} was changed, which a running pipeline cannot take up",
                    remedy="stop the pipeline and run it again",
                )
        return config, pipeline_spec(config, on_data_loss=self._on_data_loss)


def _tables(spec: PipelineSpec) -> list[str]:
    return list(json.loads(spec.options["tables"]))

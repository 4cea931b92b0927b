"""Opening the source that a query's options mean."""

from __future__ import annotations

import importlib
from typing import cast

from tailrace.capture.contract import Capture
from tailrace.model.errors import ConfigError
from tailrace.model.table import TableRef
from tailrace.spark.options import SourceOptions

# Layers: only the composition root names concrete captures, so it is found by name.
FACTORY = "tailrace.app:capture_for"


def open_capture(options: SourceOptions) -> Capture:
    """The capture that the options' URL means."""
    module, _, name = FACTORY.partition(":")
    factory = getattr(importlib.import_module(module), name)
    return cast(Capture, factory(options.url, types=options.types, options=options.source_options))


def one_table(capture: Capture, options: SourceOptions, view: str) -> TableRef:
    """The table that the options name; ConfigError where they name several."""
    refs = capture.resolve(options.tables)
    if len(refs) != 1:
        raise ConfigError(
            f"view `{view}` reads one table, but `tables` names {len(refs)}",
            remedy='name one table, or use .option("view", "envelope")',
        )
    return refs[0]

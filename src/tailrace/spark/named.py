"""The tables that a query's names mean, also those that a former run read and that are gone since.

Such a table stands still and is told (`Capture.notices`); the others go on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tailrace.capture.contract import Capture
from tailrace.model.errors import ConfigError
from tailrace.model.table import TableRef


def resolved(capture: Capture, names: Sequence[str], known: Collection[str]) -> list[TableRef]:
    """The tables these names mean; `known` are those of a former run, as `schema.name`."""
    try:
        return capture.resolve(names)
    except ConfigError:
        if not capture.capabilities.partial or not known:
            raise
    found: dict[TableRef, None] = {}
    for name in names:
        try:
            found.update(dict.fromkeys(capture.resolve([name])))
        except ConfigError:
            gone = [table for table in known if table == name or table.partition(".")[2] == name]
            if len(gone) != 1 or '"' in gone[0]:
                raise
            schema, _, table = gone[0].partition(".")
            found[TableRef(schema, table)] = None
    return list(found)

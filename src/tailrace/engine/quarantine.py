"""Rows that a mirror cannot carry, set aside instead of stopping the pipeline (`on_error = "skip"`).

They are appended as NDJSON envelopes to one file a table, so that a person can see them and, once the type
is mended, ask for a fresh snapshot of the table.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.change import ChangeBatch
from tailrace.model.errors import ConfigError
from tailrace.model.render import ndjson


class Quarantine:
    """The dead letters of a pipeline."""

    def __init__(self, directory: str | None) -> None:
        if directory is None:
            raise ConfigError('`on_error = "skip"` needs a directory for what is skipped')
        self._directory = Path(directory)
        self.rows = 0

    def sift(self, batch: ChangeBatch) -> ChangeBatch:
        """The batch without the rows whose values do not fit their column's type; those are written down."""
        misfit = misfits(batch)
        if misfit is None:
            return batch
        bad = ChangeBatch(batch.table, batch.data.filter(misfit))
        self.rows += len(bad)
        self._append(bad)
        return ChangeBatch(batch.table, batch.data.filter(pc.invert(misfit)))

    def _append(self, batch: ChangeBatch) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        name = str(batch.table.ref)
        plain = name.replace("/", "_") if name.isascii() and name.isprintable() else ""
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        descriptor = os.open(
            self._directory / f"{plain[:80]}-{digest}.ndjson", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
        )
        with os.fdopen(descriptor, "ab") as file:
            file.write(ndjson(batch))
            file.flush()
            os.fsync(file.fileno())


def misfits(batch: ChangeBatch) -> pa.BooleanArray | None:
    """Which rows have an after image with a value that its typed column cannot hold; None where none has."""
    if "after_exact" not in batch.data.schema.names:
        return None
    exact = batch.data["after_exact"]
    found = None
    for field in exact.type:
        values = pc.struct_field(exact, field.name)
        hold_text = batch.table.column(field.name).type.name == "string"
        # A string column shows numbers and text exactly; only bytes have no text.
        pattern = "^[bx]:" if hold_text else "^[a-z]:"
        wrong = pc.fill_null(pc.match_substring_regex(values, pattern), False)
        found = wrong if found is None else pc.or_(found, wrong)
    if found is None or not pc.any(found).as_py():
        return None
    return found

"""Rows that a mirror cannot carry, set aside instead of stopping the pipeline (`on_error = "skip"`).

They are appended as NDJSON envelopes to one file a table, so that a person can see them and, once the type
is mended, ask for a fresh snapshot of the table. The mirror is then without these rows, and right in all
others: a row that ceases to fit is deleted from it, and one whose key cannot be carried never was in it.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.change import ChangeBatch, Op
from tailrace.model.errors import ConfigError
from tailrace.model.render import absent_masks, field_of, ndjson, optional

Mask = npt.NDArray[np.bool_]


class Quarantine:
    """The dead letters of a pipeline."""

    def __init__(self, directory: str | None) -> None:
        if directory is None:
            raise ConfigError('`on_error = "skip"` needs a directory for what is skipped')
        self._directory = Path(directory)
        self.rows = 0

    def sift(self, batch: ChangeBatch) -> ChangeBatch:
        """The batch without the rows that the mirror cannot carry; those are written down."""
        identity = list(batch.table.identity)
        names = [column.name for column in batch.table.columns]
        unfit = _misfits(batch, "after", names) | _keyless(batch, "after", identity)
        nowhere = _misfits(batch, "before", identity) | _keyless(batch, "before", identity)
        if not (unfit.any() or nowhere.any()):
            return batch
        was_there = _valid(batch, "before") & ~nowhere
        removed = unfit & was_there
        bad = unfit | (nowhere & ~_valid(batch, "after"))
        if bad.any():
            letters = ChangeBatch(batch.table, batch.data.filter(pa.array(bad)))
            self.rows += len(letters)
            self._append(letters)
        return _without(batch, ~bad | removed, removed, nowhere)

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


def _without(batch: ChangeBatch, kept: Mask, removed: Mask, nowhere: Mask) -> ChangeBatch:
    """The `kept` rows: those `removed` are deletes now, those that were `nowhere` have no before image."""
    rows = np.flatnonzero(kept)
    deletes = pa.array(np.full(len(rows), Op.DELETE.value))
    columns = []
    for field in batch.data.schema:
        column = batch.data.column(field.name)
        if field.name == "op":
            columns.append(pc.if_else(pa.array(removed[rows]), deletes, column.take(pa.array(rows))))
            continue
        gone = {"after": removed, "before": nowhere}.get(field.name.partition("_")[0])
        columns.append(column.take(pa.array(rows) if gone is None else pa.array(rows, mask=gone[rows])))
    return ChangeBatch(batch.table, pa.RecordBatch.from_arrays(columns, schema=batch.data.schema))


def _valid(batch: ChangeBatch, side: str) -> Mask:
    return np.asarray(batch.data.column(side).is_valid().to_numpy(zero_copy_only=False), dtype=bool)


def _keyless(batch: ChangeBatch, side: str, identity: list[str]) -> Mask:
    """Which rows have an image with NULL in the key."""
    found = np.zeros(len(batch), dtype=bool)
    images, exact = batch.data.column(side), optional(batch, f"{side}_exact")
    absent = absent_masks(optional(batch, f"{side}_absent"), len(batch))
    for name in identity:
        null = field_of(images, name).is_null()
        if exact is not None and exact.type.get_field_index(name) >= 0:
            null = pc.and_(null, field_of(exact, name).is_null())
        lacking = absent.get(name, np.zeros(len(batch), dtype=bool))
        found |= np.asarray(null.to_numpy(zero_copy_only=False), dtype=bool) & ~lacking
    return found & _valid(batch, side)


def _misfits(batch: ChangeBatch, side: str, names: list[str]) -> Mask:
    """Which rows have an image with a value that its typed column cannot hold."""
    found = np.zeros(len(batch), dtype=bool)
    exact = optional(batch, f"{side}_exact")
    for name in names:
        if exact is None or exact.type.get_field_index(name) < 0:
            continue
        # A string column shows numbers and text exactly; only bytes have no text.
        pattern = "^[bx]:" if batch.table.column(name).type.name == "string" else "^[a-z]:"
        wrong = pc.fill_null(pc.match_substring_regex(field_of(exact, name), pattern), False)
        found |= np.asarray(wrong.to_numpy(zero_copy_only=False), dtype=bool)
    return found

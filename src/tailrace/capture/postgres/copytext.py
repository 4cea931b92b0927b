"""Rows in COPY's text format to columns of the server's text: pure functions over whole buffers.

COPY puts a tab between fields and a newline after rows, writes NULL as `\\N`, and escapes with a backslash
what could be taken for one of these: a tab or newline byte is always a separator. Arrow's CSV reader, told
that nothing is quoted or escaped, cuts the fields; the escapes are undone here, for all values of a column
at once and only where a column has any. It is exact for every byte a text can hold.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv

from tailrace.model.errors import DataError

_BACKSLASH = 0x5C
_BOM = b"\xef\xbb\xbf"
_MEANT = np.arange(256, dtype=np.uint8)
_MEANT[list(b"bfnrtv")] = list(b"\b\f\n\r\t\v")
_PARSE = pv.ParseOptions(
    delimiter="\t",
    quote_char=False,
    double_quote=False,
    escape_char=False,
    newlines_in_values=False,
    ignore_empty_lines=False,
)


class CopyText:
    """Reads rows of a fixed number of columns; with `lead`, a field before them is none of them.

    `types` are those that Arrow may read right away, by column; their texts have no escapes.
    """

    def __init__(
        self, columns: int, *, lead: bool = False, types: Mapping[int, pa.DataType] | None = None
    ) -> None:
        self._names = [str(place) for place in range(columns)]
        self._fields = [*(["lead"] if lead else []), *self._names]
        self._texts = self._options({})
        self._typed = self._options(types) if types else None

    def _options(self, types: Mapping[int, pa.DataType]) -> pv.ConvertOptions:
        return pv.ConvertOptions(
            check_utf8=False,
            include_columns=self._names,
            column_types={name: types.get(int(name), pa.binary()) for name in self._names},
            null_values=["\\N"],
            strings_can_be_null=True,
            true_values=["t"],
            false_values=["f"],
        )

    def read(self, data: bytes | bytearray) -> list[pa.Array]:
        """Whole rows as columns: binary, unescaped, or of their type where all their texts fit it."""
        if not data or not self._names:
            return [pa.nulls(0, pa.binary())] * len(self._names)
        if data.startswith(_BOM):
            # The reader drops one at the very beginning, which is a text's own here.
            data = _BOM + data
        options = pv.ReadOptions(
            use_threads=False, column_names=self._fields, block_size=max(len(data) + 1, 1 << 16)
        )
        # One block, so one piece: to combine it would copy it all.
        columns = [
            column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
            for column in self._parsed(data, options).columns
        ]
        if b"\\" not in data:
            return columns
        return [unescape(column) if pa.types.is_binary(column.type) else column for column in columns]

    def _parsed(self, data: bytes | bytearray, options: pv.ReadOptions) -> pa.Table:
        if self._typed is not None:
            # A text that does not fit is rare (an infinite date), and costs the buffer a second look.
            with contextlib.suppress(pa.ArrowInvalid):
                return _table(data, options, self._typed)
        try:
            return _table(data, options, self._texts)
        except pa.ArrowInvalid:
            raise _broken("a row has another number of columns than was asked for") from None


def _table(data: bytes | bytearray, options: pv.ReadOptions, columns: pv.ConvertOptions) -> pa.Table:
    # `read_csv` starts a thread for each call, to read ahead of what is all here.
    return pv.open_csv(pa.BufferReader(data), options, _PARSE, columns).read_all()


def _broken(what: str) -> DataError:
    return DataError(
        f"the server's COPY is damaged: {what}", remedy="start again: the chunk is read once more"
    )


def unescape(column: pa.Array) -> pa.Array:
    """The column's values with their escapes undone."""
    validity, ends, buffer = column.buffers()
    if buffer is None or column.offset:
        return column if buffer is None else unescape(pa.concat_arrays([column]))
    count = len(column)
    offsets = np.frombuffer(ends, np.int32, count + 1)
    data = np.frombuffer(buffer, np.uint8, int(offsets[-1]))
    marks = np.flatnonzero(data == _BACKSLASH)
    if not len(marks):
        return column
    # In a run of backslashes every other one, from the first, escapes what follows it. A value ends with a
    # whole escape, so runs that touch across two values still count right.
    place = np.arange(len(marks))
    begins = np.ones(len(marks), np.bool_)
    begins[1:] = np.diff(marks) != 1
    start = np.maximum.accumulate(np.where(begins, place, 0))
    escapes = marks[(place - start) % 2 == 0]
    if np.isin(escapes + 1, offsets).any():
        raise _broken("a value ends with half an escape")
    text = data.copy()
    text[escapes + 1] = _MEANT[text[escapes + 1]]
    keep = np.ones(len(text), np.bool_)
    keep[escapes] = False
    shorter = (offsets - np.searchsorted(escapes, offsets)).astype(np.int32)
    return pa.Array.from_buffers(
        pa.binary(),
        count,
        [validity, pa.py_buffer(shorter), pa.py_buffer(text[keep])],
        column.null_count,
    )

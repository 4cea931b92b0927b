"""The ids of documents, from the keys of root rows: the same texts that the statements give.

A key that is asked for and yields no row is a deletion, and only its id is left to say of what.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.documents.render.families import family
from tailrace.model.table import Column
from tailrace.model.text import escaped, json_values, quoted


def document_ids(keys: pa.Table, columns: Sequence[Column], source: str) -> pa.StringArray:
    """The id of each key; `columns` are the root's key, `source` is the dialect of its database."""
    texts = [_texts(keys.column(column.name).combine_chunks(), column, source) for column in columns]
    if len(texts) == 1:
        return texts[0]
    parts = [piece for text in texts for piece in (",", quoted(escaped(text)))][1:]
    return pc.binary_join_element_wise("[", *parts, "]", "")


def _texts(values: pa.Array, column: Column, source: str) -> pa.StringArray:
    found = family(column, source)
    if pa.types.is_floating(values.type):
        texts = values.cast(pa.string())
    elif pa.types.is_string(values.type):
        texts = values
    else:
        texts, _ = json_values(values)
    if found in ("decimal", "numeric"):
        # 1.50 and 1.5 are one key.
        short = pc.ascii_rtrim(pc.ascii_rtrim(texts, "0"), ".")
        return pc.if_else(pc.match_substring(texts, "."), short, texts)
    if found == "uuid":
        return pc.ascii_lower(texts)
    return pc.ascii_rtrim(texts, " ") if found == "char" else texts

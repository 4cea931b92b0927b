"""Documents as lines of JSON: each text goes into its line as it is."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.text import escaped
from tailrace.sinks.contract import DocumentBatch


def document_lines(batch: DocumentBatch) -> pa.LargeStringArray:
    """A line for each document: index, generation, id, version and the document, null where it is deleted."""
    kind = pa.large_string()
    documents = batch.documents.cast(kind)
    for end in ("\n", "\r"):
        # Between tokens only: inside a string JSON has line breaks escaped.
        if pc.any(pc.match_substring(documents, end)).as_py():
            documents = pc.replace_substring(documents, end, " ")
    index, generation = (json.dumps(name, ensure_ascii=False) for name in (batch.index, batch.generation))
    head = f'{{"index":{index},"generation":{generation},"id":"'
    return pc.binary_join_element_wise(
        pa.scalar(head, kind),
        escaped(batch.ids.cast(pa.string())).cast(kind),
        pa.scalar(f'","version":{batch.version},"document":', kind),
        documents,
        pa.scalar("}\n", kind),
        pa.scalar("", kind),
        null_handling="replace",
        null_replacement="null",
    )

"""What is wrong with an index, or worth knowing of it, before a run; `tailrace check` prints it.

`check_index` asks for everything: `catalog` finds tables, columns and keys (`documents.compile` tells what is
wrong with them) and walks the schema beside its plan; `kinds` knows what columns can be shown as, `relations`
how rows find each other, `statements` what the source says to the SQL of a file and to the statement that
builds documents. What the source needs beside that (its log, its privileges) is told by `Capture.coverage`.
"""

from tailrace.documents.check.index import check_index

__all__ = ["check_index"]

"""Plans as SQL: one statement builds the documents of an index, as JSON text straight from the engine.

`build_query` makes a `Query` for PostgreSQL, SQLite or Spark. `structure` has what all of them share, the
joins and the folding; `dialect` says what a dialect must answer, and `postgres`, `sqlite` and `spark` do.
Documents are the same whichever engine made them, as JSON values: `families` says what a column's values
are, so that each dialect shows them alike.
"""

from tailrace.documents.render.query import Keys, Query, Range, build_query

__all__ = ["Keys", "Query", "Range", "build_query"]

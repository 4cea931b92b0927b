"""Documents: an index schema becomes one relational plan, and the plan SQL of whichever engine runs it.

`plan` says what a document is made of, by tables and columns that exist. `compile` makes a plan of an index
schema and the source's catalog, `schema_hash` tells plans of other documents apart, `mapping` says what the
fields of a document are, for sinks and people. `render` makes SQL of a plan, for one dialect each. `resolve`
says which documents a change touches. Nothing here writes to a sink or knows how changes are captured.
"""

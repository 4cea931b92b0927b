"""The demonstration: a shop, live traffic, and what stays in step with it.

`python -m tailrace.demo` sets the stage (`stages`: SQLite with Delta tables and documents in a file, or
PostgreSQL with documents in OpenSearch), starts another process that trades in the shop (`traffic`), runs a
pipeline like `tailrace run` does and shows what moves (`show`, `view`, `recent`), and at the end compares
every table with its mirror and every document with its rebuild, by a path that shares no code with the
pipeline (`compare`, `rebuild`, `store`).

The shop and its traffic are the same in both databases (`shop`, `database`). Processes are started by
`processes` and `servers`; a server runs under a `guard`, which ends it where whoever started it was killed.
"""

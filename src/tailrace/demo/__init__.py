"""The demonstration: a shop in SQLite, live traffic, and Delta tables that stay in step with it.

`python -m tailrace.demo` makes the shop (`place`, `shop`), starts another process that trades in it
(`traffic`), runs a pipeline like `tailrace run` does and shows what moves (`show`, `view`, `recent`), and at
the end compares every table with its mirror by a path that shares no code with the pipeline (`compare`).
"""

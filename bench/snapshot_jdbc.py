"""The contestant that Spark has by itself: its JDBC reader. See `snapshot_spark.py`."""

from __future__ import annotations

from bench.snapshot_spark import Jdbc, main

if __name__ == "__main__":
    main(Jdbc)

"""The contestant Tailrace on one core. See `scaling_spark.py`."""

from __future__ import annotations

from bench.scaling_spark import main

if __name__ == "__main__":
    main(1)

"""`tailrace run --once` in one process, with the stand-in for Spark: all parts are one role, the driver."""

from __future__ import annotations

import json
import sys
from typing import Any, cast

from tailrace import app
from tailrace.app.belonging import claim
from tailrace.app.parts import captured_tables
from tailrace.config import load_config
from tailrace.engine.pipeline import Pipeline
from tailrace.spark.source import TailraceSource
from tests.faults.microbatch import StandIn


class Lines:
    """Events as lines."""

    def event(self, name: str, **fields: Any) -> None:
        sys.stderr.write(json.dumps({"event": name, **fields}, default=str) + "\n")


def main() -> None:
    """Run the pipeline of this directory until it has caught up."""
    config = load_config("tailrace.toml")
    config.state.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with app.opened(config) as capture:
        claim(config, captured_tables(config, capture))
    spark = StandIn()
    spark.register(TailraceSource)
    release = app.release(config)
    try:
        Pipeline(app.pipeline_spec(config), cast(Any, spark), release=release, observer=Lines()).run(
            once=True
        )
    finally:
        spark.stop()


if __name__ == "__main__":
    main()

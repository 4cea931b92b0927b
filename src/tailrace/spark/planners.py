"""The workers beside the driver that Spark asks for schemas and plans of batch reads."""

from __future__ import annotations

import functools
import gc
import sys

_OURS = "pyspark.sql.worker."


@functools.cache
def settle() -> None:
    """Keep the garbage collector from all that such a worker has imported; elsewhere nothing happens.

    Spark has it collect garbage after every answer: most of what an answer costs, while the tasks begin.
    """
    if any(argument.startswith(_OURS) for argument in sys.argv[1:2]):
        gc.freeze()

"""`python -m tailrace.demo`, which is what `make demo` runs.

DEMO_SECONDS=20 ends it by itself, SINK=opensearch has it play with servers.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tailrace.cli.screen import show_error
from tailrace.demo.show import perform, seconds_from
from tailrace.demo.stages import chosen
from tailrace.model.errors import TailraceError


def main() -> int:
    """Run the demonstration in ./demo."""
    try:
        return perform(Path("demo"), seconds_from(os.environ), chosen(os.environ))
    except TailraceError as error:
        show_error(error)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())

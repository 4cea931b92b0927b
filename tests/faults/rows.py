"""The whole fault matrix, and the tests that it names."""

from __future__ import annotations

import sys
from functools import cache

from tests.faults.bugs import BUGS
from tests.faults.rows_kept import KEPT
from tests.faults.rows_running import RUNNING

ROWS = RUNNING + KEPT


@cache
def named_tests() -> frozenset[str]:
    """The ids, without parameters, of all tests that the matrix names."""
    return frozenset(
        [proof.function for row in ROWS for proof in row.proofs] + [bug.function for bug in BUGS]
    )


if __name__ == "__main__":
    sys.stdout.write("\n".join(sorted(named_tests())) + "\n")

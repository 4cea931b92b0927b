"""Chance that can be repeated: the seed is printed, and TAILRACE_SEED repeats a run."""

from __future__ import annotations

import os
import random
import sys

SEED = int(os.environ.get("TAILRACE_SEED", str(random.SystemRandom().randrange(10**9))))


def dice(*names: object) -> random.Random:
    """Dice of one test."""
    sys.stdout.write(f"TAILRACE_SEED={SEED}\n")
    return random.Random(" ".join(map(str, (SEED, *names))))

"""What a process that runs for months does with the memory that it no longer needs."""

from __future__ import annotations

import ctypes
import os

# Of glibc's <malloc.h>.
_M_ARENA_MAX = -8
_ARENAS = 2


def use_few_arenas() -> None:
    """Let all threads allocate from the same few arenas: one for each keeps what the others could use.

    Threads come and go with every query, eight arenas a core are allowed, and what was freed in one of them
    helps nobody else: a driver kept 50 MB of such memory after ten minutes of renewals. Only where the C
    library is glibc, and nobody has said otherwise by its own variable.
    """
    if "MALLOC_ARENA_MAX" in os.environ:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _ARENAS)

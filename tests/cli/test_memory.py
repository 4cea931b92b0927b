"""A run of months keeps no memory that it does not need."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.cli.command import environment

PROGRAM = """
import ctypes, sys, threading
from tailrace.cli.memory import use_few_arenas

if sys.argv[1] == "few":
    use_few_arenas()
library = ctypes.CDLL(None)
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
barrier = threading.Barrier(12)

def allocate():
    barrier.wait()
    assert library.malloc(50_000)
    barrier.wait()

threads = [threading.Thread(target=allocate) for _ in range(12)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
library.fdopen.restype = ctypes.c_void_p
library.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
library.fflush.argtypes = [ctypes.c_void_p]
file = library.fdopen(1, b"w")
library.malloc_info(0, file)
library.fflush(file)
"""


def _arenas(how: str, **variables: str) -> int:
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM, how],
        env=environment(**variables),
        capture_output=True,
        text=True,
        check=True,
    )
    return len(re.findall("<heap nr=", told.stdout))


@pytest.mark.skipif(sys.platform != "linux", reason="unavailable: glibc")
def test_threads_of_a_run_allocate_from_few_arenas_unless_told_otherwise() -> None:
    assert _arenas("many") > 2
    assert _arenas("few") <= 2
    assert _arenas("few", MALLOC_ARENA_MAX="9") > 2

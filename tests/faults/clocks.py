"""Clocks that jump, for processes that are started with `Clock.variables`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.oracles import changes_of
from tests.faults.rig import Rig


class Clock:
    """The time of day of some processes, by libfaketime. A clock that only goes on is left as it is."""

    def __init__(self, path: Path) -> None:
        library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
        if library is None:
            pytest.skip("unavailable: libfaketime")
        self._path = path
        self.variables = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(path),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }
        self.jump("+0")

    def jump(self, offset: str) -> None:
        """Be so far from the machine's own time: "-3d", "+1h"."""
        self._path.write_text(offset)

    def jump_under(self, rig: Rig) -> None:
        """Jump while a pipeline runs and before it goes on, and hold it to the order all the same."""
        rig.start()
        rig.write()
        rig.arrived(rig.sentinel())
        for offset in ("-3d", "+2d", "-1h"):
            self.jump(offset)
            rig.arrived(rig.sentinel())
        rig.pipe.kill()
        self.jump("-5d")
        rig.start()
        rig.settle()
        changes = sorted(
            (line["change"] for line in changes_of(rig.feed) if line["change"]["op"] in "cud"),
            key=lambda change: (change["position"], change["seq"]),
        )
        stamps = [change["ts"] for change in changes]
        assert stamps != sorted(stamps), "the clock did jump"

"""The rig of the fault tests, here too."""

from __future__ import annotations

from tests.faults.conftest import other_server, own_server, postgres, pytest_generate_tests, rig

__all__ = ["other_server", "own_server", "postgres", "pytest_generate_tests", "rig"]

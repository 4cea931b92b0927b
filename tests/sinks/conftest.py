"""The mirror that the tests of Delta write to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.sinks.delta import DeltaConfig, DeltaSink


@pytest.fixture
def sink(tmp_path: Path) -> DeltaSink:
    return DeltaSink(DeltaConfig(str(tmp_path)))

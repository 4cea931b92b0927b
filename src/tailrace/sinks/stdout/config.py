"""Settings of the stdout sink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO


@dataclass(frozen=True)
class StdoutConfig:
    """`stream` is where the lines go; None is the process's standard output."""

    stream: BinaryIO | None = None

"""Settings of the Delta sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class DeltaConfig:
    """`path` is the directory or URL under which every target is a Delta table.

    A merge rewrites each file that holds a changed row, so files are kept small: `target_file_bytes`. Every
    `maintain_every` commits small files are compacted, the log is checkpointed and cut, and files that no
    version of the last `retention_hours` needs are deleted; a reader that stays on one version for longer
    loses them. `attempts` bounds how often a commit that met another writer's is tried. `storage_options`
    goes to the object store and is never shown.
    """

    path: str
    target_file_bytes: int = 16 * 1024 * 1024
    maintain_every: int = 50
    retention_hours: int = 1
    attempts: int = 4
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

"""Where a server's programs are: of this system, or of another one in a directory of its own.

`TAILRACE_POSTGRES=18` chooses the PostgreSQL that `scripts/test-servers 18` has put there. It runs in a
changed root, its files included.
"""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

# Looked up early: a test may give itself another home.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


@dataclass(frozen=True)
class Installation:
    """A version of PostgreSQL. `programs` is the directory as the server sees it."""

    programs: Path
    root: Path | None = None

    @property
    def user(self) -> str | None:
        """Whom to run it as; None means as we are, or that the command itself sees to it."""
        return "postgres" if os.geteuid() == 0 and self.root is None else None

    def command(self, program: str, *arguments: str) -> list[str]:
        """How one of its programs is run."""
        changed = ["chroot", "--userspec=postgres:postgres", str(self.root)] if self.root else []
        return [*changed, str(self.programs / program), *arguments]

    def inside(self, path: Path) -> str:
        """A path as the server sees it."""
        return f"/{path.relative_to(self.root)}" if self.root else str(path)

    def directory(self) -> Path:
        """A new directory that belongs to the server."""
        made = Path(tempfile.mkdtemp(prefix="tailrace-pg-", dir=self.root / "tmp" if self.root else None))
        if self.root is not None:
            owner = (self.root / "var/lib/postgresql").stat()
            os.chown(made, owner.st_uid, owner.st_gid)
        elif self.user is not None:
            account = pwd.getpwnam(self.user)
            os.chown(made, account.pw_uid, account.pw_gid)
        return made


def installation() -> Installation | None:
    """The chosen version, or the newest server installed here; None if there is none."""
    if version := os.environ.get("TAILRACE_POSTGRES"):
        root = CACHE / "tailrace" / f"postgres-{version}"
        programs = Path("/usr/lib/postgresql") / version / "bin"
        return Installation(programs, root) if root.exists() and os.geteuid() == 0 else None
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[4]))
    if found:
        return Installation(found[-1].parent)
    on_path = shutil.which("postgres")
    return Installation(Path(on_path).parent) if on_path else None

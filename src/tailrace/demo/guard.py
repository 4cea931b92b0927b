"""A server that does not outlive whoever started it.

`python -m tailrace.demo.guard --parent PID [--user NAME] [--end SIGNAL] [--remove DIRECTORY] COMMAND…` runs a
command, and ends it when it is told to (SIGTERM, SIGINT) or when that parent is gone, however it went.
"""

from __future__ import annotations

import argparse
import os
import pwd
import shutil
import signal
import subprocess
import sys
import threading
from typing import Any

PATIENCE = 6.0


def account(user: str | None) -> dict[str, Any]:
    """What makes a process one of that user's; nothing where it is to be one of ours."""
    if user is None:
        return {}
    found = pwd.getpwnam(user)
    return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}


def main() -> int:
    """Guard one process."""
    parser = argparse.ArgumentParser(
        prog="tailrace.demo.guard", description="Run a server no longer than us."
    )
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--user")
    parser.add_argument("--end", default="SIGTERM", type=signal.Signals.__getitem__)
    parser.add_argument("--remove", help="a directory that is not needed any more when the command has ended")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    child = subprocess.Popen(arguments.command, stdin=subprocess.DEVNULL, **account(arguments.user))
    while child.poll() is None and os.getppid() == arguments.parent and not stop.wait(0.2):
        pass
    if child.poll() is None:
        child.send_signal(arguments.end)
        try:
            child.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            child.kill()
    code = child.wait()
    if arguments.remove is not None:
        shutil.rmtree(arguments.remove, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main())

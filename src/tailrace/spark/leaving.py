"""How the process that reads a source ends: Spark sends it SIGTERM, and calls nothing before.

An exception out of a signal's handler may come between taking a lock and the statement that gives it back.
Another thread then waits for that lock for ever, holding what closing needs, and the state stays owned by a
query that has ended. So nothing is raised: the signal wakes a thread, which closes beside whatever runs, and
then ends the process.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import threading
from collections.abc import Callable

# How long closing may take; then the process is ended all the same, and its stacks are in Spark's log. What
# a kill leaves behind can be gone on from.
LEAVE_SECONDS = 20.0
logger = logging.getLogger("tailrace.spark")


def close_when_told(close: Callable[[], None]) -> None:
    """Have SIGTERM close and end this process. From its main thread; `close` is called by another one."""
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    # Written to at once, whatever the main thread is doing: its own handlers wait until it is back in Python.
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    threading.Thread(target=_leave, args=(told, close), name="tailrace-leave", daemon=True).start()


def _leave(told: int, close: Callable[[], None]) -> None:
    # Other signals that have a handler come this way too.
    while signal.SIGTERM not in os.read(told, 64):
        pass
    faulthandler.dump_traceback_later(LEAVE_SECONDS, exit=True, file=2)
    try:
        close()
    except Exception:
        logger.exception("the source was not closed")
    finally:
        os._exit(0)

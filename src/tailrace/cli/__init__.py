"""The command line: `tailrace init`, `check`, `setup`, `teardown`, `run`, `snapshot`, `status`, `search`,
`schema`.

One file a command, each no more than its help text and its presentation; what it does is in `tailrace.app`.
`root` puts them together and turns errors into one message and an exit code. What commands say goes through
`screen`; `watch` follows a running pipeline for the live view (`live`) or the log lines (`lines`).
"""

from tailrace.cli.root import app, main

__all__ = ["app", "main"]

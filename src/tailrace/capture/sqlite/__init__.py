"""SQLite: triggers write a log in the database file, capture reads it. No server, no driver.

`config` settings and URLs → `client` connections → `catalog` what tables look like (`indexes`, `types`) →
`triggers` the SQL that captures one → `meta` our own tables → `provision` setup and teardown, `drift` what
changed since → `stream` the live loop (`wake`, `slices`, `rows`, `decode`, `scalars`, `images`) and
`acknowledge` its cursor → `snapshot` chunks → `capture` the contract.
"""

from tailrace.capture.sqlite.capture import SqliteCapture
from tailrace.capture.sqlite.config import SqliteConfig

__all__ = ["SqliteCapture", "SqliteConfig"]

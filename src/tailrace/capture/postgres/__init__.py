"""PostgreSQL: logical replication by pgoutput, and reads of key ranges.

`config` settings and URLs → `client` connections → `catalog`, `names`, `privileges` what tables look like and
who may read them → `publication` and `slots`, with `provision` setup, teardown and coverage → `stream` the
live loop: `link` the connection, `sentinel` the thread that answers and watches, `messages` and `decode`
bytes to columns (`types` their texts), `transactions` and `spool` columns to parts, `relations` schemas,
`visible` what others can see → `snapshot` chunks → `capture` the contract.
"""

from tailrace.capture.postgres.capture import PostgresCapture
from tailrace.capture.postgres.config import PostgresConfig

__all__ = ["PostgresCapture", "PostgresConfig"]

"""The composition root: from a configuration to capture, sinks, session and pipeline.

`backends` is the only module that names concrete backends; `parts` says what a configuration means for a
source; `judging` finds what stands in the way, before anything is created, so that bad input leaves nothing
behind; `running` makes what a run needs, `renewal` lets it take up a changed file; `control` steers
snapshots, and `refilling` fills indexes again; `looking` shows indexes, and `searching` finds documents;
`operations` are the rest of what the surfaces offer.
"""

from tailrace.app.backends import (
    capture_for,
    document_sink_for,
    feed_sink_for,
    opened,
    rebase,
    table_sink_for,
)
from tailrace.app.judging import check, mappings, opensearch_bodies
from tailrace.app.letters import dead_letters, retry_dead_letters
from tailrace.app.looking import indexes
from tailrace.app.operations import (
    control,
    control_of_query,
    forget_consumer,
    is_running,
    is_starting,
    obstacles,
    refuse_while_running,
    setup,
    status,
    tables_of,
    teardown,
    writable,
)
from tailrace.app.parts import check_types, checkpoint_of, spark_log_of
from tailrace.app.renewal import Renewal
from tailrace.app.running import open_spark, pipeline_spec, release, spark_session
from tailrace.app.searching import search

__all__ = [
    "Renewal",
    "capture_for",
    "check",
    "check_types",
    "checkpoint_of",
    "control",
    "control_of_query",
    "dead_letters",
    "document_sink_for",
    "feed_sink_for",
    "forget_consumer",
    "indexes",
    "is_running",
    "is_starting",
    "mappings",
    "obstacles",
    "open_spark",
    "opened",
    "opensearch_bodies",
    "pipeline_spec",
    "rebase",
    "refuse_while_running",
    "release",
    "retry_dead_letters",
    "search",
    "setup",
    "spark_log_of",
    "spark_session",
    "status",
    "table_sink_for",
    "tables_of",
    "teardown",
    "writable",
]

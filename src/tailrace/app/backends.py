"""Concrete backends by name: the only module that knows which captures and sinks there are.

Each is imported when it is asked for, because Spark's workers come here too: `capture_for` is how they open
the source.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote as percent
from urllib.parse import unquote

from tailrace.capture.contract import Capture
from tailrace.model.errors import ConfigError
from tailrace.model.scheme import scheme_of, unknown_scheme

if TYPE_CHECKING:
    from tailrace.config import Config, Sink
    from tailrace.config import OpenSearchSink as OpenSearchSection
    from tailrace.config import SqliteSink as SqliteSection
    from tailrace.sinks.contract import DocumentSink, FeedSink, TableSink
    from tailrace.sinks.sqlite import SqliteSink as DocumentStore


def capture_for(
    url: str,
    *,
    types: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Capture:
    """The capture that a URL means; `${NAME}` in it comes from the environment. Opens nothing.

    `options` are the settings of its kind.
    """
    settings: dict[str, object] = dict(options or {})
    if types:
        settings["types"] = dict(types)
    if "${" in url:
        from tailrace.config.references import expand

        url = expand(url, os.environ if environ is None else environ)
    scheme = scheme_of(url)
    if scheme == "sqlite":
        from tailrace.capture.sqlite import SqliteCapture, SqliteConfig

        return SqliteCapture(SqliteConfig.from_url(url, settings))
    if scheme in ("postgres", "postgresql"):
        try:
            import psycopg  # noqa: F401
        except ImportError:
            raise ConfigError(
                "a PostgreSQL source needs the driver psycopg", remedy="pip install 'tailrace[postgres]'"
            ) from None
        from tailrace.capture.postgres import PostgresCapture, PostgresConfig

        return PostgresCapture(PostgresConfig.from_url(url, settings))
    raise unknown_scheme(scheme)


def rebase(url: str, directory: Path) -> str:
    """The URL of the same database as a file in `directory` writes it; a relative path stays relative."""
    scheme, _, rest = url.partition(":")
    if scheme.lower() != "sqlite" or rest.startswith("/") or "${" in rest:
        return url
    path = Path(unquote(rest)).absolute()
    return "sqlite:" + percent(os.path.relpath(path, directory.absolute()))


@contextlib.contextmanager
def opened(config: Config) -> Iterator[Capture]:
    """The configuration's capture, for some questions in a row; closed at the end."""
    capture = capture_for(config.source.url, types=config.source.types, options=config.source.options)
    with contextlib.closing(capture), capture.together():
        yield capture


def table_sink_for(name: str, sink: Sink) -> TableSink:
    """The sink that keeps mirrors, from its section of the configuration."""
    from tailrace.config import DeltaSink

    if isinstance(sink, DeltaSink):
        from tailrace.sinks.delta import DeltaConfig
        from tailrace.sinks.delta import DeltaSink as DeltaTables

        return DeltaTables(DeltaConfig(sink.path))
    raise ConfigError(f"the sink {name} cannot hold tables", remedy='use a sink with type = "delta"')


def feed_sink_for(name: str, sink: Sink) -> FeedSink:
    """The sink that takes changes, from its section of the configuration."""
    from tailrace.config import HttpSink, StdoutSink

    if isinstance(sink, StdoutSink):
        from tailrace.sinks.stdout import StdoutSink as StdoutFeed

        return StdoutFeed()
    if isinstance(sink, HttpSink):
        from tailrace.sinks.http import HttpConfig
        from tailrace.sinks.http import HttpSink as HttpFeed

        settings = HttpConfig(
            sink.url, headers=sink.headers, timeout=sink.timeout, max_batch_bytes=sink.max_batch_bytes
        )
        return HttpFeed(settings)
    raise ConfigError(f"the sink {name} takes no changes", remedy="mirror into it with [[table]]")


def document_sink_for(config: Config, name: str, *, cluster: bool = False) -> DocumentSink:
    """The sink that keeps documents or passes them on, by its name in the configuration. Opens nothing.

    In a `cluster` executors are on other machines. Secrets travel to executors as what the file says in their
    place.
    """
    from tailrace.config import OpenSearchSink, SqliteSink, StdoutSink

    sink = config.sinks[name]
    if isinstance(sink, OpenSearchSink):
        return _opensearch(config, name, sink)
    if isinstance(sink, SqliteSink):
        return document_store_for(sink, cluster=cluster)
    if isinstance(sink, StdoutSink):
        from tailrace.sinks.stdout import StdoutDocumentSink

        return StdoutDocumentSink()
    raise ConfigError(f"the sink {name} takes no documents", remedy='use a sink with type = "sqlite"')


def _opensearch(config: Config, name: str, sink: OpenSearchSection) -> DocumentSink:
    from tailrace.config.secrets import REMEDY
    from tailrace.sinks.opensearch import Credential, OpenSearchConfig, OpenSearchSink

    def credential(key: str) -> Credential | None:
        secret = getattr(sink, key)
        if secret is None:
            return None
        written = config.reference("sinks", name, key)
        if written is None:
            raise ConfigError(
                f"`{key}` of the sink {name} is written out, and would travel in Spark's plans",
                remedy=REMEDY,
                place=config.place("sinks", name, key),
            )
        return Credential(secret.reveal(), reference=written)

    ca_file, cert, key_file = (
        None if path is None else str(path) for path in (sink.ca_file, sink.client_cert, sink.client_key)
    )
    settings = OpenSearchConfig(
        url=sink.url,
        username=sink.username,
        password=credential("password"),
        api_key=credential("api_key"),
        aws_region=sink.aws_region,
        verify=sink.verify,
        timeout=sink.timeout,
        bulk_bytes=sink.bulk_bytes,
        bulk_actions=sink.bulk_actions,
        parallel=sink.parallel,
        gzip=sink.gzip,
        pipeline=sink.pipeline,
        keep=sink.keep,
        remember_deletes=sink.remember_deletes,
        analysis=sink.analysis,
        shards=sink.shards,
        replicas=sink.replicas,
        settings=sink.settings,
        ca_file=ca_file,
        client_cert=cert,
        client_key=key_file,
    )
    return OpenSearchSink(settings)


def document_store_for(sink: SqliteSection, *, cluster: bool = False) -> DocumentStore:
    """The document store, which can be searched too."""
    from tailrace.sinks.sqlite import SqliteSink as DocumentStore
    from tailrace.sinks.sqlite import SqliteStoreConfig

    settings = SqliteStoreConfig(str(sink.path), remember_deletes=sink.remember_deletes)
    return DocumentStore(settings, local=cluster)

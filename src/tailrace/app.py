"""The composition root: from a configuration to capture, sinks, session and pipeline.

The only module that names concrete backends; each is imported when it is asked for, because Spark's workers
import this module too (`capture_for` is how they open the source). `judge` and `pipeline_spec` look at
everything a configuration says before anything is created, so bad input leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote as percent
from urllib.parse import unquote

from tailrace.capture.contract import Capture, Finding
from tailrace.model.errors import (
    ConfigError,
    NeedsOperator,
    SchemaDrift,
    SetupMissing,
    StateOwned,
    TailraceError,
)
from tailrace.model.secret import mask_url
from tailrace.model.table import TableRef

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.config import Config, Sink
    from tailrace.engine.spec import Feed, Mirror, PipelineSpec
    from tailrace.engine.status import Status
    from tailrace.sinks.contract import FeedSink, TableSink
    from tailrace.spark.offsets import Offset

SCHEMES = ("sqlite", "postgresql")
LATER = {
    "mysql": "MySQL",
    "mariadb": "MariaDB",
    "sqlserver": "SQL Server",
    "mssql": "SQL Server",
}
RELEASE_SECONDS = 10.0
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_MASTER = re.compile(r"local|local\[(\d+|\*)(,\s*\d+)?\]|local-cluster\[.*\]|yarn|(spark|k8s)://.+")


def capture_for(
    url: str, *, types: Mapping[str, str] | None = None, environ: Mapping[str, str] | None = None
) -> Capture:
    """The capture that a URL means; `${NAME}` in it comes from the environment. Opens nothing."""
    if "${" in url:
        from tailrace.config.references import expand

        url = expand(url, os.environ if environ is None else environ)
    scheme = url.partition(":")[0].lower() if ":" in url else ""
    if scheme == "sqlite":
        from tailrace.capture.sqlite import SqliteCapture, SqliteConfig

        return SqliteCapture(SqliteConfig.from_url(url, {"types": dict(types)} if types else None))
    if scheme in ("postgres", "postgresql"):
        try:
            import psycopg  # noqa: F401
        except ImportError:
            raise ConfigError(
                "a PostgreSQL source needs the driver psycopg", remedy="pip install 'tailrace[postgres]'"
            ) from None
        from tailrace.capture.postgres import PostgresCapture, PostgresConfig

        return PostgresCapture(PostgresConfig.from_url(url, {"types": dict(types)} if types else None))
    raise _unknown_scheme(scheme)


def _unknown_scheme(scheme: str) -> ConfigError:
    known = ", ".join(f"{name}:" for name in SCHEMES)
    remedy = f"known sources: {known} (as in sqlite:shop.db, postgresql://user@host/shop)"
    if scheme in LATER:
        return ConfigError(f"this version of Tailrace has no {LATER[scheme]} capture", remedy=remedy)
    if not scheme:
        return ConfigError("a source URL begins with its kind", remedy=remedy)
    return ConfigError(f"no capture is known for {scheme}: URLs", remedy=remedy)


def rebase(url: str, directory: Path) -> str:
    """The URL of the same database as a file in `directory` writes it; a relative path stays relative."""
    scheme, _, rest = url.partition(":")
    if scheme.lower() != "sqlite" or rest.startswith("/") or "${" in rest:
        return url
    path = Path(unquote(rest)).absolute()
    return "sqlite:" + percent(os.path.relpath(path, directory.absolute()))


@contextlib.contextmanager
def opened(config: Config) -> Iterator[Capture]:
    """The configuration's capture, closed at the end."""
    capture = capture_for(config.source.url, types=config.source.types)
    try:
        yield capture
    finally:
        capture.close()


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


def checkpoint_of(config: Config) -> str:
    """Spark's checkpoint directory."""
    return str(config.state.directory / "checkpoint")


def spark_log_of(config: Config) -> Path:
    """The file that has Spark's own output."""
    return config.state.directory / "spark.log"


def pipeline_spec(config: Config) -> PipelineSpec:
    """What the engine is to run. ConfigError names the first thing that cannot work; nothing is created."""
    from tailrace.engine.spec import PipelineSpec

    with opened(config) as capture:
        refs = _captured(config, capture)
        mirrors, feeds = _mirrors(config, capture, refs), _feeds(config, capture, refs)
        _refuse(_judge(config, capture, refs))
    state = config.state.directory
    snapshot = bool(mirrors) or any(feed.snapshot for feed in feeds)
    options = {
        "view": "packed",
        "url": _source_url(config),
        "tables": json.dumps([ref.name if ref.schema == "main" else str(ref) for ref in refs]),
        "stateDir": str(state),
        "consumer": config.consumer,
        # The owner of the state is a process of Spark's; a person knows the one that was started.
        "owner": f"{config.name}, run by process {os.getpid()}",
        "setup": config.source.setup,
        "startingOffsets": "earliest" if snapshot else "latest",
        "maxRowsPerTrigger": str(config.batch.max_rows),
        "maxBytesPerTrigger": str(config.batch.max_bytes),
        "ack": config.state.ack,
        "retention": str(int(config.state.retention)),
        "maxChangelogBytes": str(config.state.max_size),
    }
    if config.source.types:
        options["types"] = json.dumps(config.source.types)
    return PipelineSpec(
        name=config.name,
        options=options,
        checkpoint=checkpoint_of(config),
        mirrors=mirrors,
        feeds=feeds,
        on_error=config.on_error,
        dead_letters=str(state / "deadletters"),
        spark_log=str(spark_log_of(config)),
    )


def _source_url(config: Config) -> str:
    """A reference travels as it is written, so that no secret does; a relative path travels absolute."""
    reference = config.reference("source", "url")
    if reference is not None:
        from tailrace.config.references import expand

        if expand(reference, os.environ) == config.source.url:
            return reference
    return config.source.url


def _captured(config: Config, capture: Capture) -> list[TableRef]:
    refs = capture.resolve(config.captured)
    if not refs:
        raise ConfigError(
            f"{mask_url(config.source.url)} has no tables that could be captured",
            remedy="create a table first, or correct source.url",
        )
    return refs


def _mirrors(config: Config, capture: Capture, refs: Sequence[TableRef]) -> tuple[Mirror, ...]:
    from tailrace.engine.spec import Mirror

    sinks = {table.sink: table_sink_for(table.sink, config.sinks[table.sink]) for table in config.tables}
    mirrors: dict[tuple[TableRef, str], Mirror] = {}
    # A table that is named has its own entry; `*` means the others.
    for table in sorted(config.tables, key=lambda table: table.name == "*"):
        named = list(refs) if table.name == "*" else capture.resolve([table.name])
        for ref in named:
            if table.name == "*" and (ref, table.sink) in mirrors:
                continue
            if not capture.describe(ref).key:
                raise _keyless(ref)
            target = table.target if table.target else ref.name
            mirrors[ref, table.sink] = Mirror(ref, target, sinks[table.sink])
    places: dict[tuple[str, str], TableRef] = {}
    for (ref, sink), mirror in mirrors.items():
        other = places.setdefault((sink, mirror.target), ref)
        if other != ref:
            raise ConfigError(
                f"the tables {other} and {ref} have the same target {mirror.target} in sink {sink}",
                remedy='give one of them another name: `as = "…"` in its [[table]]',
                place=str(config.path),
            )
    return tuple(mirrors.values())


def _keyless(ref: TableRef) -> ConfigError:
    return ConfigError(
        f"the table {ref.name} has no primary key, so it cannot be mirrored",
        remedy=f"give {ref.name} a primary key, or send its changes by a [[feed]] instead",
    )


def _feeds(config: Config, capture: Capture, refs: Sequence[TableRef]) -> tuple[Feed, ...]:
    from tailrace.engine.spec import Feed

    feeds = []
    for feed in config.feeds:
        tables = frozenset(refs if "*" in feed.tables else capture.resolve(feed.tables))
        feeds.append(Feed(tables, feed_sink_for(feed.sink, config.sinks[feed.sink]), feed.snapshot))
    return tuple(feeds)


def _judge(config: Config, capture: Capture, refs: Sequence[TableRef]) -> list[Finding]:
    """What stands in the way. What the first run sets up by itself is told, but is no error."""
    findings = []
    for finding in capture.coverage(refs):
        if finding.code in ("not_set_up", "drift") and _sets_up(config):
            finding = replace(finding, severity="info", remedy="nothing to do: `tailrace run` sets it up")  # noqa: PLW2901
        findings.append(finding)
    if not _MASTER.fullmatch(config.spark.master):
        message = f"`{config.spark.master}` is not a master of Spark"
        remedy = "local[2], spark://host:7077, yarn or k8s://https://host:443 in [spark]"
        findings.append(Finding("error", "spark_master", message, remedy=remedy))
    for what, directory in _directories(config):
        if (fault := _unwritable(directory, what)) is not None:
            remedy = "choose another directory in the file, or give this user the right to write there"
            findings.append(Finding("error", "unwritable", fault, remedy=remedy))
    return findings


def _directories(config: Config) -> Iterator[tuple[str, Path]]:
    """The local directories that a run writes to."""
    yield "the state", config.state.directory
    for name, sink in config.sinks.items():
        if sink.type == "delta" and not _URI.match(sink.path):
            yield f"sink {name}", Path(sink.path)


def _sets_up(config: Config) -> bool:
    """Whether a run would install capture: what a former run relied on must not change under it."""
    return config.source.setup == "auto" and not Path(checkpoint_of(config), "offsets").exists()


def _unwritable(directory: Path, what: str) -> str | None:
    there = directory
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        return f"{there} is not a directory, so {what} cannot be kept in {directory}"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"{there} cannot be written, so {what} cannot be kept in {directory}"
    return None


def _refuse(findings: Sequence[Finding]) -> None:
    """Raise the first error among them, as the kind it is."""
    kinds: dict[str, type[TailraceError]] = {"not_set_up": SetupMissing, "drift": SchemaDrift}
    for finding in findings:
        if finding.severity == "error":
            raise kinds.get(finding.code, ConfigError)(finding.message, remedy=finding.remedy)


def check(config: Config, *, offline: bool = False) -> list[Finding]:
    """Everything that is wrong, or worth knowing, before a run. Changes nothing.

    Offline nothing is opened: the configuration was read, and that is all that is said.
    """
    if offline:
        return []
    findings: list[Finding] = []
    try:
        with opened(config) as capture:
            refs = _captured(config, capture)
            findings += _judge(config, capture, refs)
            _mirrors(config, capture, refs)
            _feeds(config, capture, refs)
    except ConfigError as error:
        if not any(finding.message == error.message for finding in findings):
            findings.append(Finding("error", "config", error.message, remedy=error.remedy))
    except NeedsOperator as error:
        findings.append(Finding("error", "source", error.message, remedy=error.remedy))
    return findings


def tables_of(url: str) -> list[tuple[TableRef, bool]]:
    """Every table that could be captured, and whether it has a primary key."""
    capture = capture_for(url)
    try:
        return [(ref, bool(capture.describe(ref).key)) for ref in capture.tables()]
    finally:
        capture.close()


def setup(config: Config) -> list[str]:
    """Install capture for the configuration's tables; a sentence for each thing done."""
    refuse_while_running(config)
    with opened(config) as capture:
        refs = _captured(config, capture)
        _refuse([f for f in capture.coverage(refs) if f.code not in ("not_set_up", "drift")])
        return capture.setup(refs)


def teardown(config: Config, tables: Sequence[str] = ()) -> list[str]:
    """Remove capture of some tables, or of everything. The state directory is left as it is."""
    refuse_while_running(config)
    with opened(config) as capture:
        return capture.teardown(capture.resolve(tables) if tables else None)


def request_snapshots(config: Config, tables: Sequence[str]) -> dict[str, str]:
    """Leave requests for fresh snapshots, which the running or the next run serves; their ids by table."""
    from tailrace.changelog.filesystem import make_directory, open_filesystem
    from tailrace.spark.plans import PlanStore

    with opened(config) as capture:
        captured = set(_captured(config, capture))
        wanted = capture.resolve(tables)
    for ref in wanted:
        if ref not in captured:
            raise ConfigError(
                f"the table {ref.name} is not one of this pipeline's",
                remedy="add it to the file by a [[table]] or [[feed]]; a new table is snapshotted by itself",
            )
    if (fault := _unwritable(config.state.directory, "the state")) is not None:
        raise ConfigError(fault, remedy="correct `directory` of [state] in the file")
    fs, root = open_filesystem(str(config.state.directory))
    make_directory(fs, root)
    store = PlanStore(fs, root)
    return {ref.name: store.request(ref) for ref in wanted}


def waiting_snapshots(config: Config) -> list[str]:
    """The tables whose requested snapshot has not begun yet."""
    from tailrace.changelog.filesystem import open_filesystem
    from tailrace.spark.plans import PlanStore

    fs, root = open_filesystem(str(config.state.directory))
    return sorted(ref.name for ref in PlanStore(fs, root).requests().values())


def status(config: Config) -> Status:
    """Where the pipeline stands, whether one runs or not. Takes no ownership and changes nothing."""
    from tailrace.engine.status import read_status

    with opened(config) as capture:
        return read_status(
            capture,
            name=config.name,
            consumer=config.consumer,
            state=str(config.state.directory),
            checkpoint=checkpoint_of(config),
            tables=_captured(config, capture),
        )


def refuse_while_running(config: Config, *, patience: float = 0.0) -> None:
    """StateOwned where a process runs this pipeline and goes on doing so for `patience` seconds."""
    from tailrace.engine.status import living_owner

    deadline = time.monotonic() + patience
    while (owner := living_owner(str(config.state.directory))) is not None:
        if time.monotonic() >= deadline:
            raise StateOwned(
                f"the pipeline is running: {owner}",
                remedy="stop it first (SIGTERM or Ctrl-C finishes its batch)",
            )
        time.sleep(0.1)


def open_spark(config: Config) -> SparkSession:
    """A Spark session for this configuration. Spark's own output goes to the state directory."""
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        raise NeedsOperator(
            "Java was not found, and Spark needs it", remedy="install Java 17 or set JAVA_HOME"
        )
    from tailrace.spark.session import open_session
    from tailrace.spark.source import TailraceSource

    log = spark_log_of(config)
    config.state.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        spark = open_session(config.name, master=config.spark.master, settings=config.spark.settings, log=log)
    except Exception as error:
        raise TailraceError(f"Spark did not start: {_reason(error)}", remedy=f"Spark's log: {log}") from error
    spark.dataSource.register(TailraceSource)
    return spark


def _reason(error: Exception) -> str:
    """The telling line of an error that came through the bridge to Java, which puts it behind a colon."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    told = next((line[2:] for line in lines if line.startswith(": ")), lines[0])
    return told.rpartition("Exception: ")[2][:300]


def release(config: Config) -> Callable[[Offset], None]:
    """Acknowledges an offset at the source at the end of a run, until the source has it on record."""

    def acknowledge(offset: Offset) -> None:
        deadline = time.monotonic() + RELEASE_SECONDS
        with opened(config) as capture:
            while capture.acknowledge(offset.position, consumer=config.consumer) < offset.position:
                if time.monotonic() >= deadline:
                    return
                time.sleep(0.05)

    return acknowledge


def is_running(config: Config) -> bool:
    """Whether a process runs this pipeline now."""
    from tailrace.engine.status import living_owner

    return living_owner(str(config.state.directory)) is not None

"""The options of `format("tailrace")`: read, checked and named in errors before anything is opened."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, get_args

from tailrace.model.errors import ConfigError
from tailrace.model.secret import holds_secret
from tailrace.model.units import parse_lag, parse_limit, parse_share, parse_size
from tailrace.spark.throttle import Limits

Value = TypeVar("Value")
View = Literal["envelope", "table", "net", "packed"]

DESCRIPTIONS: dict[str, str] = {
    "url": "The source, e.g. `sqlite:shop.db`. `${NAME}` is taken from the environment. Required.",
    "tables": "Tables to read, separated by commas, or a JSON array of names; `*` means all. Required.",
    "stateDir": "Directory for the changelog, shared by driver and executors. Required for streams.",
    "startingOffsets": "Of a new query: `earliest` (snapshot, then changes), `latest` (changes only), or the"
    " JSON of an offset. Default `earliest`.",
    "maxRowsPerTrigger": "At most so many changes a micro-batch; a transaction is never split."
    " Default 200000, and as many chunks of snapshots as the last batch read in about two seconds.",
    "maxBytesPerTrigger": "At most so many bytes of changes a micro-batch. Default 64 MB.",
    "failOnDataLoss": "`true`: stop with the remedy when the source no longer has what comes next."
    " `false`: warn and take a fresh snapshot. Default `true`.",
    "numPartitions": "How many tasks read a micro-batch or a snapshot; up to twice as many the chunks of a"
    " stream's snapshots. Default 2 for streams, 1 for batch reads: one task sees one moment, several see one"
    " each, but for a read of `tailrace.moment`.",
    "view": "`envelope` (JSON images, any tables), `table` (typed columns of one table), `net` (latest per"
    " key of one table), `packed` (Arrow batches, for engines). Default `envelope` for streams, `table` for"
    " batch reads.",
    "columns": "Of a batch read: the columns to read, separated by commas, or a JSON array of names; no other"
    " leaves the source. Default: all.",
    "where": "Of a batch read: a condition in the source's own SQL; no other rows leave the source. Default:"
    " none.",
    "pushFilters": "`true`: a batch read hands filters of the query to the source. For DataFrames that one"
    " query uses once, see the page on batch reads. Default `false`.",
    "moment": "Of a batch read: the point in time to read at. Set by `tailrace.moment`.",
    "consumer": "Name of this reader's cursor at the source. Default: derived from `stateDir`.",
    "setup": "`auto`: install what capture needs where it is missing; `manual`: refuse with the remedy."
    " Default `auto`.",
    "types": 'JSON object of column types that override the derived ones: `{"orders.price": "string"}`.',
    "sourceOptions": "JSON object of settings of the kind of source, as its page lists them:"
    ' `{"publication": "shop"}`.',
    "chunkRows": "Rows a snapshot chunk, at most about so many. Default 100000.",
    "chunkBytes": "Bytes a snapshot chunk, at most about so many. Default 16 MB.",
    "ack": "`sink`: the source may release its log once Spark has committed the batch; `changelog`: once the"
    " changelog is durable. Default `sink`.",
    "retention": "Seconds that acknowledged changelog segments are kept. Default 0.",
    "maxChangelogBytes": "Back-pressure: capture pauses while more is unacknowledged. Default 4 GB.",
    "snapshotRowsPerSecond": "At most so many rows of snapshots a second, on average. Default: no ceiling.",
    "snapshotConnections": "At most so many tasks, each with a connection of its own, read snapshot chunks at"
    " a time. Default: twice `numPartitions`.",
    "snapshotPauseLag": "No snapshot chunk is taken while the query is further behind than this: a size, a"
    " duration, a number of changes, or several (`256MB`, `30s`, `10000 changes`, `256MB, 30s`), in what the"
    " source can measure. Default: no pause.",
    "snapshotPauseStandbyLag": "The same while a standby of the source is further behind than this: a size, a"
    " duration or both. Default: no pause.",
    "snapshotPauseConnections": "The same while others have more connections to the source than this: a"
    " number (`50`), or a part of all that it takes (`80%`). Default: no pause.",
    "snapshotPauseActive": "The same while more sessions of others than this are at work in the source."
    " Default: no pause.",
    "snapshotPauseRetained": "The same while the source keeps more log than this for the query: a size"
    " (`1GB`). Default: no pause.",
    "documents": "Of pipelines that keep documents: what these need of the stream, as JSON. Set by `tailrace"
    " run`.",
    "owner": "Name shown when another process wants the same state directory. Default: the consumer.",
}


MAX_ROWS, MAX_BYTES = 200_000, 64 * 1024 * 1024


@dataclass(frozen=True)
class DocumentNeeds:
    """What documents need of a stream, by tables as their references' texts.

    `unread`: tables whose rows nobody asks for, so that no snapshot of them is taken by itself. `keys`: of
    these a snapshot reads the key alone. `links`: the columns whose old values link state must tell.
    """

    unread: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    links: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def to_json(self) -> str:
        """The text of the option."""
        links = {table: list(columns) for table, columns in self.links.items()}
        return json.dumps({"unread": sorted(self.unread), "keys": sorted(self.keys), "links": links})

    @classmethod
    def parse(cls, text: str) -> DocumentNeeds:
        """What the option says."""
        try:
            body = json.loads(text)
            links = {table: tuple(columns) for table, columns in body["links"].items()}
            return cls(frozenset(body["unread"]), frozenset(body["keys"]), links)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ConfigError("option `documents` is set by `tailrace run`, and not by hand") from None


@dataclass(frozen=True)
class SourceOptions:
    """The options, typed. Travels pickled to executors, so it carries references, never secrets."""

    url: str
    tables: tuple[str, ...]
    state_dir: str | None = None
    starting: Literal["earliest", "latest"] | dict[str, Any] = "earliest"
    max_rows: int | None = None
    max_bytes: int | None = None
    fail_on_data_loss: bool = True
    partitions: int | None = None
    view: View | None = None
    columns: tuple[str, ...] | None = None
    where: str | None = None
    push_filters: bool = False
    moment: str | None = None
    consumer: str | None = None
    setup: Literal["auto", "manual"] = "auto"
    types: dict[str, str] = field(default_factory=dict)
    source_options: dict[str, Any] = field(default_factory=dict)
    chunk_rows: int = 100_000
    chunk_bytes: int = 16 * 1024 * 1024
    ack: Literal["sink", "changelog"] = "sink"
    retention: float = 0.0
    max_changelog_bytes: int = 4 * 1024**3
    owner: str | None = None
    documents: DocumentNeeds | None = None
    throttle: Limits = field(default_factory=Limits)

    @property
    def limits(self) -> tuple[int, int]:
        """Rows and bytes of the log for a micro-batch."""
        return self.max_rows or MAX_ROWS, self.max_bytes or MAX_BYTES

    @property
    def roomy(self) -> bool:
        """Whether snapshots may take more rows than the log: nobody gave a limit, nobody collects a batch."""
        streamed = self.view in (None, "table", "envelope")
        return streamed and self.max_rows is None and self.max_bytes is None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """The options of a query. ConfigError names the option, and the nearest known one."""
        known = {name.lower(): name for name in DESCRIPTIONS}
        given: dict[str, str] = {}
        for name, value in options.items():
            if name.lower() == "path":
                raise ConfigError("load() takes no path here", remedy='use .option("url", …) and .load()')
            if name.lower() not in known:
                near = difflib.get_close_matches(name.lower(), known, 1)
                hint = f"; did you mean `{known[near[0]]}`?" if near else ""
                raise ConfigError(
                    f"unknown option `{name}`{hint}", remedy=f"options: {', '.join(DESCRIPTIONS)}"
                )
            given[known[name.lower()]] = str(value)
        if holds_secret(given.get("url", "")):
            raise ConfigError(
                "option `url` has a password in it, which would travel in Spark's plans",
                remedy="write ${NAME} in its place, which every process takes from its environment",
            )
        for required in ("url", "tables"):
            if not given.get(required, "").strip():
                raise ConfigError(f"option `{required}` is missing", remedy=DESCRIPTIONS[required])
        return cls(
            url=given["url"],
            tables=names_of(given["tables"], "tables"),
            state_dir=given.get("stateDir") or None,
            starting=_starting(given.get("startingOffsets", "earliest")),
            max_rows=_number(given, "maxRowsPerTrigger", 0, 1) or None,
            max_bytes=_number(given, "maxBytesPerTrigger", 0, 1) or None,
            fail_on_data_loss=_choice(given, "failOnDataLoss", ("true", "false"), "true") == "true",
            partitions=_number(given, "numPartitions", 0, 1) or None,
            view=_choice(given, "view", get_args(View), None),  # type: ignore[arg-type]
            columns=names_of(given["columns"], "columns") if "columns" in given else None,
            where=given.get("where") or None,
            push_filters=_choice(given, "pushFilters", ("true", "false"), "false") == "true",
            moment=given.get("moment") or None,
            consumer=given.get("consumer") or None,
            setup=_choice(given, "setup", ("auto", "manual"), "auto"),  # type: ignore[arg-type]
            types=_types(given.get("types", "{}")),
            source_options=_settings(given.get("sourceOptions", "{}")),
            chunk_rows=_number(given, "chunkRows", cls.chunk_rows, 1),
            chunk_bytes=_number(given, "chunkBytes", cls.chunk_bytes, 1),
            ack=_choice(given, "ack", ("sink", "changelog"), "sink"),  # type: ignore[arg-type]
            retention=float(_number(given, "retention", 0, 0)),
            max_changelog_bytes=_number(given, "maxChangelogBytes", cls.max_changelog_bytes, 1),
            owner=given.get("owner") or None,
            documents=DocumentNeeds.parse(given["documents"]) if "documents" in given else None,
            throttle=_limits(given),
        )


def names_of(text: str, option: str) -> tuple[str, ...]:
    """Names separated by commas, or a JSON array of them; ConfigError names the option."""
    if text.lstrip().startswith("["):
        try:
            names = json.loads(text)
        except ValueError:
            names = None
        if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
            raise ConfigError(f"option `{option}` is not a JSON array of names")
        return tuple(names)
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise ConfigError(f"option `{option}` has an empty name in it")
    return names


def _number(given: Mapping[str, str], name: str, default: int, least: int) -> int:
    if name not in given:
        return default
    try:
        value = int(given[name])
    except ValueError:
        raise ConfigError(f"option `{name}` is not a whole number") from None
    if value < least:
        raise ConfigError(f"option `{name}` must be at least {least}")
    return value


def _limits(given: Mapping[str, str]) -> Limits:
    return Limits(
        rows_per_second=_number(given, "snapshotRowsPerSecond", 0, 1) or None,
        connections=_number(given, "snapshotConnections", 0, 1) or None,
        lag=_parsed(given, "snapshotPauseLag", parse_limit),
        standby_lag=_parsed(given, "snapshotPauseStandbyLag", parse_lag),
        others=_parsed(given, "snapshotPauseConnections", parse_share),
        active=_number(given, "snapshotPauseActive", 0, 1) or None,
        retained=_parsed(given, "snapshotPauseRetained", parse_size),
    )


def _parsed(given: Mapping[str, str], name: str, parse: Callable[[Any], Value]) -> Value | None:
    try:
        return parse(given[name]) if name in given else None
    except ValueError as error:
        raise ConfigError(f"option `{name}` {error}") from None


def _choice(given: Mapping[str, str], name: str, allowed: tuple[str, ...], default: str | None) -> str | None:
    value = given.get(name)
    if value is None:
        return default
    if value.lower() not in allowed:
        raise ConfigError(f"option `{name}` is `{value}`; it must be one of {', '.join(allowed)}")
    return value.lower()


def _starting(text: str) -> Any:
    if text.strip().lower() in ("earliest", "latest"):
        return text.strip().lower()
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise ConfigError("option `startingOffsets` must be `earliest`, `latest` or the JSON of an offset")
    return body


def _settings(text: str) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    if not isinstance(body, dict) or not all(isinstance(value, str | int | float) for value in body.values()):
        raise ConfigError('option `sourceOptions` must be a JSON object like {"publication": "shop"}')
    return body


def _types(text: str) -> dict[str, str]:
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    if not isinstance(body, dict) or not all(isinstance(value, str) for value in body.values()):
        raise ConfigError('option `types` must be a JSON object like {"orders.price": "string"}')
    return body

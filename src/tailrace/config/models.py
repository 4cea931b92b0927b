"""The models of `tailrace.toml`, one a table of the file; every field's description is its documentation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from pydantic import (
    ConfigDict,
    Field,
    PrivateAttr,
    StrictBool,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from tailrace.config import lines
from tailrace.config.hints import listed, nearest
from tailrace.config.sinks import Section, Sink
from tailrace.config.values import (
    Count,
    Duration,
    LagLimit,
    LocalPath,
    Name,
    Prefix,
    ShareOrCount,
    Size,
    StandbyLimit,
    Url,
    Wrong,
    directory_of,
    flatten,
)
from tailrace.model.scheme import SCHEMES, scheme_of, unknown_scheme
from tailrace.model.secret import MASK, mask_url

if TYPE_CHECKING:
    from tailrace.config.index import IndexSchema
    from tailrace.config.problems import Places

OnError = Literal["stop", "skip"]
# A default that depends on other keys, so that `checks` gives it before the model sees the table.
_FILLED_IN: Any = None
_SECRET_SETTING = re.compile(r"secret|password|token|access[.]?key|credential", re.IGNORECASE)


class Source(Section):
    """What is captured, and how."""

    type: Literal["sqlite", "postgres"] | None = Field(
        default=None, description="The kind of database. Default: what the URL's scheme says."
    )
    url: Url = Field(
        description="The database: `sqlite:shop.db`, the path relative to the file's directory, or"
        " `postgresql://user@host/database`."
    )
    tables: tuple[str, ...] = Field(
        default=(),
        description="The tables that capture watches, `*` for all of them. Default: those that `[[table]]`,"
        " `[[feed]]` and the schemas of `[[index]]` name.",
    )
    consumer: Name | None = Field(
        default=None, description="Name of the pipeline's cursor at the source. Default: the pipeline's name."
    )
    setup: Literal["auto", "manual"] = Field(
        default="auto",
        description="`auto`: the pipeline installs what capture needs in the source; `manual`: it refuses to"
        " start without, and names the command.",
    )
    on_data_loss: Literal["stop", "snapshot"] = Field(
        default="stop",
        description="When the source no longer has the changes that come next: `stop` with the remedy, or"
        " warn, take a fresh `snapshot` and go on.",
    )
    options: dict[str, str | int | float] = Field(
        default_factory=dict,
        description='Settings of the kind of source, as its page lists them: `{ publication = "shop" }`.',
    )
    types: dict[str, str] = Field(
        default_factory=dict,
        description='Types that override the derived ones, by column: `{ "orders.price" = "string" }`.',
    )

    @field_validator("url")
    @classmethod
    def _locate(cls, value: str, info: ValidationInfo) -> str:
        rest = value.partition(":")[2]
        if (scheme := scheme_of(value)) not in SCHEMES:
            unknown = unknown_scheme(scheme)
            raise Wrong(unknown.message, unknown.remedy)
        kind = "postgres" if scheme == "postgresql" else scheme
        wanted = info.data.get("type")
        if wanted and kind != wanted:
            raise ValueError(f"is not the URL of a {wanted} source")
        if kind != "sqlite":
            return value
        if rest.startswith("//") and not rest.startswith("///"):
            raise ValueError("must name a file and no host: `sqlite:shop.db` or `sqlite:/var/shop.db`")
        path = rest.removeprefix("//")
        if not path or "\0" in path:
            raise ValueError("names no database file")
        # The rest of a URL is percent-encoded, so the directory put before it must be too.
        base = "" if path.startswith("/") else quote(str(directory_of(info))) + "/"
        return f"sqlite:{base}{path}"

    @field_validator("tables")
    @classmethod
    def _are_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return check_tables(value)

    @field_validator("types", mode="before")
    @classmethod
    def _flatten(cls, value: Any) -> Any:
        return flatten(value)

    @field_validator("types")
    @classmethod
    def _are_types(cls, value: dict[str, str]) -> dict[str, str]:
        from tailrace.model.errors import TailraceError
        from tailrace.model.table import SIMPLE_TYPES, ColumnType

        for column, name in value.items():
            if "." not in column:
                raise ValueError(f"`{column}` must name a table and a column: `orders.price`")
            try:
                _ = ColumnType(name).arrow
            except TailraceError:
                known = [*SIMPLE_TYPES, "decimal(10,2)"]
                raise Wrong(
                    f"`{column}` has an unknown type{nearest(name, known)}", f"one of {listed(known)}"
                ) from None
        return value


class State(Section):
    """Where a pipeline keeps what it must remember."""

    directory: LocalPath = Field(
        default=Path(".tailrace"), description="Directory of the state, relative to the file's directory."
    )
    ack: Literal["sink", "changelog"] = Field(
        default="sink",
        description="When the source may release its log: once the `sink` has the changes, or once the"
        " `changelog` has them on disk.",
    )
    retention: Duration = Field(
        default=0.0, description="How long acknowledged segments of the changelog are kept."
    )
    max_size: Size = Field(
        default=4 * 1024**3,
        description="Capture pauses while the changelog holds more than this unacknowledged.",
    )


class Batch(Section):
    """How much a micro-batch takes; a transaction is never split."""

    max_rows: Count = Field(default=200_000, ge=1, description="At most so many changes a micro-batch.")
    max_bytes: Size = Field(
        default=64 * 1024**2,
        description="At most so many bytes a micro-batch; a larger transaction is written in such pieces.",
    )


class Snapshot(Section):
    """How fast snapshots may go; changes are never held up by these limits."""

    rows_per_second: Count | None = Field(
        default=None, ge=1, description="At most so many rows of snapshots a second, on average."
    )
    connections: Count | None = Field(
        default=None, ge=1, description="At most so many connections read snapshots at a time."
    )
    pause_lag: LagLimit | None = Field(
        default=None,
        description="Snapshots pause while the pipeline is further behind than this: `256MB`, `30s`,"
        " `10000 changes`, or several with commas between.",
    )
    pause_standby_lag: StandbyLimit | None = Field(
        default=None,
        description="Snapshots pause while a standby of the source is further behind than this: `256MB`,"
        " `30s`, or both.",
    )
    pause_connections: ShareOrCount | None = Field(
        default=None,
        description="Snapshots pause while others have more connections to the source than this: `50`, or a"
        " part of all that it takes, `80%`.",
    )
    pause_active: Count | None = Field(
        default=None,
        ge=1,
        description="Snapshots pause while more sessions of others than this are at work in the source.",
    )
    pause_retained: Size | None = Field(
        default=None,
        description="Snapshots pause while the source keeps more log than this for the pipeline.",
    )

    def options(self) -> dict[str, str]:
        """The options of the Spark source that say the same."""
        given = {
            "snapshotRowsPerSecond": self.rows_per_second,
            "snapshotConnections": self.connections,
            "snapshotPauseLag": self.pause_lag,
            "snapshotPauseStandbyLag": self.pause_standby_lag,
            "snapshotPauseConnections": self.pause_connections,
            "snapshotPauseActive": self.pause_active,
            "snapshotPauseRetained": self.pause_retained,
        }
        return {name: str(value) for name, value in given.items() if value is not None}


class Spark(Section):
    """The Spark session; any `spark.*` setting may stand beside `master`."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "patternProperties": {r"^spark(\.|$)": {"description": "A Spark setting."}},
            "additionalProperties": False,
        },
    )

    master: str = Field(
        default="local[2]", description="Spark's master: `local[2]`, `spark://host:7077`, `yarn`."
    )

    @model_validator(mode="before")
    @classmethod
    def _settings(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {key: inner if key == "master" else setting(inner) for key, inner in flatten(value).items()}

    @property
    def settings(self) -> dict[str, str]:
        """Every `spark.*` setting."""
        return dict(self.__pydantic_extra__ or {})

    @model_serializer(mode="plain")
    def _shown(self) -> dict[str, str]:
        return {"master": self.master, **shown_settings(self.settings)}


class Table(Section):
    """A mirror: the current state of a table, kept in a sink that holds tables."""

    name: str = Field(min_length=1, description="The table, or `*` for every captured table.")
    sink: str = Field(default="", description="The sink that holds the mirror. Default: the only delta sink.")
    target: str = Field(
        default="", alias="as", description="The mirror's name in the sink. Default: the table's name."
    )
    schema_changes: Literal["evolve", "snapshot", "stop"] = Field(
        default="evolve",
        description="When columns or key of the table change: `evolve` follows where the log tells all of it"
        " and stops otherwise, `snapshot` reads the table anew instead of stopping, `stop` always stops.",
    )


class Feed(Section):
    """A change feed: every change of some tables, sent to a sink."""

    tables: tuple[str, ...] = Field(default=("*",), description="The tables, `*` for every captured table.")
    sink: str = Field(
        default="", description="Where changes go. Default: the only sink that takes changes, else `stdout`."
    )
    snapshot: StrictBool = Field(default=True, description="Whether the existing rows are sent first.")

    @field_validator("tables")
    @classmethod
    def _are_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return check_tables(value)


class Index(Section):
    """An index: documents made of a table's rows and of what is related to them, kept in sinks."""

    name: Name = Field(
        description="The index's name; at the sinks the top level's `prefix` stands before it."
    )
    schema_path: LocalPath = Field(
        alias="schema",
        description="The schema of its documents, a `*.schema.yml` file, relative to the file's directory.",
    )
    enabled: StrictBool = Field(
        default=True, description="Whether its documents are kept. Where not, its tables are not captured."
    )
    on_error: OnError = Field(
        default=_FILLED_IN,
        validate_default=False,
        description="A document that cannot be built, or that a sink refuses: `stop` the pipeline or `skip`"
        " the document. Default: as the top level says.",
    )
    backfill: Literal["auto", "source", "spark"] = Field(
        default="auto",
        description="How it is filled: by questions to the `source`, by joins in `spark` over tables that are"
        " read once, or `auto`: by joins where the root table is large and Spark has many cores.",
    )
    sinks: tuple[str, ...] = Field(
        default=(),
        description="The sinks that get the documents. Default: every sink of the file that takes documents,"
        " else `stdout`.",
    )

    _schema: IndexSchema = PrivateAttr()

    @property
    def schema_(self) -> IndexSchema:
        """What its schema file says."""
        return self._schema


class Config(Section):
    """A whole `tailrace.toml`, with defaults filled in and paths made absolute."""

    name: Name = Field(
        default="",
        validate_default=False,
        description="The pipeline's name. Default: the file's name without its ending; for `tailrace.toml`"
        " the name of its directory.",
    )
    on_error: OnError = Field(
        default="stop",
        description="A value or row that cannot be carried: `stop` the pipeline or `skip` the row.",
    )
    prefix: Prefix = Field(default="", description="What stands before the names of indexes at the sinks.")
    source: Source = Field(description="The database whose changes are captured.")
    state: State = Field(
        default_factory=State, validate_default=False, description="Where the state is kept."
    )
    batch: Batch = Field(default_factory=Batch, description="How much a micro-batch takes.")
    snapshot: Snapshot = Field(default_factory=Snapshot, description="How fast snapshots may go.")
    spark: Spark = Field(default_factory=Spark, description="The Spark session.")
    sinks: dict[Name, Sink] = Field(
        default_factory=dict, description="The sinks, each under a name of your choice."
    )
    tables: tuple[Table, ...] = Field(
        default=(), alias="table", description="Mirrors: the current state of tables."
    )
    feeds: tuple[Feed, ...] = Field(
        default=(), alias="feed", description="Change feeds: every change of tables."
    )
    indexes: tuple[Index, ...] = Field(
        default=(), alias="index", description="Indexes: documents made of related rows."
    )

    _path: Path = PrivateAttr(default=Path("tailrace.toml"))
    _references: dict[lines.Path, str] = PrivateAttr(default_factory=dict)
    _places: Places | None = PrivateAttr(default=None)
    _locked: bool = PrivateAttr(default=False)

    @property
    def path(self) -> Path:
        """The file that was read, absolute."""
        return self._path

    @property
    def locked(self) -> bool:
        """Whether that was a lock file."""
        return self._locked

    @property
    def directory(self) -> Path:
        """The file's directory, where relative paths start."""
        return self._path.parent

    @property
    def consumer(self) -> str:
        """The name of the pipeline's cursor at the source."""
        return self.source.consumer or self.name

    @property
    def captured(self) -> tuple[str, ...]:
        """The tables that capture watches, as names to resolve; `("*",)` where one of them is `*`."""
        names = self.source.tables or (
            *(table.name for table in self.tables),
            *(name for feed in self.feeds for name in feed.tables),
            *(name for index in self.indexes if index.enabled for _, name in index.schema_.tables()),
        )
        return ("*",) if "*" in names else tuple(dict.fromkeys(names))

    def reference(self, *path: str | int) -> str | None:
        """What the file says at a path in place of a value from the environment: `sqlite:${DB}`.

        Other processes get this text and expand it themselves (`tailrace.config.expand`), so that a secret
        does not travel.
        """
        return self._references.get(path)

    def place(self, *path: str | int) -> str:
        """Where a key got its value: `tailrace.toml:12 (source.url)`, or the name of a variable or flag."""
        return ".".join(map(str, path)) if self._places is None else self._places.place(path)

    def shown(self) -> dict[str, Any]:
        """The whole configuration as it may be printed: references as written, secrets masked."""
        body = self.model_dump(by_alias=True, mode="json")
        for path, text in self._references.items():
            _put(body, path, text)
        return body

    def __repr_args__(self) -> Any:
        yield from self.shown().items()


def _put(body: Any, path: lines.Path, text: str) -> None:
    *parents, last = path
    for step in parents:
        try:
            body = body[step]
        except (KeyError, IndexError, TypeError):
            return
    if isinstance(body, dict | list):
        # A reference inside a URL may stand beside a password that is written out.
        body[last] = mask_url(text) if "@" in text or "?" in text else text  # type: ignore[index]


def shown_settings(settings: dict[str, str]) -> dict[str, str]:
    """Spark settings with the secret ones masked, by the words that Spark itself redacts."""
    return {
        key: MASK if is_secret_setting(key, value) else mask_url(value) for key, value in settings.items()
    }


def is_secret_setting(key: str, value: str) -> bool:
    """Whether a setting has one of the words in it that Spark itself redacts by."""
    return _SECRET_SETTING.search(f"{key} {value}") is not None


def setting(value: Any) -> Any:
    """A Spark setting as Spark takes it; numbers and booleans become their text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def check_tables(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names, none of them empty and none twice."""
    if not all(name.strip() and "\0" not in name for name in names):
        raise ValueError("has an empty name in it")
    if len(set(names)) < len(names):
        raise ValueError("names a table twice")
    return names

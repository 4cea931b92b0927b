"""The sinks a configuration can name, told apart by `type`."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, StrictBool, field_validator, model_validator

from tailrace.config.values import (
    Count,
    Duration,
    LocalPath,
    PathOrUri,
    SecretString,
    Size,
    Url,
    Wrong,
    flatten,
)

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Section(BaseModel):
    """A table of the file: frozen, without unknown keys, and shown without secrets."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, hide_input_in_errors=True
    )

    def __repr_args__(self) -> Any:
        # The dump is what may be shown: its serialisers mask URLs and secrets.
        yield from self.model_dump().items()


class DeltaSink(Section):
    """Delta tables, one a mirrored table."""

    holds_tables: ClassVar[bool] = True
    takes_documents: ClassVar[bool] = False

    type: Literal["delta"] = Field(description="Delta tables, one a mirrored table.")
    path: PathOrUri = Field(
        description="Directory of the tables: a path, relative to the file's directory, or a URI."
    )


class StdoutSink(Section):
    """Changes and documents as lines of JSON on the standard output."""

    holds_tables: ClassVar[bool] = False
    takes_documents: ClassVar[bool] = True

    type: Literal["stdout"] = Field(
        description="Changes and documents as lines of JSON on the standard output."
    )


class HttpSink(Section):
    """Changes posted to a URL."""

    holds_tables: ClassVar[bool] = False
    takes_documents: ClassVar[bool] = False

    type: Literal["http"] = Field(description="Changes posted to a URL, in batches.")
    url: Url = Field(description="Where batches are posted: an `http:` or `https:` URL.")
    headers: dict[str, SecretString] = Field(
        default_factory=dict,
        description="Headers of every request. Their values are secrets and never shown.",
    )
    timeout: Duration = Field(
        default=30.0, gt=0, validate_default=False, description="How long one request may take."
    )
    max_batch_bytes: Size = Field(default=1024**2, description="A request's body is cut at this size.")

    @field_validator("url")
    @classmethod
    def _is_http(cls, value: str) -> str:
        return _http_url(value)

    @field_validator("headers")
    @classmethod
    def _are_headers(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name, secret in value.items():
            if not _TOKEN.fullmatch(name):
                raise ValueError(f"`{name}` cannot be a header's name")
            if any(character in secret.reveal() for character in "\r\n\0"):
                raise ValueError(f"the value of `{name}` has a line break in it")
        return value


class SqliteSink(Section):
    """Documents in a SQLite file."""

    # Neither tables nor changes.
    holds_tables: ClassVar[None] = None
    takes_documents: ClassVar[bool] = True

    type: Literal["sqlite"] = Field(description="Documents in one SQLite file, with full-text search.")
    path: LocalPath = Field(description="The file, relative to the configuration file's directory.")
    remember_deletes: Duration = Field(
        default=7 * 86_400.0,
        gt=0,
        validate_default=False,
        description="How long a deleted document's version is kept, so that no late writer brings it back.",
    )


class OpenSearchSink(Section):
    """Documents in indexes of OpenSearch or Elasticsearch."""

    # Neither tables nor changes.
    holds_tables: ClassVar[None] = None
    takes_documents: ClassVar[bool] = True

    type: Literal["opensearch"] = Field(description="Documents in indexes of OpenSearch or Elasticsearch.")
    url: Url = Field(description="The cluster: an `http:` or `https:` URL of a node or a balancer.")
    username: str | None = Field(default=None, description="Who asks, with `password`.")
    password: SecretString | None = Field(
        default=None, description="The user's password. It is never shown, and must be a reference."
    )
    api_key: SecretString | None = Field(
        default=None,
        description="An API key, as the cluster gave it, in place of a user. It is never shown, and must be a"
        " reference.",
    )
    aws_region: str | None = Field(
        default=None,
        description="Sign requests for this region of AWS, with the credentials of the environment.",
    )
    ca_file: LocalPath | None = Field(
        default=None, description="The certificates to trust instead of the system's."
    )
    verify: StrictBool = Field(default=True, description="Whether the server's certificate is verified.")
    client_cert: LocalPath | None = Field(
        default=None, description="The certificate that this client shows, with its key or beside it."
    )
    client_key: LocalPath | None = Field(default=None, description="The key of `client_cert`.")
    timeout: Duration = Field(
        default=60.0, gt=0, validate_default=False, description="How long one request may take."
    )
    bulk_bytes: Size = Field(default=8 * 1024**2, description="A request of documents is cut at this size.")
    bulk_actions: Count = Field(
        default=5_000, ge=1, description="A request of documents has at most so many of them."
    )
    parallel: Count = Field(
        default=2, ge=1, le=64, description="So many requests at a time, of each process that writes."
    )
    gzip: StrictBool = Field(default=False, description="Whether requests are compressed.")
    pipeline: str | None = Field(
        default=None, description="An ingest pipeline of the cluster that documents go through."
    )
    keep: Count = Field(
        default=1,
        ge=0,
        description="So many complete generations of an index are kept after another took their place.",
    )
    remember_deletes: Duration = Field(
        default=3_600.0,
        gt=0,
        validate_default=False,
        description="How long the cluster keeps a deleted document's version, so that no late writer brings"
        " it back.",
    )
    analysis: Literal["builtin", "icu"] = Field(
        default="builtin",
        description="How texts are cut into words: by what every cluster has, or by the plugin"
        " `analysis-icu`, which knows all scripts.",
    )
    shards: Count = Field(default=1, ge=1, description="Primary shards of an index that is filled.")
    replicas: Count = Field(default=1, ge=0, description="Copies of each shard of an index that is filled.")
    settings: dict[str, str | int | float | bool] = Field(
        default_factory=dict,
        description='Other settings of indexes that are filled: `{ "refresh_interval" = "5s" }`.',
    )

    @field_validator("url")
    @classmethod
    def _is_http(cls, value: str) -> str:
        parts = urlsplit(_http_url(value))
        if parts.username is not None or parts.query or parts.fragment:
            raise Wrong(
                "must be a URL without user, parameters and fragment",
                'username = "…" and password = { env = "…" }',
            )
        return value

    @field_validator("settings", mode="before")
    @classmethod
    def _flatten(cls, value: Any) -> Any:
        return flatten(value)

    @model_validator(mode="after")
    def _one_identity(self) -> OpenSearchSink:
        ways = [self.username, self.api_key, self.aws_region]
        if sum(way is not None for way in ways) > 1:
            raise ValueError("has several of `username`, `api_key` and `aws_region`, and needs one")
        if self.password is not None and self.username is None:
            raise ValueError("has a `password` and no `username`")
        if self.client_key is not None and self.client_cert is None:
            raise ValueError("has a `client_key` and no `client_cert`")
        return self


def _http_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        parts.port  # noqa: B018 (raises where the port is no number)
    except ValueError:
        raise ValueError("must be a URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an `http:` or `https:` URL with a host")
    return value


Sink = Annotated[DeltaSink | StdoutSink | HttpSink | SqliteSink | OpenSearchSink, Field(discriminator="type")]

"""The sinks a configuration can name, told apart by `type`."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from tailrace.config.values import Duration, LocalPath, PathOrUri, SecretString, Size, Url

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
        try:
            parts = urlsplit(value)
            parts.port  # noqa: B018 (raises where the port is no number)
        except ValueError:
            raise ValueError("must be a URL") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must be an `http:` or `https:` URL with a host")
        return value

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


Sink = Annotated[DeltaSink | StdoutSink | HttpSink | SqliteSink, Field(discriminator="type")]

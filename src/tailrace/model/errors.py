"""Every error Tailrace raises, in one tree that branches by what to do about it.

    TailraceError
    ├── ConfigError            fix the file, the option or the command line
    ├── UsageError             fix the calling code (started twice, a token spent twice)
    ├── Transient              nobody needs to act: retried with backoff
    ├── NeedsOperator          a person must act; `remedy` is the exact command or SQL
    │   ├── SetupMissing         triggers, publication or slot are not there
    │   ├── SchemaDrift          the table is no longer what setup saw
    │   ├── LogLost              the source no longer has what we must read next
    │   ├── IdentityMismatch     another database answers, or an older copy of it
    │   ├── StateUnreadable      a state file is damaged, newer, or cannot be read
    │   ├── StateOwned           another process owns the state directory
    │   └── Fenced               another process took over while this one was frozen
    └── DataError              a value or row cannot be carried: stop or quarantine, by policy

A message names places (file, table, column, position), never a secret and never a row's values. Every
error pickles, and survives the way through Spark's JVM as one line of JSON (`to_line`, `find`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

Action = Literal["fix", "retry", "operator", "data"]


class TailraceError(Exception):
    """The root. `message` says what happened, `remedy` what to do, `place` where."""

    exit_code = 1

    def __init__(self, message: str, *, remedy: str | None = None, place: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.place = place

    def __str__(self) -> str:
        text = f"{self.place}: {self.message}" if self.place else self.message
        return f"{text}\n  remedy: {self.remedy}" if self.remedy else text

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self).__name__, self.message, self.remedy, self.place))


class ConfigError(TailraceError):
    """The configuration, an option or a command line argument is wrong."""

    exit_code = 2


class UsageError(TailraceError):
    """The calling code broke a contract; nothing was changed."""

    exit_code = 2


class Transient(TailraceError):
    """A passing fault: the same call may succeed later."""

    exit_code = 4


class NeedsOperator(TailraceError):
    """Going on would be unsafe until a person has acted."""

    exit_code = 3


class SetupMissing(NeedsOperator):
    """What capture needs in the source is not there."""


class SchemaDrift(NeedsOperator):
    """A captured table is no longer what setup saw."""


class LogLost(NeedsOperator):
    """The source no longer holds changes that were not delivered yet."""

    # What heals every loss: the tables are read again, and the log is followed from there.
    ANEW = "tailrace run --on-data-loss snapshot (Spark: failOnDataLoss=false), which reads the tables anew"


class IdentityMismatch(NeedsOperator):
    """The source is another one than the state belongs to."""


class StateUnreadable(NeedsOperator):
    """State exists and cannot be trusted."""


class StateOwned(NeedsOperator):
    """Another living process owns the state directory."""


class Fenced(NeedsOperator):
    """Ownership of the state directory was lost to another process."""


class DataError(TailraceError):
    """A value or row that cannot be carried as configured."""

    exit_code = 5


_CLASSES: dict[str, type[TailraceError]] = {
    cls.__name__: cls
    for cls in (
        TailraceError,
        ConfigError,
        UsageError,
        Transient,
        NeedsOperator,
        SetupMissing,
        SchemaDrift,
        LogLost,
        IdentityMismatch,
        StateUnreadable,
        StateOwned,
        Fenced,
        DataError,
    )
}


def _rebuild(name: str, message: str, remedy: str | None, place: str | None) -> TailraceError:
    return _CLASSES.get(name, TailraceError)(message, remedy=remedy, place=place)


@dataclass(frozen=True)
class Policy:
    """What to do about an error: retry it or not, how to leave the process, and a sentence that says so."""

    action: Action
    retry: bool
    exit_code: int
    sentence: str


def policy(error: BaseException) -> Policy:
    """The one place that decides what an error means for a running pipeline."""
    if isinstance(error, Transient):
        return Policy("retry", True, error.exit_code, "A passing fault: Tailrace retries with backoff.")
    if isinstance(error, ConfigError | UsageError):
        return Policy("fix", False, error.exit_code, "Fix the configuration or the call, then start again.")
    if isinstance(error, NeedsOperator):
        return Policy("operator", False, error.exit_code, "Stopped: a person must act before it can go on.")
    if isinstance(error, DataError):
        return Policy("data", False, error.exit_code, "A value cannot be carried as configured.")
    return Policy("operator", False, 1, "Stopped by an unexpected error.")


_MARK = "tailrace-error:"


def to_line(error: TailraceError) -> str:
    """One line that `find` recognises in any text, for errors that cross a process as text."""
    body = {
        "type": type(error).__name__,
        "message": error.message,
        "remedy": error.remedy,
        "place": error.place,
    }
    return _MARK + json.dumps(body, ensure_ascii=True)


def find(text: str) -> TailraceError | None:
    """The last Tailrace error that `to_line` wrote into this text, if there is one."""
    at = text.rfind(_MARK)
    if at < 0:
        return None
    try:
        body, _ = json.JSONDecoder().raw_decode(text[at + len(_MARK) :])
        return _rebuild(str(body["type"]), str(body["message"]), body["remedy"], body["place"])
    except (ValueError, KeyError, TypeError):
        return None

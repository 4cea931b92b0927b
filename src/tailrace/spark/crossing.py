"""Errors on their way through the JVM.

Spark turns an exception of a Python worker into text inside a Java exception. Every method of the source that
Spark calls is wrapped so that a Tailrace error becomes one line that `find` recognises; `cause` gives the
user's side the error back, with its type and remedy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from tailrace.model.errors import TailraceError, find, to_line

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class TailraceSourceError(RuntimeError):
    """A Tailrace error as text: what Spark shows, and the line that gives it back."""

    def __init__(self, error: TailraceError) -> None:
        super().__init__(f"{error}\n{to_line(error)}")


def crossing(method: Callable[P, R]) -> Callable[P, R]:
    """Wrap a method that Spark calls."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except TailraceError as error:
            raise TailraceSourceError(error) from None

    return call


def crossing_items(items: Iterator[T]) -> Iterator[T]:
    """The same for an iterator that Spark consumes."""
    try:
        yield from items
    except TailraceError as error:
        raise TailraceSourceError(error) from None


def cause(error: BaseException) -> TailraceError | None:
    """The Tailrace error behind an exception of Spark, or None if there is none.

    >>> try:
    ...     query.awaitTermination()
    ... except Exception as error:
    ...     print(tailrace.cause(error) or error)
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, TailraceError):
            return seen
        if (found := find(str(seen))) is not None:
            return found
        seen = seen.__cause__ or seen.__context__
    return None

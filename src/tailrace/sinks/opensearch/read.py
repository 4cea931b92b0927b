"""Every document of a place, page after page, with its version."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.model.errors import TailraceError
from tailrace.sinks.opensearch.client import STRANGE, Again, Client, Patience, inner

# How long the server keeps its place between two pages.
_KEEP = "5m"
_DECODER = json.JSONDecoder()


class Lost(Exception):
    """A page did not arrive, and cannot be asked for again: all of it must be read anew."""

    def __init__(self, fault: Again) -> None:
        super().__init__(fault.reason)
        self.fault = fault


@dataclass(frozen=True)
class Hit:
    """A document as the index has it: the text that was written."""

    id: str
    version: int
    document: str


def scan(client: Client, patience: Patience, place: str, *, page: int, texts: bool) -> Iterator[list[Hit]]:
    """The documents of one moment, in no order. Without `texts` the documents themselves stay there.

    Lost where it broke off: whoever reads begins anew.
    """
    body = {"size": page, "version": True, "_source": texts, "sort": ["_doc"]}
    answer = client.ask(patience, "POST", f"/{place}/_search", body, params={"scroll": _KEEP}, shape=_hits)
    scroll = ""
    try:
        while True:
            scroll, hits = _page(answer.body)
            if not hits:
                return
            yield hits
            # Not repeated: the server has gone on to the next page, though its answer was lost.
            again = json.dumps({"scroll": _KEEP, "scroll_id": scroll}).encode()
            turned = client.once("POST", "/_search/scroll", again)
            if isinstance(turned, Again):
                raise Lost(turned)
            if turned.status >= 300:
                raise Lost(Again(f"a page of documents was refused with status {turned.status}"))
            answer = turned
    finally:
        if scroll:
            # Once, whatever comes of it: the server forgets it by itself, and an error before says more.
            with contextlib.suppress(TailraceError):
                client.once("DELETE", "/_search/scroll", json.dumps({"scroll_id": scroll}).encode())


def _hits(said: Mapping[str, Any]) -> bool:
    return isinstance(said.get("_scroll_id"), str) and isinstance(inner(said, "hits").get("hits"), list)


def _page(body: bytes) -> tuple[str, list[Hit]]:
    """The page of an answer; Lost where it is none."""
    try:
        text = body.decode()
        if not text.startswith("{"):
            raise Lost(STRANGE)
        return _read(text)
    except (ValueError, LookupError, TypeError, AttributeError):
        # It is parsed by its places: something else than a page can be wrong in any of these ways.
        raise Lost(STRANGE) from None


def _read(text: str) -> tuple[str, list[Hit]]:
    """The scroll's id and the hits. Documents are cut out of the answer as they are, to the letter."""
    found = dict(_members(text, 0))
    shards = json.loads(_cut(text, found["_shards"]))
    # A shard that no node has is none of those that failed.
    if shards.get("failed") or shards["successful"] != shards["total"]:
        raise Lost(Again("some shards of the index could not be read"))
    scroll = json.loads(_cut(text, found["_scroll_id"]))
    inner = dict(_members(text, found["hits"][0]))
    return scroll, [_hit(text, at) for at in _elements(text, inner["hits"][0])]


def _hit(text: str, at: int) -> Hit:
    parts = dict(_members(text, at))
    source = parts.get("_source")
    return Hit(
        json.loads(_cut(text, parts["_id"])),
        int(_cut(text, parts["_version"])),
        _cut(text, source) if source is not None else "",
    )


def _cut(text: str, where: tuple[int, int]) -> str:
    return text[where[0] : where[1]]


def _members(text: str, at: int) -> Iterator[tuple[str, tuple[int, int]]]:
    """The members of the object that begins at a place: each key, and from where to where its value is."""
    at = _skip(text, at + 1)
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)
        _, end = _DECODER.raw_decode(text, start)
        yield key, (start, end)
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _elements(text: str, at: int) -> Iterator[int]:
    """Where the elements of the array begin that begins at a place."""
    at = _skip(text, at + 1)
    while text[at] != "]":
        yield at
        _, end = _DECODER.raw_decode(text, at)
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at

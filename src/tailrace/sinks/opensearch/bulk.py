"""Items sent to a generation, round after round, until each is written, deleted, stale or rejected.

A round sends what is left, several requests at a time. What failed as a whole, and what the server had no
room for one by one, is left for the next, after a wait; a request that is too large comes again in two
halves.
Versions make an item harmless that was applied though its answer was lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tailrace.model.errors import NeedsOperator
from tailrace.sinks.contract import DocumentReport, Rejection
from tailrace.sinks.opensearch.client import (
    BLOCKED,
    CLOSED,
    LINES,
    RIGHTS,
    Again,
    Answer,
    Client,
    Patience,
    blocked,
    closed,
    inner,
)
from tailrace.sinks.opensearch.encode import Items, Piece, pieces, some

# A shard that is not there yet is told of before the request itself takes too long.
_SHARE_OF_TIMEOUT = 0.5
_FIELDS = "errors,items.*.status,items.*.error"
_RETRYABLE = frozenset(
    {
        "es_rejected_execution_exception",
        "opensearch_rejected_execution_exception",
        "rejected_execution_exception",
        "circuit_breaking_exception",
        "unavailable_shards_exception",
        "no_shard_available_action_exception",
        "node_closed_exception",
        "process_cluster_event_timeout_exception",
        "shard_not_in_primary_mode_exception",
        "alreadyclosed_exception",
        "already_closed_exception",
        "index_primary_shard_not_allocated_exception",
    }
)
# Somebody's ingest pipeline or script refuses the document, whatever status it chose.
_REFUSING = re.compile(r"processor|script|ingest")
_OF_FIELD = re.compile(r"field \[([^\]\n]{1,200})\](?: of type \[([a-z_]{1,40})\])?")
_OF_TERM = re.compile(r'immense term in field="([^"\n]{1,200})"')
_STRICT = re.compile(r"dynamic introduction of \[([^\]\n]{1,200})\](?: within \[([^\]\n]{1,200})\])?")
# At the beginning alone: further on may be a value.
_OF_OBJECT = re.compile(
    r"(?:object mapping for|can't merge a non object mapping"
    r"|Could not dynamically add mapping for field \[[^\]\n]{1,200}\]\. Existing mapping for)"
    r" \[([^\]\n]{1,200})\]"
)
_NAMELESS = re.compile(r"field name cannot (?:be an empty string|contain only)")
_TWO_INDEXES = "no write index is defined for alias"
_NO_PIPELINE = re.compile(r"^pipeline with id \[[^\]]*\] does not exist")


class Gone(Exception):
    """The generation is not there, or takes no documents any more."""


@dataclass
class Tally:
    """What became of the items so far."""

    written: int = 0
    deleted: int = 0
    stale: int = 0
    rejected: dict[int, str] = field(default_factory=dict)
    # Of these the answer to a request with nothing else in it, which was refused as a whole.
    refused: dict[int, Answer] = field(default_factory=dict)

    def report(self, items: Items) -> DocumentReport:
        """The same as the contract has it."""
        named = tuple(Rejection(items.ids[row].as_py(), why) for row, why in sorted(self.rejected.items()))
        return DocumentReport(self.written, self.deleted, self.stale, named)


class Bulk:
    """Sends items to the places of one cluster, with the threads of one sink."""

    def __init__(self, client: Client, patience: Patience, threads: ThreadPoolExecutor | None) -> None:
        self._client, self._patience, self._threads = client, patience, threads
        config = client.config
        self._limits = {
            "max_bytes": config.bulk_bytes,
            "max_items": config.bulk_actions,
            "parallel": config.parallel,
        }
        self._params = {
            "require_alias": "true",
            "filter_path": _FIELDS,
            "timeout": f"{max(1, round(config.timeout * _SHARE_OF_TIMEOUT))}s",
        }
        if config.pipeline is not None:
            self._params["pipeline"] = config.pipeline

    def send(self, alias: str, items: Items) -> Tally:
        """All items to the generation behind an alias; Gone where there is none."""
        tally, whole = Tally(), pieces(items, **self._limits)
        todo = whole
        while todo:
            left: list[Piece] = []
            faults: list[Again] = []
            for piece, answer in zip(todo, self._posted(alias, todo), strict=True):
                if isinstance(answer, Again):
                    left.append(piece)
                    faults.append(answer)
                    continue
                more, fault = self._settled(piece, answer, items, tally)
                left += more
                if fault is not None:
                    faults.append(fault)
                if len(more) != 1 or len(more[0].rows) < len(piece.rows):
                    self._patience.advance()
            if faults:
                self._patience.pause(max(faults, key=lambda fault: (fault.after or 0.0, fault.remedy or "")))
            todo = left
        for piece in whole if tally.refused else ():
            # Not one of them alone is to blame: it is the request that the server does not take.
            if all(row in tally.refused for row in piece.rows.tolist()):
                raise self._client.refusal(next(iter(tally.refused.values())), "a bulk request", words=False)
        return tally

    def _posted(self, alias: str, todo: list[Piece]) -> list[Answer | Again]:
        """The answers, in the order of the pieces; an error is raised when all of them are done."""
        if self._threads is None or len(todo) == 1:
            return [self._post(alias, piece) for piece in todo]
        futures = [self._threads.submit(self._post, alias, piece) for piece in todo]
        wait(futures)
        return [future.result() for future in futures]

    def _post(self, alias: str, piece: Piece) -> Answer | Again:
        return self._client.once("POST", f"/{alias}/_bulk", piece.body, params=self._params, kind=LINES)

    def _settled(
        self, piece: Piece, answer: Answer, items: Items, tally: Tally
    ) -> tuple[list[Piece], Again | None]:
        """Count what is done; what must be sent again, and why it must wait."""
        if answer.status == 404:
            raise Gone
        if answer.status >= 300:
            return self._halved(piece, answer, items, tally), None
        # The answer of a request that went well is not even parsed.
        if answer.body[:64].replace(b" ", b"").startswith(b'{"errors":false'):
            deleted = int(items.deletes[piece.rows].sum())
            tally.deleted += deleted
            tally.written += len(piece.rows) - deleted
            return [], None
        results = _outcomes(answer, len(piece.rows))
        if results is None:
            return [piece], Again("an answer without the result of every item")
        again, fault = self._items(piece.rows, results, items, tally)
        return ([some(items, again)], fault) if again else ([], None)

    def _items(
        self, rows: np.ndarray, results: Iterable[dict[str, Any]], items: Items, tally: Tally
    ) -> tuple[list[int], Again | None]:
        again: list[int] = []
        fault: Again | None = None
        for row, outcome in zip(rows.tolist(), results, strict=True):
            error, status = inner(outcome, "error"), outcome["status"]
            # A delete of what is not there has no error and the status 404.
            if not error and (status < 300 or (status == 404 and items.deletes[row])):
                if items.deletes[row]:
                    tally.deleted += 1
                else:
                    tally.written += 1
                continue
            kind, words = str(error.get("type", "")), str(error.get("reason", ""))
            self._stop(error, kind, words, status)
            if kind == "version_conflict_engine_exception" or status == 409:
                tally.stale += 1
            elif kind == BLOCKED:
                again.append(row)
                fault = blocked(words)
            elif kind in _RETRYABLE or status == 429 or (status >= 500 and not _REFUSING.search(kind)):
                again.append(row)
                fault = fault or Again(f"some documents were answered with status {status}, {kind}")
            else:
                tally.rejected[row] = reason(error)
        return again, fault

    def _stop(self, error: Mapping[str, Any], kind: str, words: str, status: int) -> None:
        """Raise where an item's error is none of its document: another would be answered alike."""
        if kind == "index_not_found_exception":
            raise Gone
        if kind == CLOSED:
            raise closed(self._client.place, error)
        if _NO_PIPELINE.match(words):
            raise NeedsOperator(
                "the ingest pipeline of the sink does not exist",
                remedy="create it in the cluster, or correct `pipeline` of the sink",
                place=self._client.place,
            )
        if _TWO_INDEXES in words:
            raise NeedsOperator(
                "several indexes are behind the alias that a generation is written by",
                remedy="a backup that was restored by another name brings it along: remove that index, or"
                " take its aliases away",
                place=self._client.place,
            )
        if kind == "security_exception":
            raise NeedsOperator(
                f"the server does not permit to write (status {status})",
                remedy=RIGHTS,
                place=self._client.place,
            )

    def _halved(self, piece: Piece, answer: Answer, items: Items, tally: Tally) -> list[Piece]:
        """A request that was refused as a whole, in two: too large, or something in it is not understood."""
        if answer.status not in (400, 413):
            raise self._client.refusal(answer, "a bulk request", words=False)
        if len(piece.rows) == 1:
            if answer.status == 400:
                tally.refused[int(piece.rows[0])] = answer
            tally.rejected[int(piece.rows[0])] = (
                "it is larger than the server takes in a request"
                if answer.status == 413
                else f"the server refused the request with it: {answer.error[0] or 'status 400'}"
            )
            return []
        half = len(piece.rows) // 2
        return [some(items, piece.rows[:half]), some(items, piece.rows[half:])]


def _outcomes(answer: Answer, expected: int) -> list[dict[str, Any]] | None:
    """What became of each item, each with a status; None where the answer does not say it of all."""
    results = answer.json.get("items") if isinstance(answer.json, dict) else None
    if not isinstance(results, list) or len(results) != expected:
        return None
    found = [next(iter(one.values()), None) if isinstance(one, dict) else None for one in results]
    said = [one for one in found if isinstance(one, dict) and isinstance(one.get("status"), int)]
    return said if len(said) == expected else None


def reason(error: Mapping[str, Any]) -> str:
    """Why a document was refused: kinds of errors, and the field, but no word of the document's values."""
    kinds: list[str] = []
    places: list[str] = []
    step: Any = error
    while isinstance(step, dict) and len(kinds) < 4:
        kind, words = str(step.get("type", "")), str(step.get("reason", ""))
        kinds.append(kind)
        if found := _STRICT.search(words):
            within = found[2] if found[2] not in (None, "_doc") else ""
            places.append(f"field {within + '.' if within else ''}{found[1]} is not in the mapping")
        elif found := _OF_TERM.search(words):
            places.append(f"field {found[1]} has a value longer than 32,766 bytes")
        elif found := _OF_OBJECT.match(words):
            places.append(f"field {found[1]} is an object in one place and a value in another")
        elif _NAMELESS.match(words):
            places.append("a key is empty, or nothing but dots")
        elif found := _OF_FIELD.search(words):
            places.append(f"field {found[1]}{f' of type {found[2]}' if found[2] else ''}")
        step = step.get("caused_by")
    shown = ", ".join(dict.fromkeys(kind for kind in kinds if kind)) or "refused"
    return f"{shown}: {places[0]}" if places else shown

"""The generations of an index in the cluster: made, shown to readers, kept for a while, removed.

    customers                        the alias that readers use; one complete generation has it, or none
    customers_<hash>_<generation>    a generation: an index of its own
    customers_<generation>           a hidden alias, by which a generation is written while it may be

What is to be known of a generation stands in the `_meta` of its own mapping, so it cannot outlive it: which
index it is of, what it was made for, and, once it is complete, its marker. One that has a marker and no alias
to be written by was shown before another one took its place.

**Every step is one change of the cluster's state,** and the next is decided from what is found there. To
publish, first the marker is written to the new generation, of which nobody reads it as long as it is not
shown; then one step takes the read alias from the old ones and gives it to the new one, and takes the write
aliases of the old ones away. Whatever fails between leaves the old one shown and complete. Before the first
is published there is no alias: a search fails, where it would find too little.

An index is written by its alias, and requests require that it is one, so no late writer can make an index of
that name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.model.errors import ConfigError, NeedsOperator, Transient
from tailrace.sinks.contract import Marker
from tailrace.sinks.opensearch.client import Again, Client, Patience, inner
from tailrace.sinks.opensearch.mapping import canonical, index_body

# What nobody sees need not be refreshed.
FILLING = "-1"
_FORBIDDEN = re.compile(r'[A-Z\\/*?"<>|\s,#:]')
_LONGEST = 255
# More changes of the cluster's state than any call needs, however often it is disturbed.
_STEPS = 20
_SILENT = Again(
    "some shards of the index do not answer",
    remedy="if it stays so: GET /_cluster/allocation/explain says why a shard is on no node",
)
_PARTS = {"aliases", "mappings", "settings"}
_LOOK = {
    "ignore_unavailable": "true",
    "allow_no_indices": "true",
    "expand_wildcards": "all",
    "filter_path": "*.aliases,*.mappings._meta.tailrace,*.settings.index.uuid,*.settings.index.history.uuid,"
    "*.settings.index.creation_date",
}


class Missing(Exception):
    """There is no such generation, or it takes no documents any more."""


@dataclass(frozen=True)
class Generation:
    """One generation, as it was found. `marker` is None until it is complete.

    `own` says that it is the very index that was made, and not a copy of it or one restored from a backup;
    None where it was made and nobody wrote down yet which one it is.
    """

    place: str
    name: str
    hash: str
    mapping: Mapping[str, Any]
    marker: Marker | None
    created: int
    writable: bool
    shown: bool
    own: bool | None = None


@dataclass(frozen=True)
class Found:
    """What the cluster has of an index. `foreign` stands in its way and is not Tailrace's."""

    generations: tuple[Generation, ...] = ()
    foreign: str | None = None

    @property
    def shown(self) -> Generation | None:
        """What readers see, where that is one thing."""
        found = [one for one in self.generations if one.shown]
        return found[0] if len(found) == 1 and self.foreign is None else None

    @property
    def first(self) -> Generation | None:
        """What is filled, or complete and not shown yet, where readers see nothing."""
        found = [one for one in self.generations if one.writable]
        return found[0] if len(found) == 1 and not any(one.shown for one in self.generations) else None

    def writable(self, name: str) -> Generation | None:
        """The generation of that name, where it can be written."""
        return next((one for one in self.generations if one.name == name and one.writable and one.own), None)

    def past(self, *names: str) -> list[Generation]:
        """Those that were shown before, the youngest first."""
        old = [
            one
            for one in self.generations
            if one.marker is not None and not one.writable and not one.shown and one.place not in names
        ]
        return sorted(old, key=lambda one: -one.created)


def check_name(index: str) -> None:
    """ConfigError where OpenSearch takes no index of that name, with what is put after it."""
    wrong = _FORBIDDEN.search(index)
    if not index or wrong or index != index.lower() or index[0] in "_-+." or len(index.encode()) > 180:
        raise ConfigError(
            f"OpenSearch takes no index of the name {index}",
            remedy="name and prefix of an index have lower-case letters, digits, `_`, `-` and `.`, do not"
            " begin with `_`, `-` or `.`, and have at most 180 characters together",
            place=f"index {index}",
        )


def write_alias(index: str, generation: str) -> str:
    """The name by which a generation is written."""
    return f"{index}_{generation}"


class Generations:
    """The generations of all indexes of one cluster, as one sink sees and changes them."""

    def __init__(self, client: Client, patience: Patience) -> None:
        self._client, self._patience, self._config = client, patience, client.config

    def form(self, mapping: Mapping[str, Any]) -> str:
        """A hash of everything that decides how documents of this mapping are stored."""
        text = "\n".join([self._config.pipeline or "", canonical(self._body(mapping))])
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def fits(self, generation: Generation) -> bool:
        """Whether it is stored as it would be now, by these settings and this version of Tailrace."""
        try:
            return generation.hash == self.form(generation.mapping)
        except (ConfigError, LookupError, TypeError, AttributeError, ValueError):
            # What somebody made of it, or a later version of Tailrace.
            return False

    def find(self, index: str) -> Found:
        """What there is, at one moment."""
        answer = self._client.ask(
            self._patience, "GET", f"/{index},{index}_*", params=_LOOK, allow=(404,), shape=_indexes
        )
        if answer.status == 404:
            return Found()
        found: list[Generation] = []
        foreign: str | None = None
        for place, body in answer.json.items():
            aliases, settings = inner(body, "aliases"), inner(body, "settings", "index")
            about = inner(body, "mappings", "_meta", "tailrace")
            if place == index:
                foreign = "an index has the name of the alias, which would be in its way"
            elif place != _place(index, about):
                if index in aliases:
                    foreign = f"the alias leads to {place}, which Tailrace has not made"
            else:
                found.append(_generation(place, about, aliases, settings))
        return Found(tuple(found), foreign)

    def ensure(self, index: str, generation: str, mapping: Mapping[str, Any]) -> None:
        """Make sure of a generation, and that readers see it if it is complete and they see no other."""
        check_name(index)
        check_name(generation)
        form = self.form(mapping)
        place = f"{index}_{form}_{generation}"
        if len(place.encode()) > _LONGEST:
            raise ConfigError(
                f"the name {place} is longer than OpenSearch takes", remedy="give the index a shorter name"
            )
        for _ in range(_STEPS):
            found = self.find(index)
            self.refuse(index, found)
            shown = [one for one in found.generations if one.shown]
            mine = next((one for one in found.generations if one.place == place), None)
            if mine is None:
                self._create(index, generation, place, form, mapping)
                continue
            if mine.own is None:
                # Nothing was written to it yet.
                self._note(mine, lambda identity: {"made": identity})
                continue
            if not mine.own:
                if self.remove([mine]):
                    self._patience.pause(Again(f"{place} is a copy in the way, and cannot be removed now"))
                continue
            actions = [
                *([] if mine.writable else [_add(write_alias(index, generation), place, hidden=True)]),
                *([] if shown or mine.marker is None else [_add(index, place)]),
                # By a template of somebody's.
                *([_remove(index, place)] if mine.shown and mine.marker is None else []),
                # The same generation in another form, of before the settings changed.
                *(
                    _remove(write_alias(index, generation), one.place)
                    for one in found.generations
                    if one.name == generation and one.writable and one is not mine
                ),
            ]
            if actions:
                self._step(actions)
                continue
            self.remove(
                [
                    one
                    for one in found.generations
                    if one is not mine and not one.shown and (one.writable or one.marker is None)
                ]
                + found.past(place)[self._config.keep :]
            )
            return
        raise self._unsettled(index)

    def publish(self, index: str, marker: Marker) -> None:
        """Record the marker and show the generation. Missing where it is gone.

        Readers see it when everything that was written to it can be found.
        """
        recorded = False
        for _ in range(_STEPS):
            found = self.find(index)
            self.refuse(index, found)
            mine = found.writable(marker.generation)
            if mine is None:
                raise Missing(marker.generation)
            if not recorded:
                # A refresh would wait for a shard that no node has until the request is too old.
                while self._shards(mine.place) == 0:
                    self._patience.pause(_SILENT)
                self.refresh(mine.place)
                asked = self._body(mine.mapping)["settings"]["index"].get("refresh_interval")
                self._acknowledged("PUT", f"/{mine.place}/_settings", {"index": {"refresh_interval": asked}})
                self._record(mine, marker)
                recorded = True
                continue
            actions = [
                *([] if mine.shown else [_add(index, mine.place)]),
                *(_remove(index, one.place) for one in found.generations if one.shown and one is not mine),
                *(
                    _remove(write_alias(index, one.name), one.place)
                    for one in found.generations
                    if one.writable and one is not mine
                ),
            ]
            if actions:
                self._step(actions)
                continue
            self.remove(
                [one for one in found.generations if one is not mine and one.marker is None]
                + found.past(mine.place)[self._config.keep :]
            )
            return
        raise self._unsettled(index)

    def refresh(self, place: str) -> bool:
        """Let readers find everything that was written so far. False where there is no such place.

        One copy at least of every shard must have done it. To the server a shard without any has not failed.
        """
        while True:
            answer = self._client.ask(
                self._patience, "POST", f"/{place}/_refresh", allow=(404,), shape=_of_shards
            )
            if answer.status == 404:
                return False
            said = answer.json["_shards"]
            if not said["failed"]:
                if 0 < said["total"] == said["successful"]:
                    return True
                # Some copy is nowhere. That is a failure where it is the only one of its shard.
                shards = self._shards(place)
                if shards and shards <= said["successful"]:
                    return True
            self._patience.pause(_SILENT)

    def _shards(self, place: str) -> int | None:
        """Of how many shards it is, where each of them answers a search; 0 where one does not."""
        answer = self._client.ask(self._patience, "GET", f"/{place}/_count", allow=(404,), shape=_of_shards)
        if answer.status == 404:
            return None
        said = answer.json["_shards"]
        return int(said["total"]) if said["total"] == said["successful"] and not said["failed"] else 0

    def remove(self, generations: Sequence[Generation]) -> list[str]:
        """Remove generations that nobody is to see any more. Those that cannot be now, for another time.

        A backup is being made of one, perhaps, or somebody has made it read-only.
        """
        left: list[str] = []
        for one in generations:
            answer = self._client.once("DELETE", f"/{one.place}", params={"ignore_unavailable": "true"})
            if isinstance(answer, Again) or answer.status not in (200, 404):
                left.append(one.place)
        return left

    def _unsettled(self, index: str) -> Transient:
        return Transient(
            f"index {index}: somebody else changes its aliases too",
            remedy=f"if it stays so: find out who else changes the aliases of {index} and {index}_*",
            place=self._client.place,
        )

    def refuse(self, index: str, found: Found) -> None:
        """NeedsOperator where something that is not Tailrace's stands in the way."""
        if found.foreign is not None:
            raise NeedsOperator(
                f"index {index}: {found.foreign}",
                remedy=f"remove it if nobody needs it (DELETE /{index}, or the alias alone), or let the"
                " configuration's `prefix` or the index's `name` be another one",
                place=self._client.place,
            )

    def _body(self, mapping: Mapping[str, Any]) -> dict[str, Any]:
        config = self._config
        return index_body(
            mapping,
            analysis=config.analysis,
            shards=config.shards,
            replicas=config.replicas,
            settings=config.settings,
        )

    def _create(
        self,
        index: str,
        generation: str,
        place: str,
        form: str,
        mapping: Mapping[str, Any],
    ) -> None:
        body = self._body(mapping)
        settings = body["settings"]["index"]
        settings["refresh_interval"] = FILLING
        settings.setdefault("gc_deletes", f"{max(1, round(self._config.remember_deletes))}s")
        about = {"index": index, "generation": generation, "hash": form, "mapping": dict(mapping)}
        body["mappings"]["_meta"] = {**body["mappings"].get("_meta", {}), "tailrace": about}
        body["aliases"] = {write_alias(index, generation): {"is_hidden": True}}
        answer = self._client.ask(self._patience, "PUT", f"/{place}", body, allow=(400,), shape=_told)
        kind, words = answer.error
        if answer.status == 400 and kind != "resource_already_exists_exception":
            raise ConfigError(
                f"index {index}: OpenSearch refuses its mapping or settings, {kind}: {words}",
                remedy="correct the options of its fields in the index schema, or the settings of the sink",
                place=self._client.place,
            )

    def _record(self, mine: Generation, marker: Marker) -> None:
        """Write the marker, with which index it is true of: a copy or a restored one has another identity."""
        self._note(mine, lambda identity: {"marker": vars(marker), "complete": identity})

    def _note(self, mine: Generation, said: Callable[[str], Mapping[str, Any]]) -> None:
        """Write something down about a generation, by its identity. Missing where it is gone."""
        answer = self._client.ask(
            self._patience,
            "GET",
            f"/{mine.place}",
            params={
                "filter_path": "*.mappings._meta,*.settings.index.uuid,*.settings.index.history.uuid",
            },
            allow=(404,),
            shape=lambda said: "uuid" in inner(said, mine.place, "settings", "index"),
        )
        if answer.status == 404:
            raise Missing(mine.name)
        meta = inner(answer.json, mine.place, "mappings", "_meta")
        identity = _identity(inner(answer.json, mine.place, "settings", "index"))
        about = {**inner(meta, "tailrace"), **said(identity)}
        self._acknowledged("PUT", f"/{mine.place}/_mapping", {"_meta": {**meta, "tailrace": about}})

    def _step(self, actions: Sequence[Mapping[str, Any]]) -> None:
        """Change aliases, all of these at once. What is not so any more is found out by the next look."""
        answer = self._client.ask(
            self._patience, "POST", "/_aliases", {"actions": list(actions)}, allow=(404,), shape=_told
        )
        if answer.status == 404 or not answer.json.get("acknowledged"):
            self._patience.pause(Again("the aliases were changed by somebody else, or not everywhere yet"))

    def _acknowledged(self, method: str, path: str, body: Mapping[str, Any]) -> None:
        while not self._client.ask(self._patience, method, path, body, shape=_told).json["acknowledged"]:
            self._patience.pause(Again("the cluster did not take over a change everywhere in time"))


def _indexes(said: Mapping[str, Any]) -> bool:
    """Whether an answer is about indexes, or there is none."""
    return all(isinstance(one, dict) and one.keys() & _PARTS for one in said.values())


def _told(said: Mapping[str, Any]) -> bool:
    """Whether an answer says that a change was taken over, or was not."""
    return isinstance(said.get("acknowledged"), bool)


def _of_shards(said: Mapping[str, Any]) -> bool:
    return all(
        isinstance(inner(said, "_shards").get(name), int) for name in ("total", "successful", "failed")
    )


def _place(index: str, about: Mapping[str, Any]) -> str | None:
    """What a generation is called that says this of itself; a copy of it by another name is none."""
    if about.get("index") != index:
        return None
    return f"{index}_{about.get('hash')}_{about.get('generation')}"


def _identity(settings: Mapping[str, Any]) -> str:
    """Which index it is, and whether it was restored: over a closed one that changes its history alone."""
    return f"{settings.get('uuid')} {inner(settings, 'history').get('uuid', '')}".strip()


def _generation(
    place: str, about: Mapping[str, Any], aliases: Mapping[str, Any], settings: Mapping[str, Any]
) -> Generation:
    index, name = str(about["index"]), str(about.get("generation", ""))
    identity, made = _identity(settings), about.get("made")
    return Generation(
        place=place,
        name=name,
        hash=str(about.get("hash", "")),
        mapping=about.get("mapping", {}),
        marker=_marker(about.get("marker")) if about.get("complete") == identity else None,
        created=int(settings.get("creation_date", 0)),
        writable=write_alias(index, name) in aliases,
        shown=index in aliases,
        own=None if made is None else made == identity,
    )


def _marker(said: Any) -> Marker | None:
    """A marker as it was written; None for one that this version cannot read."""
    try:
        return Marker(**said)
    except TypeError:
        return None


def _add(alias: str, place: str, *, hidden: bool = False) -> dict[str, Any]:
    return {"add": {"alias": alias, "index": place, **({"is_hidden": True} if hidden else {})}}


def _remove(alias: str, place: str) -> dict[str, Any]:
    return {"remove": {"alias": alias, "index": place}}

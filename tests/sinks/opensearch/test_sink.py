"""Indexes of the OpenSearch sink: their names, what readers see of them, what is kept, refused and hidden."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.model.errors import ConfigError, NeedsOperator, Transient
from tailrace.model.secret import Secret
from tailrace.sinks.contract import Held
from tailrace.sinks.opensearch import Credential, OpenSearchConfig, OpenSearchSink
from tailrace.sinks.opensearch import sink as sink_module
from tailrace.sinks.opensearch.bulk import reason
from tailrace.sinks.opensearch.client import Client as ClusterClient
from tailrace.sinks.opensearch.client import Patience
from tailrace.sinks.opensearch.generations import Generations
from tests.sinks.documents import FIRST, MARKER, SECOND, batch_of, held
from tests.sinks.opensearch.sinks import MAPPING, Make, config_of
from tests.support.opensearch import Client

SECOND_MARKER = replace(MARKER, generation=SECOND)
TYPED = {
    "name": {"type": "text", "nullable": True},
    "age": {"type": "integer", "nullable": True},
    "code": {"type": "keyword", "nullable": True},
}


def fill(
    sink: OpenSearchSink, index: str, generation: str, documents: dict[str, Any], version: int = 1
) -> None:
    sink.ensure(index, generation, MAPPING)
    sink.write(batch_of(version, documents, index, generation))
    sink.flush()


def complete(sink: OpenSearchSink, index: str, generation: str, documents: dict[str, Any]) -> None:
    fill(sink, index, generation, documents)
    sink.publish(index, replace(MARKER, generation=generation))


def found(opensearch: Client, index: str) -> set[str]:
    """What a reader finds now, without asking for a refresh."""
    return set(opensearch.search(index))


def test_readers_use_an_alias_that_leads_to_one_generation_named_by_form_and_filling(
    make: Make, opensearch: Client, index: str
) -> None:
    sink = make()
    complete(sink, index, FIRST, {"a": {"n": 1}})
    (place,) = opensearch.indexes(index)
    assert place.startswith(f"{index}_")
    assert place.endswith(f"_{FIRST}")
    assert opensearch.aliases(index)[index] == [place]
    fill(sink, index, SECOND, {"b": {"n": 1}})
    assert opensearch.aliases(index)[index] == [place]
    sink.publish(index, SECOND_MARKER)
    assert opensearch.aliases(index)[index] == [place.replace(FIRST, SECOND)]


def test_readers_find_nothing_rather_than_too_little_until_the_first_filling_is_complete(
    make: Make, opensearch: Client, index: str
) -> None:
    sink = make()
    fill(sink, index, FIRST, {"a": {"n": 1}})
    sink.ensure(index, FIRST, MAPPING)
    assert index not in opensearch.aliases(index)
    assert held(sink, index) == {"a": {"n": 1}}
    assert sink.look(index) == Held()
    sink.publish(index, MARKER)
    assert found(opensearch, index) == {"a"}


def test_a_complete_generation_gets_the_alias_again_that_somebody_took_away(
    make: Make, opensearch: Client, index: str
) -> None:
    sink = make()
    complete(sink, index, FIRST, {"a": {"n": 1}})
    (place,) = opensearch.indexes(index)
    opensearch.do("POST", "/_aliases", {"actions": [{"remove": {"alias": index, "index": place}}]})
    sink.ensure(index, FIRST, MAPPING)
    assert found(opensearch, index) == {"a"}


def test_a_flush_of_a_live_index_lets_readers_find_what_was_written(
    make: Make, opensearch: Client, index: str
) -> None:
    sink = make()
    complete(sink, index, FIRST, {"a": {"n": 1}})
    assert found(opensearch, index) == {"a"}
    # Another process: an executor, which was told nothing.
    other = pickle.loads(pickle.dumps(sink))  # noqa: S301
    other.write(batch_of(2, {"b": {"n": 1}, "a": None}, index, FIRST))
    other.flush()
    assert found(opensearch, index) == {"b"}
    other.close()


def test_refreshes_rest_in_proportion_to_what_they_take(
    make: Make, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = make()
    complete(sink, index, FIRST, {})
    slept: list[float] = []
    monkeypatch.setattr(Patience, "rest", lambda _, seconds: slept.append(seconds))
    monkeypatch.setattr(sink_module, "time", SimpleNamespace(monotonic=lambda: 1_000.0))
    key = (sink._config.url, index)
    sink_module._REFRESHED[key] = (1_000.0, 0.1)
    sink.write(batch_of(2, {"a": {"n": 1}}, index, FIRST))
    sink.flush()
    sink_module._REFRESHED[key] = (1_000.0, 60.0)
    sink.write(batch_of(3, {"a": {"n": 1}}, index, FIRST))
    sink.flush()
    assert slept == [pytest.approx(0.4), pytest.approx(1.0)]


def test_a_stop_does_not_wait_for_the_rest_of_a_refresh(
    make: Make, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = make()
    complete(sink, index, FIRST, {})
    monkeypatch.setattr(sink_module, "_LONGEST_REST", 600.0)
    sink_module._REFRESHED[sink._config.url, index] = (time.monotonic(), 600.0)
    sink.write(batch_of(2, {"a": {"n": 1}}, index, FIRST))
    sink.hurry()
    begun = time.monotonic()
    sink.flush()
    assert time.monotonic() - begun < 300


@pytest.mark.parametrize(
    "other", [{"pipeline": "clean"}, {"settings": {"sort.field": "n"}}, {"analysis": "icu"}]
)
def test_the_form_of_an_index_covers_what_documents_go_through(other: dict[str, Any]) -> None:
    def form(**settings: Any) -> str:
        client = ClusterClient(config_of("http://127.0.0.1:1", **settings))
        return Generations(client, Patience(client.config, client.place)).form(MAPPING)

    assert form(**other) != form()
    passing = {
        "number_of_replicas": 2,
        "refresh_interval": "5s",
        "gc_deletes": "2h",
        "mapping.depth.limit": 30,
    }
    assert form(shards=3, settings=passing) == form()


def test_nothing_is_refreshed_for_a_filling_that_nobody_sees(
    make: Make, opensearch: Client, index: str
) -> None:
    sink = make()
    complete(sink, index, FIRST, {})
    fill(sink, index, SECOND, {"a": {"n": 1}})
    place = next(name for name in opensearch.indexes(index) if name.endswith(SECOND))
    settings = opensearch.do("GET", f"/{place}/_settings")[place]["settings"]["index"]
    assert settings["refresh_interval"] == "-1"
    assert found(opensearch, place) == set()
    sink.publish(index, SECOND_MARKER)
    assert found(opensearch, index) == {"a"}
    settings = opensearch.do("GET", f"/{place}/_settings")[place]["settings"]["index"]
    assert "refresh_interval" not in settings


def test_a_reader_that_polls_never_finds_fewer_documents_while_generations_change(
    make: Make, opensearch: Client, index: str
) -> None:
    sink = make(keep=0)
    documents = {f"{number}": {"n": number} for number in range(50)}
    complete(sink, index, FIRST, documents)
    counts: list[int] = []
    stop = threading.Event()

    def poll() -> None:
        client = Client(opensearch.url)
        while not stop.is_set():
            counts.append(client.do("GET", f"/{index}/_count")["count"])
        client.close()

    reader = threading.Thread(target=poll)
    reader.start()
    try:
        for generation in ("second", "third"):
            complete(sink, index, generation, documents)
    finally:
        stop.set()
        reader.join(60)
    assert set(counts) == {50}


@pytest.mark.parametrize("keep", [pytest.param(0, marks=pytest.mark.long), 1])
def test_so_many_complete_generations_are_kept_and_no_abandoned_ones(
    make: Make, opensearch: Client, index: str, keep: int
) -> None:
    sink = make(keep=keep)
    names = ["first", "second", "third"]
    for name in names:
        fill(sink, index, f"{name}-abandoned", {"x": {"n": 1}})
        complete(sink, index, name, {"a": {"of": name}})
    kept = [place.rpartition("_")[2] for place in opensearch.indexes(index)]
    assert sorted(kept) == sorted(names[-1 - keep :])
    assert held(sink, index) == {"a": {"of": "third"}}
    assert not sink.holds(index, "second")
    with pytest.raises(NeedsOperator, match="gone"):
        sink.write(batch_of(9, {"late": {"n": 1}}, index, "second"))


def test_what_was_deleted_beside_kept_generations_is_told_so(
    make: Make, opensearch: Client, index: str
) -> None:
    sink = make()
    complete(sink, index, FIRST, {"a": {"n": 1}})
    complete(sink, index, SECOND, {"a": {"n": 1}})
    (place,) = [name for name in opensearch.indexes(index) if name.endswith(SECOND)]
    opensearch.do("DELETE", f"/{place}")
    with pytest.raises(NeedsOperator, match="was it deleted") as error:
        sink.write(batch_of(2, {"a": {"n": 1}}, index, SECOND))
    assert "fills the index anew" in (error.value.remedy or "")
    # What is not there any more is not flushed either.
    sink.flush()


def test_a_closed_index_is_told_with_how_to_open_it(make: Make, opensearch: Client, index: str) -> None:
    sink = make()
    complete(sink, index, FIRST, {"a": {"n": 1}})
    (place,) = opensearch.indexes(index)
    opensearch.do("POST", f"/{place}/_close")
    calls: list[Callable[[], Any]] = [
        lambda: sink.write(batch_of(2, {"a": {"n": 1}}, index)),
        lambda: sink.retire(index, FIRST, 2),
        lambda: sink.look(index),
    ]
    for call in calls:
        with pytest.raises(NeedsOperator, match=f"{place} is closed") as error:
            call()
        assert f"POST /{place}/_open" in (error.value.remedy or "")
    opensearch.do("POST", f"/{place}/_open")
    assert sink.write(batch_of(2, {"a": {"n": 1}}, index)).written == 1


def test_readers_are_never_led_to_a_generation_that_no_node_has(
    make: Make, opensearch: Client, index: str
) -> None:
    nowhere = {"routing.allocation.require._name": "nobody", "write.wait_for_active_shards": "0"}
    sink = make(settings=nowhere, max_elapsed=0.5)
    sink.ensure(index, FIRST, MAPPING)
    with pytest.raises(Transient, match=r"status 503|do not answer"):
        sink.publish(index, MARKER)
    assert index not in opensearch.aliases(index)
    (place,) = opensearch.indexes(index)
    opensearch.do("PUT", f"/{place}/_settings", {"index.routing.allocation.require._name": None})
    opensearch.do("GET", f"/_cluster/health/{place}", wait_for_status="yellow")
    sink.publish(index, MARKER)
    assert found(opensearch, index) == set()


def test_what_is_complete_can_be_read_before_it_is_shown(make: Make, opensearch: Client, index: str) -> None:
    sink = make()
    complete(sink, index, FIRST, {"a": {"n": 1}})
    (place,) = opensearch.indexes(index)
    opensearch.do("POST", "/_aliases", {"actions": [{"remove": {"alias": index, "index": place}}]})
    assert held(sink, index) == {"a": {"n": 1}}


def test_a_late_writer_cannot_make_an_index(make: Make, opensearch: Client, index: str) -> None:
    sink = make()
    fill(sink, index, FIRST, {"a": {"n": 1}})
    sink.drop(index)
    with pytest.raises(NeedsOperator, match="was it deleted"):
        sink.write(batch_of(2, {"a": {"n": 1}}, index, FIRST))
    assert opensearch.indexes(index) == []


def test_an_index_in_the_way_of_the_alias_is_told_and_not_touched(
    make: Make, opensearch: Client, index: str
) -> None:
    opensearch.put(index, {"theirs": {"n": 1}})
    with pytest.raises(NeedsOperator, match="has the name of the alias") as error:
        make().ensure(index, FIRST, MAPPING)
    assert index in (error.value.remedy or "")
    assert opensearch.indexes(index) == [index]
    assert make().seeded(index) is None


def test_an_alias_of_somebody_else_is_told_and_not_touched(
    make: Make, opensearch: Client, index: str
) -> None:
    opensearch.create(f"{index}_theirs", {"aliases": {index: {}}})
    with pytest.raises(NeedsOperator, match=f"{index}_theirs, which Tailrace has not made"):
        make().ensure(index, FIRST, MAPPING)
    assert opensearch.aliases(index) == {index: [f"{index}_theirs"]}


def test_indexes_whose_names_begin_alike_are_apart(make: Make, opensearch: Client, index: str) -> None:
    sink = make(keep=0)
    complete(sink, f"{index}_old", FIRST, {"b": {"n": 1}})
    complete(sink, index, FIRST, {"a": {"n": 1}})
    complete(sink, index, SECOND, {"a": {"n": 2}})
    assert held(sink, f"{index}_old") == {"b": {"n": 1}}
    sink.drop(index)
    assert sink.seeded(f"{index}_old") == MARKER


@pytest.mark.parametrize(
    "name", ["Customers", "_customers", "-customers", "cust omers", "a/b", "a*", "x" * 200, ""]
)
def test_a_name_that_opensearch_refuses_is_an_error_of_the_configuration(make: Make, name: str) -> None:
    with pytest.raises(ConfigError, match="takes no index of the name") as error:
        make().ensure(name, FIRST, MAPPING)
    assert error.value.place == f"index {name}"


def test_what_is_stored_otherwise_is_not_taken_for_complete(
    make: Make, opensearch: Client, index: str
) -> None:
    complete(make(), index, FIRST, {"a": {"n": 1}})
    assert make().seeded(index) == MARKER
    assert make(replicas=1, shards=2, keep=5, remember_deletes=1.0).seeded(index) == MARKER
    changed = make(settings={"similarity.default.type": "boolean"})
    for other in (changed, make(analysis="icu"), make(pipeline="another")):
        assert other.seeded(index) is None
        assert not other.holds(index, FIRST)
        # What readers see can follow all the same while it is filled again.
        assert other.holding(index, FIRST) is other
        assert other.look(index) == Held(FIRST, None, 1)
    assert make().look(index) == Held(FIRST, MARKER, 1)
    assert make().look(f"{index}_nowhere") == Held()
    # Filled again under the same name it is another one, beside what readers see.
    fill(changed, index, FIRST, {"b": {"n": 1}})
    assert found(opensearch, index) == {"a"}
    assert changed.seeded(index) is None
    changed.publish(index, MARKER)
    assert found(opensearch, index) == {"b"}
    assert changed.seeded(index) == MARKER
    assert make().seeded(index) is None


def test_a_deleted_index_is_not_taken_for_complete(make: Make, opensearch: Client, index: str) -> None:
    sink = make()
    complete(sink, index, FIRST, {"a": {"n": 1}})
    (place,) = opensearch.indexes(index)
    opensearch.do("DELETE", f"/{place}")
    assert sink.seeded(index) is None
    assert not sink.holds(index, FIRST)


def test_a_copy_is_not_taken_for_what_it_is_a_copy_of(make: Make, opensearch: Client, index: str) -> None:
    sink = make(keep=0)
    complete(sink, index, FIRST, {"a": {"n": 1}})
    (place,) = opensearch.indexes(index)
    meta = opensearch.do("GET", f"/{place}")[place]
    settings = {k: v for k, v in meta["settings"]["index"].items() if k in ("analysis", "gc_deletes")}
    body = {"mappings": meta["mappings"], "settings": {"index": settings}}
    opensearch.create(f"{index}_backup", body)
    opensearch.do("DELETE", f"/{place}")
    opensearch.create(place, {**body, "aliases": meta["aliases"]})
    assert sink.seeded(index) is None
    complete(sink, index, SECOND, {"b": {"n": 1}})
    assert sink.seeded(index) == SECOND_MARKER
    assert f"{index}_backup" in opensearch.indexes(index)


def test_a_document_that_does_not_fit_is_rejected_without_a_word_of_its_values(
    make: Make, index: str
) -> None:
    sink = make()
    sink.ensure(index, FIRST, TYPED)
    documents = {
        "good": {"name": "Ada", "age": 36, "code": "x"},
        "type": {"age": "hidden-value"},
        "strict": {"nickname": "hidden-value"},
        "range": {"age": 99999999999},
        "object": {"age": {"hidden-value": 1}},
    }
    report = sink.write(batch_of(1, documents, index))
    reasons = {one.id: one.reason for one in report.rejected}
    assert (set(reasons), report.written) == ({"type", "strict", "range", "object"}, 1)
    assert "hidden-value" not in str(reasons)
    assert "99999999999" not in str(reasons)
    assert "field age" in reasons["type"]
    assert "nickname is not in the mapping" in reasons["strict"]
    assert set(held(sink, index)) == {"good"}


def test_reasons_of_servers_are_cut_to_kinds_and_fields() -> None:
    error = {
        "type": "illegal_argument_exception",
        "reason": 'Document contains at least one immense term in field="code" (whose UTF8 encoding is longer'
        " than the max length 32766), the prefix of the first immense term is: '[115, 101]...'",
        "caused_by": {"type": "max_bytes_length_exceeded_exception", "reason": "bytes can be at most 32766"},
    }
    assert reason(error) == (
        "illegal_argument_exception, max_bytes_length_exceeded_exception: field code has a value longer than"
        " 32,766 bytes"
    )
    assert reason({"type": "x", "reason": "value [secret] is bad"}) == "x"
    hidden = "failed to parse field [n] in document with id '1'. Preview: 'object mapping for [secret]'"
    assert reason({"type": "x", "reason": hidden}) == "x: field n"
    assert reason({}) == "refused"


def test_keys_of_maps_that_cannot_be_fields_are_told_by_their_place(make: Make, index: str) -> None:
    sink = make()
    mapping = {"titles": {"type": "map", "values": "text", "nullable": True}}
    sink.ensure(index, FIRST, mapping)
    documents: dict[str, Any] = {
        "empty": {"titles": {"": "x"}},
        "dot": {"titles": {".": "x"}},
        "both": {"titles": {"a": "x", "a.b": "y"}},
    }
    reasons = {one.id: one.reason for one in sink.write(batch_of(1, documents, index)).rejected}
    assert reasons["empty"] == reasons["dot"]
    assert reasons["empty"].endswith(": a key is empty, or nothing but dots")
    assert "field titles.a is an object in one place and a value in another" in reasons["both"]


def test_a_cluster_that_runs_no_pipelines_is_told(make: Make, index: str) -> None:
    sink = make(pipeline="anything")
    sink.ensure(index, FIRST, MAPPING)
    # The server of the tests is such a one.
    with pytest.raises(NeedsOperator, match="ingest pipelines"):
        sink.write(batch_of(1, {"a": {"n": 1}}, index))


def test_compressed_requests_say_the_same(make: Make, index: str) -> None:
    sink = make(gzip=True)
    documents = {f"{number}": {"s": "x" * 100, "n": number} for number in range(100)}
    fill(sink, index, FIRST, documents)
    assert held(sink, index) == documents


def test_a_mapping_that_the_cluster_refuses_is_an_error_of_the_configuration(make: Make, index: str) -> None:
    wrong = {"a": {"type": "keyword", "nullable": True, "options": {"normalizer": "nobody"}}}
    with pytest.raises(ConfigError, match="nobody"):
        make().ensure(index, FIRST, wrong)


def test_deletes_are_remembered_for_as_long_as_the_settings_say(
    make: Make, opensearch: Client, index: str
) -> None:
    make(remember_deletes=7200.0).ensure(index, FIRST, MAPPING)
    (place,) = opensearch.indexes(index)
    settings = opensearch.do("GET", f"/{place}/_settings")[place]["settings"]["index"]
    assert settings["gc_deletes"] == "7200s"


def test_secrets_travel_as_references_and_are_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_PASSWORD", "pa55word")
    config = OpenSearchConfig(
        "http://127.0.0.1:1", username="ada", password=Credential("pa55word", reference="${SEARCH_PASSWORD}")
    )
    sink = OpenSearchSink(config)
    sent = pickle.dumps(sink)
    assert b"pa55word" not in sent
    assert "pa55word" not in repr(config)
    other = pickle.loads(sent)  # noqa: S301
    assert other._config.password.reveal() == "pa55word"
    alone = pickle.dumps(Credential("pa55word"))
    assert b"pa55word" not in alone
    assert "pa55word" not in str(Secret("pa55word"))


def test_making_a_sink_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = OpenSearchSink(OpenSearchConfig("http://127.0.0.1:1"))
    assert sink.write(batch_of(1, {})).written == 0
    sink.flush()
    sink.close()


WRITER = """
import sys
from tailrace.sinks.opensearch import OpenSearchSink
from tests.sinks.documents import FIRST, batch_of
from tests.sinks.opensearch.sinks import config_of
sink = OpenSearchSink(config_of(sys.argv[1], bulk_actions=7))
print("ready", flush=True)
sys.stdin.readline()
for version in range(int(sys.argv[3]), 40, 2):
    documents = {str(n): None if (n + version) % 5 == 0 else {"v": version} for n in range(20)}
    sink.write(batch_of(version, documents, sys.argv[2], FIRST))
sink.flush()
"""


def test_processes_that_write_the_same_documents_leave_the_newest_version_of_each(
    make: Make, opensearch: Client, index: str, root: Path
) -> None:
    sink = make()
    sink.ensure(index, FIRST, MAPPING)
    children = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, opensearch.url, index, str(start)],
            cwd=root,
            env={"PYTHONPATH": f"{root / 'src'}:{root}", "PATH": "/usr/bin:/bin"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for start in (0, 1)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
    for child in children:
        _, errors = child.communicate(b"go\n", timeout=120)
        assert child.returncode == 0, errors.decode()
    newest = {str(n): {"v": v} for n in range(20) for v in [39] if (n + v) % 5 != 0}
    assert held(sink, index) == newest

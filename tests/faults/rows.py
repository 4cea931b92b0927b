"""The fault matrix as data: every fault, where it strikes, what must come of it, and which tests prove it.

A fault has six targets: the captures SQLite and PostgreSQL, the mirror in Delta, a feed, the document store
and OpenSearch. For each of them a row names tests (`Proof`), or says why the fault does not concern it
(`apart`), or that it is not proved, and why (`open`). `docs/faults.md` is made of this and of `results.json`.

Points: P provision, S snapshot, H hand-over, R read, O Spark's offset log, V resolve, B build, W write,
F flush, L Spark's commit log, A acknowledge, T state.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

SQLITE, POSTGRES, DELTA, FEED, STORE, OPENSEARCH = TARGETS = (
    "sqlite",
    "postgres",
    "delta",
    "feed",
    "store",
    "opensearch",
)
TITLES = {
    SQLITE: "SQLite",
    POSTGRES: "PostgreSQL",
    DELTA: "Delta",
    FEED: "feed",
    STORE: "document store",
    OPENSEARCH: "OpenSearch",
}
CAPTURES = (SQLITE, POSTGRES)


@dataclass(frozen=True)
class Proof:
    """A test, and the targets that it proves a row for.

    A test of a rig runs once for each capture (its ids say which), and then proves a capture by the runs on
    it; `fixed` are tests of one capture, whose ids do not say it.
    """

    test: str
    targets: tuple[str, ...]
    fixed: bool = False

    @property
    def function(self) -> str:
        """Its id without parameters."""
        return f"tests/{self.test}" if "/" in self.test else f"tests/faults/{self.test}"

    def runs(self, ids: Iterable[str], target: str) -> list[str]:
        """Those of these ids that are runs of the test for a target."""
        own = [id_ for id_ in ids if function_of(id_) == self.function]
        if target in (STORE, OPENSEARCH) and any({STORE, OPENSEARCH} & {*parameters_of(id_)} for id_ in own):
            # It has a run for each of them.
            return [id_ for id_ in own if target in parameters_of(id_)]
        if target not in CAPTURES or self.fixed:
            return own
        return [id_ for id_ in own if target in parameters_of(id_)]


@dataclass(frozen=True)
class Row:
    """A fault, where it strikes, what must come of it, and what speaks for that."""

    number: int
    fault: str
    point: str
    outcome: str
    proofs: tuple[Proof, ...]
    apart: Mapping[str, str] = field(default_factory=dict)
    open: Mapping[str, str] = field(default_factory=dict)

    def proofs_of(self, target: str) -> list[Proof]:
        """The tests that prove it for a target."""
        return [proof for proof in self.proofs if target in proof.targets]

    def runs(self, proof: Proof, ids: Iterable[str], target: str) -> list[str]:
        """The runs of a test that prove this row for a target: a test of many rows says which in its ids."""
        found = []
        for id_ in proof.runs(ids, target):
            rows = [word for word in parameters_of(id_) if re.fullmatch(r"row\d+", word)]
            if not rows or f"row{self.number}" in rows:
                found.append(id_)
        return found


@dataclass(frozen=True)
class Bug:
    """A seeded bug, the oracle that must catch it, and the test that it does."""

    name: str
    what: str
    oracle: str
    test: str

    @property
    def function(self) -> str:
        return f"tests/faults/test_oracles.py::{self.test}"


def function_of(id_: str) -> str:
    """A test's id without its parameters."""
    return id_.partition("[")[0]


def parameters_of(id_: str) -> list[str]:
    """The parameters of a test's id, as it shows them."""
    return id_.partition("[")[2].removesuffix("]").split("-")


@cache
def named_tests() -> frozenset[str]:
    """The ids, without parameters, of all tests that the matrix names."""
    return frozenset(
        [proof.function for row in ROWS for proof in row.proofs] + [bug.function for bug in BUGS]
    )


# Who judges: a rig compares its mirror and its feed, and its documents where it has some.
RIG = (*CAPTURES, DELTA, FEED)
IN_STORE, IN_CLUSTER = (*CAPTURES, STORE), (*CAPTURES, OPENSEARCH)
IN_BOTH = (*CAPTURES, STORE, OPENSEARCH)
POSTGRES_RIG, SQLITE_RIG = (POSTGRES, DELTA, FEED), (SQLITE, DELTA, FEED)


def rig(*tests: str, on: tuple[str, ...] = RIG) -> tuple[Proof, ...]:
    """Tests of a rig that prove a row for these targets."""
    return tuple(Proof(test, on) for test in tests)


def alone(*tests: str, on: tuple[str, ...]) -> tuple[Proof, ...]:
    """Tests whose ids do not say on which capture they run."""
    return tuple(Proof(test, on, fixed=True) for test in tests)


def same(reason: str, *targets: str) -> dict[str, str]:
    """One reason for some targets."""
    return dict.fromkeys(targets, reason)


NO_SERVER = "a file: there is no server and no connection"
BEFORE = "it strikes before a batch is formed; a sink of documents gets what rows 7, 8 and 40 are about"
NO_SINK = "no sink takes part in it"
_SPARK = "test_spark.py::test_a_kill_at_this_point_loses_nothing"
_CHUNKS = (
    "test_snapshots.py::test_kills_inside_a_chunk_and_at_the_hand_over_repeat_no_finished_chunk_and_skip_none"
)
_LIFE = "test_spark.py::test_a_life_with_kills_in_snapshot_commit_and_worker_and_a_clean_stop_ends_equal"
_KILLS = "test_opensearch_kills.py::test_a_kill_at_this_point_leaves_the_documents_right"
_FILLING = (
    "test_documents.py::test_a_kill_during_filling_or_publication_repeats_no_finished_chunk_and_loses_nothing"
)
_REFILL = "test_a_kill_in_a_filling_that_was_asked_for_hides_no_document_and_loses_no_change"
_SWAP = "test_opensearch.py::test_a_kill_during_the_swap_of_the_alias_never_shows_fewer_documents"
_DRIFT = "capture/sqlite/test_drift.py::"
_STREAM = "capture/sqlite/test_stream.py::"
_STATEFILE = "changelog/test_statefile.py::"

ROWS = (
    Row(
        1,
        "kill -9 after slot or triggers exist, before the first offset",
        "P",
        "what was installed is used again and nothing is made twice; the whole snapshot follows",
        (
            *rig(
                "test_kills.py::test_a_kill_after_setup_and_before_the_first_offset_reuses_what_was_installed",
                _SPARK,
            ),
            *rig(_KILLS, on=IN_BOTH),
        ),
    ),
    Row(
        2,
        "kill -9 inside a snapshot chunk",
        "S",
        "the snapshot goes on at that chunk; none is skipped, no finished one is read again",
        (
            *rig("test_kills.py::test_a_kill_inside_a_chunk_resumes_at_that_chunk", _CHUNKS, _LIFE, _SPARK),
            *rig(_FILLING, f"test_reindex.py::{_REFILL}", on=IN_STORE),
            *rig(_KILLS, on=IN_BOTH),
            *rig(f"test_opensearch_kills.py::{_REFILL}", on=IN_CLUSTER),
        ),
    ),
    Row(
        3,
        "kill -9 between the last chunk and the hand-over to the log",
        "H",
        "the snapshot's end or the log's beginning comes again, and nothing is lost",
        (
            *rig(
                "test_kills.py::test_a_kill_between_the_last_chunk_and_the_log_loses_nothing",
                _CHUNKS,
                _SPARK,
            ),
            *rig(_FILLING, f"test_reindex.py::{_REFILL}", on=IN_STORE),
            *rig(_KILLS, on=IN_BOTH),
            *rig(_SWAP, f"test_opensearch_kills.py::{_REFILL}", on=IN_CLUSTER),
        ),
    ),
    Row(
        4,
        "kill -9 after `offsets/N`, before any read",
        "O",
        "batch N is read again with the same rows",
        (
            *rig(
                "test_kills.py::"
                "test_a_kill_after_the_offset_is_logged_and_before_any_read_runs_the_same_batch",
                "test_kills.py::test_a_batch_that_was_killed_halfway_comes_again_with_the_same_rows",
                _SPARK,
            ),
            *rig(_KILLS, on=IN_BOTH),
        ),
    ),
    Row(
        5,
        "a Python worker of Spark is killed inside `read`, or while it writes documents",
        "R,W",
        "the task is tried again and yields the same",
        (
            *rig(_LIFE),
            *rig(
                "test_opensearch_kills.py::"
                "test_a_worker_of_spark_that_is_killed_while_it_writes_documents_is_replaced",
                on=(STORE, OPENSEARCH),
            ),
        ),
    ),
    Row(
        6,
        "the row changes between resolve and build",
        "V-B",
        "what is written is at least as new as the change, and the later change comes too",
        (
            *rig(
                "test_kills.py::"
                "test_a_row_that_changes_after_its_chunk_was_planned_is_never_older_in_the_mirror"
            ),
            *rig(
                "test_documents.py::"
                "test_rows_that_change_between_resolve_and_build_give_documents_at_least_as_new",
                on=IN_STORE,
            ),
            *rig(
                "test_opensearch.py::"
                "test_rows_that_change_between_resolve_and_build_give_documents_at_least_as_new",
                on=IN_CLUSTER,
            ),
        ),
    ),
    Row(
        7,
        "kill -9 after the sink applied the batch, before its reply",
        "W",
        "the batch comes again and changes nothing",
        (
            *rig(
                "test_kills.py::"
                "test_a_kill_after_the_mirror_has_the_batch_and_before_its_reply_changes_nothing",
                _SPARK,
            ),
            *rig(
                "test_documents.py::"
                "test_a_kill_after_the_store_has_the_documents_and_before_its_reply_changes_nothing",
                _FILLING,
                on=IN_STORE,
            ),
            *rig(_KILLS, on=IN_BOTH),
            *rig(
                "test_opensearch.py::"
                "test_a_kill_when_the_cluster_has_the_documents_and_its_reply_is_on_the_way_changes_nothing",
                _SWAP,
                on=IN_CLUSTER,
            ),
        ),
    ),
    Row(
        8,
        "kill -9 after the flush, before `commits/N`",
        "F-L",
        "the batch comes again and nobody sees a difference",
        (
            *rig(
                "test_kills.py::"
                "test_a_kill_after_the_flush_and_before_the_commit_repeats_without_a_difference",
                _LIFE,
                _SPARK,
            ),
            *rig(_KILLS, on=IN_BOTH),
        ),
    ),
    Row(
        9,
        "kill -9 after `commits/N`, before the acknowledgement",
        "L-A",
        "nothing is written again, and the source is told afterwards",
        (
            *rig(
                "test_kills.py::test_a_kill_after_the_commit_and_before_the_acknowledgement_rewrites_nothing",
                "test_spark.py::test_a_kill_after_the_commit_rewrites_nothing_and_the_source_is_told_after",
                _SPARK,
            ),
            *rig(_KILLS, on=IN_BOTH),
        ),
    ),
    Row(
        10,
        "idle for long while other tables write",
        "A",
        "the acknowledged position advances, so the log is not retained",
        (
            *rig(
                "test_slots.py::test_the_acknowledged_position_goes_on_while_other_tables_write",
                on=(POSTGRES,),
            ),
            *alone(
                _STREAM + "test_a_source_that_moved_on_elsewhere_gives_a_complete_part_without_rows",
                on=(SQLITE,),
            ),
        ),
        apart=same(NO_SINK, DELTA, FEED, STORE, OPENSEARCH),
    ),
    Row(
        11,
        "SIGTERM inside a batch",
        "all",
        "it ends in bounded time with exit code 0, and the next run repeats nothing",
        (
            *rig(
                "test_kills.py::test_sigterm_inside_a_batch_ends_soon_and_well_and_nothing_is_repeated",
                _LIFE,
            ),
            *rig(
                "test_opensearch_kills.py::"
                "test_sigterm_inside_a_write_of_documents_ends_soon_and_well_and_nothing_is_repeated",
                on=IN_BOTH,
            ),
        ),
    ),
    Row(
        12,
        "a second instance on the same state; a frozen one that thaws later",
        "P,T",
        "the second is refused by name; the thawed one is fenced",
        (
            *rig(
                "test_owners.py::"
                "test_a_second_process_on_the_same_state_is_refused_by_name_while_the_first_lives",
                "test_owners.py::test_a_new_query_on_a_state_in_use_is_refused_and_leaves_the_cursor_alone",
                "test_owners.py::test_a_frozen_process_is_succeeded_after_its_lease_and_fenced_when_it_thaws",
                "test_spark.py::test_a_second_spark_is_refused_and_a_frozen_one_is_succeeded_and_fenced",
            ),
            *rig(
                "test_opensearch_kills.py::test_documents_of_a_frozen_process_that_thaws_are_refused",
                on=IN_BOTH,
            ),
        ),
    ),
    Row(
        13,
        "TCP reset during a snapshot",
        "S",
        "the connection is made again, and every row comes once",
        rig(
            "test_snapshots.py::"
            "test_a_connection_reset_inside_a_chunk_is_made_again_and_every_row_comes_once",
            on=POSTGRES_RIG,
        ),
        apart={SQLITE: NO_SERVER, **same(BEFORE, STORE, OPENSEARCH)},
    ),
    Row(
        14,
        "TCP cut inside one protocol message",
        "R",
        "no part of a change is delivered; it goes on at a boundary",
        (
            *rig(
                "test_network.py::"
                "test_a_connection_cut_inside_a_message_goes_on_at_a_boundary_and_delivers_no_half",
                on=POSTGRES_RIG,
            ),
            *rig(
                "test_opensearch.py::test_requests_that_are_cut_and_answers_that_are_lost_change_nothing",
                on=(OPENSEARCH,),
            ),
        ),
        apart={SQLITE: NO_SERVER, STORE: "a file: no message can be cut"},
    ),
    Row(
        15,
        "a server is frozen, without a reset",
        "R,W",
        "given up within the time-out, told of, taken up again",
        (
            *rig(
                "test_network.py::test_a_frozen_server_is_given_up_in_time_and_told_of_and_taken_up_again",
                on=(POSTGRES,),
            ),
            *alone(
                _STREAM + "test_a_locked_database_delays_an_acknowledgement_and_close_writes_it",
                on=(SQLITE,),
            ),
            *alone(
                "sinks/test_http.py::test_a_server_that_does_not_answer_is_given_up_and_tried_again",
                on=(FEED,),
            ),
            *alone(
                "sinks/test_sqlite_store.py::"
                "test_another_writer_that_stays_is_a_passing_fault_and_nothing_is_half_done",
                on=(STORE,),
            ),
            *rig(
                "test_opensearch.py::test_a_frozen_cluster_is_given_up_in_time_and_taken_up_again",
                on=(OPENSEARCH,),
            ),
        ),
        apart={DELTA: "files: there is no server to freeze"},
    ),
    Row(
        16,
        "a sink a hundred times slower than the source",
        "R,W",
        "capture pauses, memory and changelog stay under their limits, connections are kept alive",
        (
            *rig(
                "test_delivery.py::test_a_slow_sink_pauses_capture_within_its_bounds_and_nothing_is_lost",
                on=(*CAPTURES, DELTA),
            ),
            *rig(
                "test_network.py::test_a_slow_sink_keeps_its_connection_and_its_slot_within_the_bounds",
                on=(POSTGRES,),
            ),
            *rig(
                "test_opensearch.py::"
                "test_a_cluster_a_hundred_times_slower_pauses_capture_within_its_bounds_and_nothing_is_lost",
                on=IN_CLUSTER,
            ),
        ),
        open=same("not tried by itself; a batch waits for its slowest sink, whichever that is", FEED, STORE),
    ),
    Row(
        17,
        "another server answers",
        "R",
        "its identity differs: it stops and names it",
        (
            *rig(
                "test_network.py::test_another_server_that_answers_is_refused_and_the_right_one_goes_on",
                on=POSTGRES_RIG,
            ),
            *alone(
                _STREAM + "test_a_position_of_another_database_is_refused",
                _STREAM + "test_a_file_replaced_under_the_stream_is_noticed",
                on=(SQLITE,),
            ),
            *alone(
                "sinks/test_sqlite_store.py::test_another_file_is_not_taken_for_a_store",
                "sinks/test_sqlite_store.py::test_a_file_that_was_removed_under_the_pipeline_is_noticed",
                on=(STORE,),
            ),
            *alone(
                "engine/test_reindex_opensearch.py::"
                "test_a_restored_copy_of_an_index_is_not_taken_for_the_index",
                on=(OPENSEARCH,),
            ),
        ),
    ),
    Row(
        18,
        "the database is killed and started again",
        "R",
        "reconnected, without a gap",
        (
            *rig(
                "test_network.py::test_a_server_that_dies_under_writers_and_comes_again_leaves_no_gap",
                on=POSTGRES_RIG,
            ),
            *rig(
                "test_opensearch_kills.py::"
                "test_a_server_that_dies_while_documents_are_built_and_comes_again_is_waited_for",
                on=(POSTGRES, STORE, OPENSEARCH),
            ),
        ),
        apart={SQLITE: "a file: it has no process; applications that die are rows 26 and 28"},
    ),
    Row(
        19,
        "slot or trigger dropped while down",
        "P",
        "it stops with the remedy",
        (
            *rig(
                "test_slots.py::"
                "test_a_slot_that_was_dropped_while_down_stops_with_the_remedy_and_a_snapshot_heals",
                on=POSTGRES_RIG,
            ),
            *rig(
                "test_sqlite.py::test_a_trigger_that_was_dropped_while_down_stops_with_the_remedy",
                on=SQLITE_RIG,
            ),
            *alone(_DRIFT + "test_a_missing_trigger_is_drift_and_setup_puts_it_back", on=(SQLITE,)),
        ),
        apart=same(BEFORE, STORE, OPENSEARCH),
    ),
    Row(
        20,
        "the log was purged",
        "R",
        "it stops, names the first position there is, and offers a new snapshot",
        (
            *rig(
                "test_slots.py::"
                "test_a_log_that_was_purged_stops_with_the_first_position_there_is_and_a_snapshot_heals",
                on=POSTGRES_RIG,
            ),
            *rig(
                "test_sqlite.py::test_a_log_that_was_purged_while_down_stops_with_the_remedy", on=SQLITE_RIG
            ),
            *alone(
                "spark/test_stream.py::test_a_lost_log_stops_and_failondataloss_false_takes_a_snapshot",
                on=(SQLITE,),
            ),
        ),
        apart=same(BEFORE, STORE, OPENSEARCH),
    ),
    Row(
        21,
        "the slot was made again by hand elsewhere",
        "P",
        "refused",
        (
            *rig(
                "test_slots.py::test_a_slot_that_was_made_again_by_hand_is_refused_wherever_it_stands",
                on=POSTGRES_RIG,
            ),
            *alone(
                "capture/sqlite/test_register.py::"
                "test_a_new_consumer_may_begin_where_another_has_kept_the_log_and_nowhere_else",
                on=(SQLITE,),
            ),
        ),
        apart=same(BEFORE, STORE, OPENSEARCH),
    ),
    Row(
        22,
        "the source was restored from a backup",
        "R",
        "refused by identity or timeline",
        (
            *rig("test_state.py::test_a_database_restored_from_an_older_copy_is_refused", on=SQLITE_RIG),
            *rig("test_slots.py::test_a_server_restored_from_a_backup_is_refused", on=POSTGRES_RIG),
        ),
        apart=same(BEFORE, STORE, OPENSEARCH),
    ),
    Row(
        23,
        "publication or table dropped, column unpublished",
        "R",
        "that table stops with the remedy, the others go on",
        (
            *rig(
                "test_published.py::"
                "test_a_table_that_is_not_published_as_it_was_stops_alone_and_the_other_goes_on",
                "test_published.py::test_a_publication_that_is_dropped_stops_the_pipeline_with_the_remedy",
                on=POSTGRES_RIG,
            ),
            *alone(
                "engine/test_documents.py::"
                "test_a_source_that_lost_what_the_index_needs_stops_the_run_with_the_remedy",
                on=(STORE,),
            ),
        ),
        apart={OPENSEARCH: "the engine stops before it calls a sink; shown with the document store"},
        open={
            SQLITE: "not so: a table that is dropped or altered stops the whole pipeline with the remedy, and"
            " not that table alone"
        },
    ),
    Row(
        24,
        "SELECT revoked, then a restart",
        "S,B",
        "no new snapshot; where a read is needed, the GRANT is printed",
        (
            *rig(
                "test_snapshots.py::"
                "test_a_finished_snapshot_is_not_read_again_though_nobody_may_read_the_table"
            ),
            *rig(
                "test_snapshots.py::"
                "test_a_snapshot_that_may_not_be_read_on_prints_the_grant_and_goes_on_after_it",
                on=POSTGRES_RIG,
            ),
            *rig(
                "test_opensearch_kills.py::"
                "test_a_table_of_documents_that_may_not_be_read_prints_the_grant_and_goes_on_after_it",
                on=(POSTGRES, STORE, OPENSEARCH),
            ),
        ),
    ),
    Row(
        25,
        "the database's disk is full, and freed later",
        "R",
        "it waits, or stops cleanly, and goes on",
        (
            *rig(
                "test_network.py::test_a_server_whose_disk_is_full_is_waited_for_until_space_is_freed",
                on=POSTGRES_RIG,
            ),
            *rig(
                "test_sqlite.py::test_a_database_whose_disk_is_full_is_waited_for_until_space_is_freed",
                on=SQLITE_RIG,
            ),
        ),
        apart=same(BEFORE, STORE, OPENSEARCH),
    ),
    Row(
        26,
        "a long transaction across our restart, short ones inside or around it",
        "R",
        "every row of both arrives, each transaction whole",
        (
            *rig("test_transactions.py::test_a_first_start_waits_for_a_transaction_that_is_in_its_way"),
            *rig(
                "test_transactions.py::"
                "test_a_long_transaction_across_a_restart_and_short_ones_around_it_all_arrive",
                on=SQLITE_RIG,
            ),
            *rig(
                "test_transactions.py::"
                "test_a_long_transaction_across_restarts_and_short_ones_inside_all_arrive_whole",
                on=POSTGRES_RIG,
            ),
        ),
        apart=same(BEFORE, STORE, OPENSEARCH),
    ),
    Row(
        27,
        "a million rows in one transaction; ten thousand with one position; a restart in the middle",
        "R,O",
        "none is lost, the transaction is not parted, memory is bounded",
        (
            *rig(
                "test_transactions.py::"
                "test_three_hundred_thousand_rows_of_one_transaction_survive_kills_in_the_middle",
                "test_transactions.py::test_a_million_rows_of_one_transaction_survive_kills_in_the_middle",
                "test_transactions.py::"
                "test_ten_thousand_changes_with_one_position_are_not_parted_by_a_restart",
                "test_spark.py::test_a_large_transaction_survives_a_kill_while_it_is_read",
            ),
        ),
        open=same(
            "not tried with documents; one row that touches 200,000 of them takes bounded memory"
            " (`engine/test_documents_hot.py`)",
            STORE,
            OPENSEARCH,
        ),
    ),
    Row(
        28,
        "rollback, rollback to a savepoint, a commit that fails",
        "R",
        "none of it is ever seen",
        rig("test_transactions.py::test_nothing_of_what_was_rolled_back_is_ever_seen"),
        apart=same("documents are built from what is committed; " + BEFORE, STORE, OPENSEARCH),
    ),
    Row(
        29,
        "insert, delete and insert of a key, key change, child moved, parent deleted, TRUNCATE, one batch",
        "V,B",
        "rows and documents are right in the end",
        (
            *rig(
                "test_snapshots.py::"
                "test_all_that_can_happen_to_rows_and_their_parents_in_one_batch_leaves_the_right_rows"
            ),
            *rig(
                "test_documents.py::test_all_that_can_happen_to_rows_in_one_batch_leaves_the_right_documents",
                on=IN_STORE,
            ),
            *rig(
                "test_opensearch.py::"
                "test_all_that_can_happen_to_rows_in_one_batch_leaves_the_right_documents",
                on=IN_CLUSTER,
            ),
        ),
    ),
    Row(
        30,
        "partial images of every kind",
        "R",
        "what is absent is never written as NULL, and no delete is wider than it should be",
        (
            *rig(
                "test_images.py::test_what_an_image_does_not_carry_is_neither_lost_nor_written_as_null",
                "test_images.py::"
                "test_a_key_that_changes_without_its_large_column_is_moved_whole_or_stops_with_the_remedy",
                "test_images.py::test_an_identity_without_the_primary_key_stops_the_mirror_with_the_remedy",
                "test_images.py::test_an_identity_that_changes_while_rows_come_is_followed",
                on=POSTGRES_RIG,
            ),
            *alone(
                "runtime/test_links_postgres.py::"
                "test_a_child_that_moved_or_went_leaves_its_old_parents_document_under_the_default_identity",
                on=(POSTGRES,),
            ),
        ),
        apart={
            SQLITE: "triggers write whole rows",
            **same(
                "no image goes into a document: it is read from the source, by what the resolver knows",
                STORE,
                OPENSEARCH,
            ),
        },
    ),
    Row(
        31,
        "DDL inside a transaction with rows, restarts before and after",
        "R,B",
        "each row is read by the schema of its own position, or it stops with the remedy",
        (
            *rig(
                "test_images.py::"
                "test_rows_around_an_altered_table_in_one_transaction_are_read_by_their_own_schema",
                on=POSTGRES_RIG,
            ),
            *alone(_DRIFT + "test_each_kind_of_drift_is_named_after_what_was_logged_before_it", on=(SQLITE,)),
            *alone(
                "engine/test_documents_columns.py::"
                "test_a_retyped_column_stops_the_run_and_the_next_one_fills_the_index_again",
                on=(STORE,),
            ),
        ),
        apart={OPENSEARCH: "the engine decides it before it calls a sink; shown with the document store"},
    ),
    Row(
        32,
        "clocks jump",
        "R",
        "the order is unaffected, and a living owner keeps its state",
        (
            *rig("test_images.py::test_clocks_that_jump_do_not_change_the_order", on=POSTGRES_RIG),
            *alone(
                "changelog/test_owner.py::"
                "test_a_living_owner_keeps_it_though_a_clock_makes_its_heartbeat_look_old",
                on=CAPTURES,
            ),
        ),
        apart=same("versions are positions of the source's log, and no moments", STORE, OPENSEARCH),
    ),
    Row(
        33,
        "state truncated, bit-flipped, of a newer version, of another source",
        "T",
        "refused by checksum, version, identity",
        (
            *rig(
                "test_state.py::test_damaged_or_newer_state_is_refused_by_name_and_nothing_is_acknowledged",
                "test_state.py::test_a_damaged_segment_is_captured_again",
                "test_state.py::test_state_of_another_source_is_refused",
            ),
            *alone(
                _STATEFILE + "test_every_flipped_bit_and_every_truncation_is_noticed",
                _STATEFILE + "test_a_newer_format_says_to_upgrade",
                on=(STORE, OPENSEARCH),
            ),
        ),
    ),
    Row(
        34,
        "state that cannot be read",
        "T",
        "an error, and not taken for none",
        (
            *rig("test_state.py::test_state_that_cannot_be_read_is_an_error_and_not_taken_for_none"),
            *alone(
                _STATEFILE + "test_a_disk_that_fails_to_read_is_an_error_not_nothing",
                _STATEFILE + "test_a_directory_in_its_place_is_an_error_not_nothing",
                on=(STORE, OPENSEARCH),
            ),
        ),
    ),
    Row(
        35,
        "the disk of the state, or of the sink, is full",
        "T,O,W",
        "nothing is acknowledged, no file is torn, and it heals",
        (
            *rig(
                "test_state.py::test_a_full_state_disk_acknowledges_nothing_and_heals_when_space_is_freed",
                "test_state.py::test_a_kill_while_the_state_disk_is_full_leaves_no_torn_file",
                "test_state.py::test_a_full_checkpoint_disk_ends_the_run_and_heals",
            ),
            *rig(
                "test_opensearch.py::test_a_cluster_whose_disk_is_full_is_waited_for_and_healed_by_space",
                on=(OPENSEARCH,),
            ),
            *alone(
                "sinks/opensearch/test_faults.py::"
                "test_a_read_only_index_is_waited_for_and_the_remedy_is_told",
                on=(OPENSEARCH,),
            ),
        ),
        open={STORE: "the state's disk is tried without documents, and the store's own disk was not filled"},
    ),
    Row(
        36,
        "state restored from yesterday; or ahead of the source",
        "T",
        "behind: it converges where the log is there; ahead: refused",
        (
            *rig(
                "test_state.py::test_state_of_yesterday_is_refused_where_the_log_is_gone",
                "test_state.py::test_state_of_yesterday_converges_where_the_log_is_there",
                "test_state.py::test_a_changelog_of_yesterday_under_a_checkpoint_of_today_goes_on",
            ),
            *rig("test_state.py::test_a_database_restored_from_an_older_copy_is_refused", on=SQLITE_RIG),
            *rig("test_slots.py::test_a_server_restored_from_a_backup_is_refused", on=POSTGRES_RIG),
            *rig(
                "test_opensearch_kills.py::"
                "test_state_of_yesterday_converges_where_the_log_is_there_and_leaves_the_documents_right",
                on=IN_BOTH,
            ),
        ),
    ),
    Row(
        37,
        "a sink answers 429 or 503, then a long outage",
        "W",
        "waits at random that grow, nothing acknowledged, told of while it lasts",
        (
            *alone(
                "engine/test_pipeline.py::"
                "test_a_passing_fault_of_a_sink_is_retried_and_nothing_is_acknowledged_meanwhile",
                on=(SQLITE, FEED),
            ),
            *alone(
                "sinks/test_http.py::test_passing_faults_are_retried_under_the_same_key",
                "sinks/test_http.py::test_waits_grow_at_random_up_to_their_limit",
                "sinks/test_http.py::test_a_long_outage_ends_as_transient_within_the_bound",
                on=(FEED,),
            ),
            *alone(
                "sinks/test_delta.py::test_a_path_that_cannot_be_written_is_transient_and_says_where",
                on=(DELTA,),
            ),
            *rig(
                "test_documents.py::"
                "test_of_mixed_answers_the_passing_are_tried_again_and_the_poison_is_written_down",
                on=IN_STORE,
            ),
            *rig(
                "test_opensearch.py::test_an_outage_acknowledges_nothing_while_it_lasts_and_nothing_is_lost",
                "test_opensearch.py::test_a_cluster_that_is_killed_and_started_again_is_waited_for",
                on=IN_CLUSTER,
            ),
            *alone(
                "sinks/opensearch/test_faults_pipeline.py::"
                "test_an_outage_is_told_while_it_lasts_and_nothing_is_lost",
                "sinks/opensearch/test_faults.py::test_never_sooner_than_the_server_asks",
                "sinks/opensearch/test_faults.py::"
                "test_a_long_outage_is_a_passing_fault_that_says_what_it_waits_for",
                on=(OPENSEARCH,),
            ),
        ),
    ),
    Row(
        38,
        "200 with mixed results: taken, 429, mapping error, failed delete, 409",
        "W",
        "what can be retried is sent again alone; poison goes by policy and is on record; an older version"
        " that is refused, and a delete of what is not there, are success",
        (
            *rig(
                "test_documents.py::"
                "test_of_mixed_answers_the_passing_are_tried_again_and_the_poison_is_written_down",
                on=IN_STORE,
            ),
            *rig(
                "test_opensearch.py::"
                "test_of_mixed_answers_only_the_passing_are_sent_again_and_the_poison_is_written_down",
                on=IN_CLUSTER,
            ),
            *alone(
                "sinks/opensearch/test_faults.py::"
                "test_of_a_mixed_answer_only_what_can_be_retried_is_sent_again",
                "sinks/opensearch/test_faults_pipeline.py::"
                "test_a_document_that_does_not_fit_becomes_a_dead_letter_with_its_reason",
                on=(OPENSEARCH,),
            ),
        ),
        apart={
            DELTA: "a commit is taken whole or not at all",
            FEED: "a receiver takes a body whole or not at all",
        },
    ),
    Row(
        39,
        "a write of an old batch arrives after a newer one",
        "W",
        "its version refuses it",
        (
            *rig(
                "test_delivery.py::test_old_batches_that_arrive_after_newer_ones_change_nothing",
                on=(*CAPTURES, DELTA),
            ),
            *alone(
                "sinks/test_http.py::test_a_replay_has_the_same_keys_and_other_content_has_others",
                on=(FEED,),
            ),
            *rig(
                "test_documents.py::"
                "test_writes_of_old_batches_that_arrive_after_newer_ones_change_no_document",
                on=IN_STORE,
            ),
            *rig(
                "test_opensearch.py::"
                "test_writes_of_old_batches_that_arrive_after_newer_ones_change_no_document",
                on=IN_CLUSTER,
            ),
            *alone(
                "sinks/opensearch/test_faults.py::test_a_slow_answer_is_given_up_and_what_it_did_is_harmless",
                on=(OPENSEARCH,),
            ),
        ),
    ),
    Row(
        40,
        "a batch delivered three times, partitions shuffled, speculative twins",
        "W",
        "the same state",
        (
            *rig(
                "test_delivery.py::"
                "test_batches_delivered_three_times_shuffled_and_by_twins_leave_the_same_state"
            ),
            *rig(
                "test_documents.py::"
                "test_documents_of_batches_delivered_three_times_and_shuffled_are_the_same",
                on=IN_STORE,
            ),
            *rig(
                "test_opensearch.py::"
                "test_documents_of_batches_delivered_three_times_and_shuffled_are_the_same",
                on=IN_CLUSTER,
            ),
            *alone(
                "sinks/opensearch/test_faults.py::"
                "test_a_batch_that_comes_three_times_in_pieces_of_any_order_leaves_the_same",
                on=(OPENSEARCH,),
            ),
        ),
    ),
)

BUGS = (
    Bug(
        "acknowledge-early",
        "a position is acknowledged before its batch is durable",
        "O3",
        "test_an_acknowledgement_before_the_batch_is_durable_is_caught",
    ),
    Bug("drop-one", "one change is dropped", "O1, O2", "test_one_dropped_change_is_caught"),
    Bug(
        "drop-one",
        "one change is dropped and superseded later, so the end is right",
        "O2",
        "test_a_dropped_change_that_was_superseded_is_caught_by_the_history",
    ),
    Bug(
        "keep-old-key",
        "a key that changed leaves its old row behind",
        "O1",
        "test_an_old_key_that_stays_is_caught",
    ),
    Bug(
        "skip-old-parent",
        "of a child that moved only the new parent's document is built",
        "O1",
        "test_an_old_parent_that_is_skipped_is_caught",
    ),
    Bug(
        "no-record",
        "a mirror takes an older batch after a newer one",
        "O1, O2",
        "test_a_mirror_that_does_not_know_old_batches_is_caught",
    ),
    Bug(
        "older-wins",
        "a document of an older version is written over a newer one",
        "O1",
        "test_a_document_of_an_older_version_over_a_newer_one_is_caught",
    ),
    Bug(
        "forget-delete",
        "deletes of documents are forgotten",
        "O1",
        "test_a_delete_of_a_document_that_is_forgotten_is_caught",
    ),
    Bug("skip-chunk", "a chunk of a snapshot is skipped", "O1", "test_a_skipped_chunk_is_caught"),
    Bug(
        "lose-last-row",
        "the last row of a chunk is lost",
        "O1",
        "test_the_last_row_of_a_chunk_that_is_lost_is_caught",
    ),
    Bug(
        "split-transaction",
        "a transaction is split over two batches",
        "O2",
        "test_a_transaction_split_over_two_batches_is_caught",
    ),
    Bug(
        "apply-rolled-back",
        "a row that was rolled back is applied",
        "O1, O2",
        "test_a_row_that_was_rolled_back_and_applied_is_caught",
    ),
    Bug(
        "reply-early",
        "a sink replies before it has written",
        "O1, O3",
        "test_a_sink_that_replies_before_it_has_written_is_caught",
    ),
    Bug(
        "swallow-rejected",
        "a rejected document is neither written nor on record",
        "O1",
        "test_a_rejected_document_that_is_swallowed_is_caught",
    ),
    Bug(
        "half-filled",
        "a half-filled index is served",
        "a reader that polls",
        "test_a_half_filled_index_that_is_served_is_caught",
    ),
    Bug(
        "nothing killed",
        "a kill test in which nothing was killed",
        "the harness",
        "test_a_kill_in_which_nothing_was_killed_fails",
    ),
)

if __name__ == "__main__":
    sys.stdout.write("\n".join(sorted(named_tests())) + "\n")

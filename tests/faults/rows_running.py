"""Rows 1 to 18 of the fault matrix: what ends, freezes, cuts or slows down what runs."""

from __future__ import annotations

from tests.faults.matrix import (
    BEFORE,
    CAPTURES,
    DELTA,
    FED,
    FEED,
    IN_BOTH,
    IN_CLUSTER,
    IN_STORE,
    OPENSEARCH,
    POSTGRES,
    POSTGRES_RIG,
    SQLITE,
    STORE,
    Row,
    alone,
    rig,
    same,
)

NO_SERVER = "a file: there is no server and no connection"
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
_TOLD = "test_feeds.py::test_a_kill_at_this_point_tells_a_receiver_that_knows_keys_every_change_once"
_MAKES = "test_feeds.py::test_a_kill_in_the_snapshot_leaves_feeds_that_make_the_table"
_STREAM = "capture/sqlite/test_stream.py::"

RUNNING = (
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
            *rig(_MAKES),
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
                _MAKES,
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
                _TOLD,
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
                _TOLD,
            ),
            *rig(
                "test_feeds.py::"
                "test_a_kill_while_a_reply_is_on_the_way_sends_the_same_body_under_the_same_key",
                on=FED,
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
                _TOLD,
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
                _TOLD,
            ),
            *rig(
                _KILLS,
                "test_opensearch_kills.py::"
                "test_a_kill_after_the_commit_and_before_the_acknowledgement_writes_no_document_again",
                on=IN_BOTH,
            ),
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
                "test_feeds.py::test_sigterm_inside_a_request_ends_soon_and_well_and_nothing_is_repeated",
                on=FED,
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
                "test_feeds.py::"
                "test_bodies_of_a_frozen_process_that_thaws_tell_a_receiver_that_knows_keys_nothing",
                on=FED,
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
                "test_feeds.py::test_requests_that_are_cut_and_answers_that_are_lost_tell_every_change_once",
                on=(FEED,),
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
        "capture pauses once the changelog is full, memory stays under its limit, connections are kept alive;"
        " from SQLite the changelog takes at once what came meanwhile ([bounds](bounds.md))",
        (
            *rig(
                "test_delivery.py::test_a_slow_sink_pauses_capture_within_its_bounds_and_nothing_is_lost",
                on=(*CAPTURES, DELTA, FEED, STORE),
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
)

"""Rows 19 to 40 of the fault matrix: what becomes of what is kept, of the data itself, and of sinks."""

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
    SQLITE_RIG,
    STORE,
    Row,
    alone,
    rig,
    same,
)

_DRIFT = "capture/sqlite/test_drift.py::"
_STATEFILE = "changelog/test_statefile.py::"

KEPT = (
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
            *rig(
                "test_sqlite.py::test_a_cursor_that_was_made_again_by_hand_is_refused_wherever_it_stands",
                on=SQLITE_RIG,
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
                "test_a_finished_snapshot_is_not_read_again_though_nobody_may_read_the_table",
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
        apart={SQLITE: "SQLite knows no rights: who may open the file may read every table of it"},
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
            *rig(
                "test_opensearch_kills.py::"
                "test_a_transaction_in_pieces_survives_kills_between_them_and_its_documents_are_right",
                on=IN_BOTH,
            ),
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
            *rig("test_sqlite.py::test_clocks_that_jump_do_not_change_the_order", on=SQLITE_RIG),
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
                "test_documents.py::"
                "test_a_full_disk_of_the_store_acknowledges_nothing_and_heals_when_space_is_freed",
                "test_documents.py::test_a_kill_while_the_disk_of_the_store_is_full_leaves_no_torn_document",
                on=IN_STORE,
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
            *rig(
                "test_feeds.py::"
                "test_an_outage_of_a_receiver_acknowledges_nothing_while_it_lasts_and_nothing_is_lost",
                on=FED,
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
        apart={
            FEED: "a feed keeps nothing that could be newer: its requests carry keys, by which a receiver"
            " knows what it had"
        },
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
                "test_feeds.py::"
                "test_batches_delivered_three_times_shuffled_and_by_twins_tell_a_receiver_every_change_once",
                on=FED,
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

"""The fault matrix as data: which tests prove which row, on which database, into Delta, a feed and documents.

Points: P provision, S snapshot, H hand-over, R read, O Spark's offset log, V resolve, B build, W write,
F flush, L Spark's commit log, A acknowledge, T state.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A fault, where it strikes, and the tests (`file::name` under tests/faults) that prove its outcome: on
    every database, and on one alone."""

    number: int
    fault: str
    point: str
    proved: tuple[str, ...] = ()
    sqlite: tuple[str, ...] = ()
    postgres: tuple[str, ...] = ()

    def on(self, kind: str) -> tuple[str, ...]:
        """The tests of one database; none where the fault does not concern it."""
        alone: tuple[str, ...] = getattr(self, kind)
        return self.proved + alone


_SPARK = "test_spark.py::test_a_kill_at_this_point_loses_nothing"
_CHUNKS = (
    "test_snapshots.py::test_kills_inside_a_chunk_and_at_the_hand_over_repeat_no_finished_chunk_and_skip_none"
)
_LIFE = "test_spark.py::test_a_life_with_kills_in_snapshot_commit_and_worker_and_a_clean_stop_ends_equal"

ROWS = (
    Row(
        1,
        "kill -9 after triggers exist, before the first offset",
        "P",
        (
            "test_kills.py::test_a_kill_after_setup_and_before_the_first_offset_reuses_what_was_installed",
            _SPARK,
        ),
    ),
    Row(
        2,
        "kill -9 inside a snapshot chunk",
        "S",
        ("test_kills.py::test_a_kill_inside_a_chunk_resumes_at_that_chunk", _CHUNKS, _LIFE, _SPARK),
    ),
    Row(
        3,
        "kill -9 between last chunk and hand-over",
        "H",
        ("test_kills.py::test_a_kill_between_the_last_chunk_and_the_log_loses_nothing", _CHUNKS, _SPARK),
    ),
    Row(
        4,
        "kill -9 after offsets/N, before any read",
        "O",
        (
            "test_kills.py::test_a_kill_after_the_offset_is_logged_and_before_any_read_runs_the_same_batch",
            "test_kills.py::test_a_batch_that_was_killed_halfway_comes_again_with_the_same_rows",
            _SPARK,
        ),
    ),
    Row(5, "kill a Python worker inside read", "R", (_LIFE,)),
    Row(
        6,
        "the row changes between resolve and build",
        "V-B",
        (
            "test_kills.py::test_a_row_that_changes_after_its_chunk_was_planned_is_never_older_in_the_mirror",
            "test_documents.py::"
            "test_rows_that_change_between_resolve_and_build_give_documents_at_least_as_new",
        ),
    ),
    Row(
        7,
        "kill -9 after the sink applied, before its reply",
        "W",
        (
            "test_kills.py::test_a_kill_after_the_mirror_has_the_batch_and_before_its_reply_changes_nothing",
            "test_documents.py::"
            "test_a_kill_after_the_store_has_the_documents_and_before_its_reply_changes_nothing",
            "test_documents.py::"
            "test_a_kill_during_filling_or_publication_repeats_no_finished_chunk_and_loses_nothing",
            _SPARK,
        ),
    ),
    Row(
        8,
        "kill -9 after flush, before commits/N",
        "F-L",
        (
            "test_kills.py::test_a_kill_after_the_flush_and_before_the_commit_repeats_without_a_difference",
            _LIFE,
            _SPARK,
        ),
    ),
    Row(
        9,
        "kill -9 after commits/N, before acknowledging",
        "L-A",
        (
            "test_kills.py::test_a_kill_after_the_commit_and_before_the_acknowledgement_rewrites_nothing",
            "test_spark.py::test_a_kill_after_the_commit_rewrites_nothing_and_the_source_is_told_after",
            _SPARK,
        ),
    ),
    Row(
        10,
        "idle for long while other tables write",
        "A",
        postgres=("test_slots.py::test_the_acknowledged_position_goes_on_while_other_tables_write",),
    ),
    Row(
        11,
        "SIGTERM inside a batch",
        "all",
        (
            "test_kills.py::test_sigterm_inside_a_batch_ends_soon_and_well_and_nothing_is_repeated",
            _LIFE,
        ),
    ),
    Row(
        12,
        "second instance on the same state; a frozen one thawed later",
        "P,T",
        (
            "test_owners.py::test_a_second_process_on_the_same_state_is_refused_by_name_while_the_first_lives",
            "test_owners.py::test_a_new_query_on_a_state_in_use_is_refused_and_leaves_the_cursor_alone",
            "test_owners.py::test_a_frozen_process_is_succeeded_after_its_lease_and_fenced_when_it_thaws",
            "test_spark.py::test_a_second_spark_is_refused_and_a_frozen_one_is_succeeded_and_fenced",
        ),
    ),
    Row(
        13,
        "TCP reset during a snapshot",
        "S",
        postgres=(
            "test_snapshots.py::"
            "test_a_connection_reset_inside_a_chunk_is_made_again_and_every_row_comes_once",
        ),
    ),
    Row(
        14,
        "TCP cut inside one protocol message",
        "R",
        postgres=(
            "test_network.py::"
            "test_a_connection_cut_inside_a_message_goes_on_at_a_boundary_and_delivers_no_half",
        ),
    ),
    Row(
        15,
        "server frozen, no reset",
        "R,W",
        postgres=(
            "test_network.py::test_a_frozen_server_is_given_up_in_time_and_told_of_and_taken_up_again",
        ),
    ),
    Row(
        16,
        "sink 100 times slower than the source",
        "R,W",
        ("test_delivery.py::test_a_slow_sink_pauses_capture_within_its_bounds_and_nothing_is_lost",),
        postgres=("test_network.py::test_a_slow_sink_keeps_its_connection_and_its_slot_within_the_bounds",),
    ),
    Row(
        17,
        "another server answers",
        "R",
        postgres=("test_network.py::test_another_server_that_answers_is_refused_and_the_right_one_goes_on",),
    ),
    Row(
        18,
        "database killed and restarted",
        "R",
        postgres=("test_network.py::test_a_server_that_dies_under_writers_and_comes_again_leaves_no_gap",),
    ),
    Row(
        19,
        "slot dropped while down",
        "P",
        postgres=(
            "test_slots.py::"
            "test_a_slot_that_was_dropped_while_down_stops_with_the_remedy_and_a_snapshot_heals",
        ),
    ),
    Row(
        20,
        "log purged",
        "R",
        postgres=(
            "test_slots.py::"
            "test_a_log_that_was_purged_stops_with_the_first_position_there_is_and_a_snapshot_heals",
        ),
    ),
    Row(
        21,
        "slot recreated by hand elsewhere",
        "P",
        postgres=("test_slots.py::test_a_slot_that_was_made_again_by_hand_is_refused_wherever_it_stands",),
    ),
    Row(
        22,
        "source restored from a backup",
        "R",
        sqlite=("test_state.py::test_a_database_restored_from_an_older_copy_is_refused",),
        postgres=("test_slots.py::test_a_server_restored_from_a_backup_is_refused",),
    ),
    Row(
        23,
        "publication or table dropped, column unpublished",
        "R",
        postgres=(
            "test_published.py::"
            "test_a_table_that_is_not_published_as_it_was_stops_alone_and_the_other_goes_on",
            "test_published.py::test_a_publication_that_is_dropped_stops_the_pipeline_with_the_remedy",
        ),
    ),
    Row(
        24,
        "SELECT revoked, then restart",
        "S,B",
        ("test_snapshots.py::test_a_finished_snapshot_is_not_read_again_though_nobody_may_read_the_table",),
        postgres=(
            "test_snapshots.py::"
            "test_a_snapshot_that_may_not_be_read_on_prints_the_grant_and_goes_on_after_it",
        ),
    ),
    Row(
        25,
        "database disk full, later freed",
        "R",
        postgres=("test_network.py::test_a_server_whose_disk_is_full_is_waited_for_until_space_is_freed",),
    ),
    Row(
        26,
        "long transaction across our restart, short ones around it",
        "R",
        ("test_transactions.py::test_a_first_start_waits_for_a_transaction_that_is_in_its_way",),
        sqlite=(
            "test_transactions.py::test_a_long_transaction_across_a_restart_and_short_ones_around_it_all_arrive",
        ),
        postgres=(
            "test_transactions.py::"
            "test_a_long_transaction_across_restarts_and_short_ones_inside_all_arrive_whole",
        ),
    ),
    Row(
        27,
        "a million rows in one transaction; ten thousand with one position; restart in the middle",
        "R,O",
        (
            "test_transactions.py::"
            "test_three_hundred_thousand_rows_of_one_transaction_survive_kills_in_the_middle",
            "test_transactions.py::test_a_million_rows_of_one_transaction_survive_kills_in_the_middle",
            "test_transactions.py::test_ten_thousand_changes_with_one_position_are_not_parted_by_a_restart",
            "test_spark.py::test_a_large_transaction_survives_a_kill_while_it_is_read",
        ),
    ),
    Row(
        28,
        "rollback, rollback to savepoint, failed commit",
        "R",
        ("test_transactions.py::test_nothing_of_what_was_rolled_back_is_ever_seen",),
    ),
    Row(
        29,
        "insert+delete+insert of a key, key change, child moved, parent deleted, TRUNCATE, one batch",
        "V,B",
        (
            "test_snapshots.py::"
            "test_all_that_can_happen_to_rows_and_their_parents_in_one_batch_leaves_the_right_rows",
            "test_documents.py::test_all_that_can_happen_to_rows_in_one_batch_leaves_the_right_documents",
        ),
    ),
    Row(
        30,
        "partial images of every kind",
        "R",
        postgres=(
            "test_images.py::test_what_an_image_does_not_carry_is_neither_lost_nor_written_as_null",
            "test_images.py::"
            "test_a_key_that_changes_without_its_large_column_is_moved_whole_or_stops_with_the_remedy",
            "test_images.py::test_an_identity_without_the_primary_key_stops_the_mirror_with_the_remedy",
            "test_images.py::test_an_identity_that_changes_while_rows_come_is_followed",
        ),
    ),
    Row(
        31,
        "DDL inside a transaction with rows, restart before and after",
        "R,B",
        postgres=(
            "test_images.py::"
            "test_rows_around_an_altered_table_in_one_transaction_are_read_by_their_own_schema",
        ),
    ),
    Row(
        32,
        "clocks jump",
        "R",
        postgres=("test_images.py::test_clocks_that_jump_do_not_change_the_order",),
    ),
    Row(
        33,
        "state truncated, bit-flipped, newer version, other source",
        "T",
        (
            "test_state.py::test_damaged_or_newer_state_is_refused_by_name_and_nothing_is_acknowledged",
            "test_state.py::test_a_damaged_segment_is_captured_again",
            "test_state.py::test_state_of_another_source_is_refused",
        ),
    ),
    Row(
        34,
        "state unreadable",
        "T",
        ("test_state.py::test_state_that_cannot_be_read_is_an_error_and_not_taken_for_none",),
    ),
    Row(
        35,
        "state disk full",
        "T,O",
        (
            "test_state.py::test_a_full_state_disk_acknowledges_nothing_and_heals_when_space_is_freed",
            "test_state.py::test_a_kill_while_the_state_disk_is_full_leaves_no_torn_file",
            "test_state.py::test_a_full_checkpoint_disk_ends_the_run_and_heals",
        ),
    ),
    Row(
        36,
        "state restored from yesterday; or ahead of the source",
        "T",
        (
            "test_state.py::test_state_of_yesterday_is_refused_where_the_log_is_gone",
            "test_state.py::test_state_of_yesterday_converges_where_the_log_is_there",
            "test_state.py::test_a_changelog_of_yesterday_under_a_checkpoint_of_today_goes_on",
        ),
        sqlite=("test_state.py::test_a_database_restored_from_an_older_copy_is_refused",),
        postgres=("test_slots.py::test_a_server_restored_from_a_backup_is_refused",),
    ),
    Row(
        38,
        "some of a batch is taken, some refused for now, some for ever",
        "W",
        (
            "test_documents.py::"
            "test_of_mixed_answers_the_passing_are_tried_again_and_the_poison_is_written_down",
        ),
    ),
    Row(
        39,
        "an old batch's write arrives after a newer one",
        "W",
        (
            "test_delivery.py::test_old_batches_that_arrive_after_newer_ones_change_nothing",
            "test_documents.py::test_writes_of_old_batches_that_arrive_after_newer_ones_change_no_document",
        ),
    ),
    Row(
        40,
        "a batch delivered three times, partitions shuffled, speculative twins",
        "W",
        (
            "test_delivery.py::test_batches_delivered_three_times_shuffled_and_by_twins_leave_the_same_state",
            "test_documents.py::test_documents_of_batches_delivered_three_times_and_shuffled_are_the_same",
        ),
    ),
)

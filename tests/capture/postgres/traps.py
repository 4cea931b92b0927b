"""The facts and traps of PostgreSQL as data: which tests prove each of them on a real server.

A test is named `file::name` under tests/. `test_traps.py` sees to it that they exist. Traps of every database
stand first, then PostgreSQL's own, then what Spark's data sources ask of a source.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Trap:
    """Something that goes wrong by itself, and the tests that show that it does not here."""

    name: str
    fact: str
    proved: tuple[str, ...]


def _trap(name: str, fact: str, *proved: str) -> Trap:
    return Trap(name, fact, tuple(f"capture/postgres/test_{test}" for test in proved))


TRAPS = (
    _trap(
        "clean_restart",
        "the position is the first that was not consumed: a clean stop and start brings nothing",
        "stream.py::test_a_clean_restart_brings_nothing_again",
    ),
    _trap(
        "whole_transactions",
        "all changes of a transaction share its commit's position and are acknowledged together",
        "stream.py::test_a_transaction_is_one_part_with_one_position_over_all_tables",
        "stream.py::test_only_acknowledged_transactions_are_confirmed",
    ),
    _trap(
        "interleaved",
        "transactions commit in another order than they began; single changes are not in order",
        "stream.py::test_interleaved_transactions_come_in_the_order_of_their_commits",
    ),
    _trap(
        "rolled_back",
        "nothing is seen of what was rolled back, to a savepoint too",
        "stream.py::test_what_was_rolled_back_is_not_seen",
        "stream_large.py::test_a_large_transaction_that_is_rolled_back_is_never_seen",
    ),
    _trap(
        "never_at_now",
        "a lost slot, a purged log, another server, a restored backup: stop and name the remedy",
        "provision.py::test_register_is_idempotent_and_refuses_a_position_whose_log_is_gone",
        "faults.py::test_a_slot_that_is_not_ours_any_more_stops_with_the_remedy",
        "faults.py::test_a_slot_whose_log_was_removed_stops_with_the_remedy",
        "faults.py::test_another_server_is_refused",
        "faults.py::test_a_server_older_than_the_state_is_refused",
        "faults.py::test_a_promoted_server_is_refused_by_its_timeline",
    ),
    _trap(
        "no_maximum",
        "a stream goes on where its consumer is, not where the slot or the server is, whichever is later",
        "stream.py::test_a_restart_goes_on_after_what_was_taken_whatever_was_acknowledged",
    ),
    _trap(
        "same_values",
        "snapshot and stream agree for every type, value by value",
        "fidelity.py::test_every_type_is_the_same_by_stream_and_by_snapshot",
        "fidelity.py::test_every_type_is_the_same_by_sql_by_snapshot_and_by_the_logs_text",
        "fidelity.py::test_the_text_of_a_type_that_spark_lacks_is_read_back_by_the_server_as_the_same_value",
        "types_random.py::test_random_rows_of_every_type_are_the_same_by_sql_by_snapshot_and_by_stream",
    ),
    _trap(
        "session_settings",
        "the role's and database's own settings of dates, intervals, floats, bytes and zones change nothing",
        "fidelity.py::test_every_session_has_the_settings_that_make_text_canonical",
        "types_random.py::test_random_rows_of_every_type_are_the_same_by_sql_by_snapshot_and_by_stream",
    ),
    _trap(
        "encodings",
        "databases have other encodings, or none, and hold bytes that are no text",
        "types_encodings.py::test_text_of_any_encoding_is_the_same_by_sql_by_snapshot_and_by_stream",
        "types_encodings.py::test_a_process_without_a_stream_can_look_into_a_slot_whose_texts_are_no_utf_8",
        "snapshot.py::test_text_of_any_encoding_arrives",
    ),
    _trap(
        "catalog_keys",
        "key columns and their order come from the catalog, not from what the log flags",
        "traps.py::test_the_key_under_a_full_identity_is_the_catalogs_though_the_log_flags_every_column",
        "stream.py::test_the_schema_in_the_stream_is_the_one_that_describe_gives",
        "catalog.py::test_a_table_is_described_with_its_key_in_key_order_and_without_generated_columns",
    ),
    _trap(
        "key_change",
        "a change of the key carries the old key and the new one",
        "stream.py::test_every_operation_comes_in_order_with_its_images",
    ),
    _trap(
        "truncate",
        "TRUNCATE has no key and touches every row, of its cascade too",
        "stream.py::test_a_truncation_names_every_table_of_its_cascade",
    ),
    _trap(
        "equal_rows",
        "two equal rows of a table without a key are two rows",
        "stream.py::test_two_equal_rows_of_a_table_without_a_key_are_two",
        "chunks.py::test_a_table_without_a_key_is_cut_by_the_place_of_its_rows",
    ),
    _trap(
        "identifiers",
        "names are quoted always: reserved, quotes, spaces, case, dots, unicode, percent, injections",
        "traps.py::test_names_of_any_characters_are_published_streamed_and_read",
        "stream.py::test_names_that_need_quotes_are_captured",
        "chunks.py::test_names_of_any_characters_are_cut_and_read",
        "catalog.py::test_a_name_of_any_characters_is_found_and_described",
    ),
    _trap(
        "two_schemas",
        "two schemas have a table of one name",
        "traps.py::test_two_tables_of_one_name_in_two_schemas_are_told_apart_in_stream_and_snapshot",
        "catalog.py::test_one_name_in_two_schemas_is_decided_by_the_search_path_or_refused",
    ),
    _trap(
        "idle_tables",
        "the acknowledged position moves while the watched tables are idle on a busy server",
        "stream.py::test_the_slot_moves_on_while_the_watched_tables_are_idle",
    ),
    _trap(
        "back_pressure",
        "back-pressure reaches the server, and keepalives are answered while it lasts",
        "faults.py::test_back_pressure_keeps_the_connection_alive",
        "faults.py::test_a_server_can_shut_down_while_changes_are_not_acknowledged",
    ),
    _trap(
        "publication_first",
        "a slot older than its publication cannot be decoded, for ever",
        "traps.py::test_no_slot_is_made_before_there_is_a_publication",
        "traps.py::test_a_slot_older_than_its_publication_stops_with_the_remedy_and_is_not_retried",
    ),
    _trap(
        "writers_before_setup",
        "a transaction that wrote before its table was published is not whole in the log",
        "provision.py::test_setup_waits_for_transactions_that_wrote_before_it",
        "provision.py::test_a_table_that_began_after_the_position_needs_a_snapshot",
    ),
    _trap(
        "large_transactions",
        "transactions stream while they run, wait on disk, and are seen at their commit only",
        "stream_large.py::test_a_large_transaction_comes_at_its_commit_in_parts_and_in_order",
        "stream_large.py::test_two_large_transactions_side_by_side_come_apart",
        "stream_large.py::test_what_does_not_fit_in_memory_goes_to_disk_and_leaves_nothing",
        "stream_large.py::test_a_large_transaction_across_a_restart_is_whole",
        "stream_large.py::test_streamed_and_plain_deliveries_number_their_rows_alike",
    ),
    _trap(
        "old_tuples",
        "a key-only old tuple has every column, those outside of the key without meaning; an ordinary update"
        " has no old tuple at all",
        "stream.py::test_every_operation_comes_in_order_with_its_images",
        "stream.py::test_an_identity_by_index_brings_its_columns",
        "stream.py::test_a_full_identity_brings_whole_rows_before",
        "decode.py::test_every_kind_of_image_is_told_apart",
    ),
    _trap(
        "no_identity",
        "publishing a table without identity would make the application's updates fail",
        "provision.py::test_a_table_whose_rows_the_log_cannot_tell_apart_is_refused_before_it_is_published",
    ),
    _trap(
        "unchanged_toast",
        "a large value that did not change is absent, not NULL, and still so with a change of the key",
        "stream.py::test_a_large_value_that_did_not_change_is_absent_not_null",
    ),
    _trap(
        "generated_columns",
        "stored generated columns are in a table's rows and not in the log before 18",
        "traps.py::test_generated_columns_are_in_neither_snapshot_nor_stream",
        "snapshot.py::test_generated_columns_are_left_out_and_a_table_of_nothing_else_still_counts",
        "catalog.py::test_a_key_with_a_generated_column_is_no_key_of_the_images",
    ),
    _trap(
        "partitions",
        "partitions come by their root; the catalog lists leaves; rows move; partitions differ and are added",
        "stream.py::test_partitions_come_in_the_name_of_their_root",
        "traps.py::test_a_partition_that_is_added_later_is_captured_and_rows_move_into_it",
        "traps.py::test_a_publication_that_names_partitions_by_themselves_is_not_taken_for_the_roots",
        "chunks.py::test_a_partitioned_table_is_cut_by_its_root",
    ),
    _trap(
        "visibility",
        "a commit is decoded before others see it, long before under synchronous replication",
        "traps.py::test_a_chunk_read_while_the_stream_runs_is_never_older_than_what_was_delivered",
        "faults.py::test_a_commit_that_waits_for_a_standby_is_delivered_but_not_visible_yet",
        "faults.py::test_a_long_transaction_that_was_never_delivered_stalls_no_reader",
    ),
    _trap(
        "xid8",
        "snapshots name transactions by 64 bits, the log by 32",
        "traps.py::test_transaction_ids_beyond_32_bits_are_told_apart_from_those_that_run",
    ),
    _trap(
        "standby",
        "functions of the log's end fail on a standby",
        "traps.py::test_a_standby_is_refused_by_name_whatever_is_asked_of_it",
    ),
    _trap(
        "slot_is_active",
        "an old walsender may hold the slot for a moment",
        "faults.py::test_a_slot_that_another_process_reads_is_waited_for",
        "faults.py::test_a_killed_walsender_is_a_passing_fault",
    ),
    _trap(
        "errors_behind_data",
        "libpq tells once why a stream ended, and not when it is asked again",
        "traps.py::test_why_the_server_ended_a_stream_is_told_also_where_changes_came_right_before",
    ),
    _trap(
        "slot_watch",
        "a slot keeps log until the disk is full, or loses it where that is bounded",
        "provision.py::test_a_slot_over_its_budget_is_warned_of",
        "faults.py::test_a_slot_whose_log_was_removed_stops_with_the_remedy",
    ),
    _trap(
        "exact_sql",
        "where the role may not, the exact SQL is printed",
        "provision.py::test_a_role_that_may_not_publish_is_told_the_exact_sql",
        "provision.py::test_coverage_names_missing_rights_with_the_sql_that_gives_them",
    ),
    _trap(
        "ddl",
        "columns are added with a default, dropped, renamed, retyped, in one transaction with rows",
        "stream.py::test_columns_that_change_are_decoded_by_the_schema_of_their_position",
        "stream_large.py::test_columns_may_change_inside_a_large_transaction",
        "traps.py::test_columns_added_with_a_default_read_the_same_by_snapshot_as_later_changes_say",
    ),
    _trap(
        "keys_of_any_type",
        "chunks hold every row once whatever the key: its type, collation, gaps and later rows",
        "chunks.py::test_a_key_of_any_type_cuts_the_table_cleanly",
        "chunks.py::test_a_large_table_is_cut_evenly_by_a_sample_in_spite_of_gaps_and_skew",
    ),
    _trap(
        "ways_to_write",
        "upserts are speculative, merges and cascades touch other rows, exceptions are subtransactions, a"
        " rewrite moves every row",
        "traps.py::test_every_way_to_write_a_row_is_one_change_of_it",
        "traps.py::test_changes_that_were_replicated_from_elsewhere_are_captured_too",
    ),
    _trap(
        "two_phases",
        "a prepared transaction holds its rows back until it is committed, for days perhaps",
        "traps.py::test_a_prepared_transaction_comes_when_it_is_committed_and_never_when_it_is_rolled_back",
    ),
    _trap(
        "row_security",
        "row security hides rows from a snapshot that the log shows",
        "snapshot.py::test_row_security_stops_a_snapshot_instead_of_hiding_rows",
    ),
    _trap(
        "two_queries",
        "two queries are two readers of the log, each with a position of its own",
        "traps.py::test_two_consumers_read_the_same_log_and_neither_moves_the_others_position",
    ),
    _trap(
        "any_range_first",
        "a fresh process may ask first for a range that was planned before: the slot still has it",
        "stream.py::test_a_restart_goes_on_after_what_was_taken_whatever_was_acknowledged",
    ),
)

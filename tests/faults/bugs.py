"""Seeded bugs, each of which an oracle must catch."""

from __future__ import annotations

from tests.faults.matrix import Bug

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
        "O1",
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
        "O3, O1",
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
        "other-keys",
        "a body that is sent again has another key",
        "O2",
        "test_a_body_that_comes_again_under_another_key_is_caught",
    ),
    Bug(
        "never-acknowledge",
        "nothing is ever acknowledged",
        "O4",
        "test_an_acknowledgement_that_never_comes_is_caught",
    ),
    Bug(
        "no-pause",
        "capture goes on though the changelog is full",
        "O6",
        "test_a_capture_that_does_not_pause_before_a_full_changelog_is_caught",
    ),
    Bug(
        "nothing killed",
        "a kill test in which nothing was killed",
        "the harness",
        "test_a_kill_in_which_nothing_was_killed_fails",
    ),
)

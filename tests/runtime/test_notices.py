"""What a capture lives with is told once, again after a while, and when it is over."""

from __future__ import annotations

from tailrace.capture.contract import Finding
from tailrace.runtime.notices import REMIND_SECONDS, Notices
from tailrace.runtime.observer import Recorder

BUDGET = Finding("warning", "wal_budget", "too much log", None, "run the pipeline")
STOPPED = Finding("error", "table_stopped", "table a is gone", "public.a", "tailrace setup")


def test_a_notice_is_told_once_and_again_only_after_a_while() -> None:
    seen, now = Recorder(), [0.0]
    notices = Notices(seen, clock=lambda: now[0])
    for _ in range(5):
        notices.tell([BUDGET])
        now[0] += REMIND_SECONDS / 5
    assert seen.count("source.notice") == 1
    notices.tell([BUDGET])
    assert seen.count("source.notice") == 2
    assert seen.fields("source.notice")["remedy"] == "run the pipeline"


def test_each_table_is_told_for_itself_and_the_end_of_a_notice_too() -> None:
    seen = Recorder()
    notices = Notices(seen)
    notices.tell([BUDGET, STOPPED])
    notices.tell([STOPPED, Finding("error", "table_stopped", "table b is gone", "public.b")])
    notices.tell([])
    notices.tell([BUDGET])
    told = [(name, fields["code"], fields["table"]) for name, fields in seen.events]
    assert told == [
        ("source.notice", "wal_budget", None),
        ("source.notice", "table_stopped", "public.a"),
        ("source.notice", "table_stopped", "public.b"),
        ("source.notice.over", "wal_budget", None),
        ("source.notice.over", "table_stopped", "public.a"),
        ("source.notice.over", "table_stopped", "public.b"),
        ("source.notice", "wal_budget", None),
    ]

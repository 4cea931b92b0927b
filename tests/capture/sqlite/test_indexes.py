"""CREATE INDEX taken apart."""

from __future__ import annotations

import pytest

from tailrace.capture.sqlite.indexes import IndexText, parse, qualify


@pytest.mark.parametrize(
    ("sql", "terms", "where"),
    [
        ("CREATE UNIQUE INDEX i ON t (a)", ("a",), None),
        ("create unique index i on t(a desc, lower( b ) ASC) ;", ("a", "lower( b )"), None),
        (
            "CREATE INDEX i ON t (a || ',' || ')', f(x, (y))) WHERE a = 'WHERE ('",
            ("a || ',' || ')'", "f(x, (y))"),
            "a = 'WHERE ('",
        ),
        ("CREATE INDEX i ON t -- (x\n (a /* , */) WHERE\n b > 0", ("a",), "b > 0"),
        ('CREATE INDEX i ON t ("a""b", [c d], `e`)', ('"a""b"', "[c d]", "`e`"), None),
    ],
)
def test_terms_and_condition_are_found(sql: str, terms: tuple[str, ...], where: str | None) -> None:
    assert parse(sql) == IndexText(terms, where)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("lower(a)", 'lower(NEW."a")'),
        ("A + [b c] + `a`", 'NEW."a" + NEW."b c" + NEW."a"'),
        ("'a' || x'aa' || \"a\"", "'a' || x'aa' || NEW.\"a\""),
        ("a(a) COLLATE a", 'a(NEW."a") COLLATE a'),
        ("CAST(a AS a)", 'CAST(NEW."a" AS a)'),
        ('CASE WHEN "end" THEN 1 END', 'CASE WHEN NEW."end" THEN 1 END'),
        ("1e5 + 0xa + a1", "1e5 + 0xa + a1"),
    ],
)
def test_columns_and_only_columns_are_qualified(expression: str, expected: str) -> None:
    assert qualify(expression, "NEW", ["a", "b c", "end"]) == expected

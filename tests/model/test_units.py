"""Limits as people write them."""

from __future__ import annotations

import pytest

from tailrace.model.units import Limit, Share, parse_lag, parse_limit, parse_share


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("256MB", Limit(bytes=256 << 20)),
        ("30s", Limit(seconds=30)),
        ("500 changes", Limit(changes=500)),
        ("1 change", Limit(changes=1)),
        (" 1GB ,5m", Limit(bytes=1 << 30, seconds=300)),
        ("5M, 5m, 5 changes", Limit(5 << 20, 300, 5)),
    ],
)
def test_a_limit_is_read_and_shown_so_that_it_is_read_again(text: str, limit: Limit) -> None:
    assert parse_limit(text) == limit
    assert parse_limit(str(limit)) == limit


@pytest.mark.parametrize(
    "value", ["", "5", "0s", "0 changes", "fast", "1GB,", "1GB, 2GB", 5, True, None, "-1s"]
)
def test_what_is_no_limit_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="must be a size"):
        parse_limit(value)


def test_a_standby_counts_no_changes() -> None:
    assert parse_lag("1GB, 30s") == Limit(bytes=1 << 30, seconds=30)
    with pytest.raises(ValueError, match="or both"):
        parse_lag("5 changes")


def test_a_share_is_a_number_or_a_part_of_what_there_can_be() -> None:
    assert (parse_share("50"), parse_share(50), parse_share(" 80 %")) == (
        Share(50),
        Share(50),
        Share(80, True),
    )
    assert (Share(50).of(None), Share(80, True).of(200), Share(80, True).of(None)) == (50, 160, None)
    assert parse_share(str(Share(80, True))) == Share(80, True)


@pytest.mark.parametrize("value", ["", "0", "0%", "101%", "-5", "many", 0, True, 1.5, None])
def test_what_is_no_share_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="must be a whole number"):
        parse_share(value)

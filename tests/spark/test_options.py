"""Options of format("tailrace"): wrong ones are refused by name before anything is opened."""

from __future__ import annotations

import pytest

from tailrace.model.errors import ConfigError
from tailrace.spark.options import DESCRIPTIONS, SourceOptions

REQUIRED = {"url": "sqlite:shop.db", "tables": "orders"}


def test_defaults_are_the_documented_ones() -> None:
    options = SourceOptions.parse(REQUIRED)
    assert options.tables == ("orders",)
    assert options.starting == "earliest"
    assert options.limits == (200_000, 64 * 1024 * 1024)
    assert options.fail_on_data_loss
    assert options.view is None


def test_names_of_options_do_not_care_about_case_as_in_spark() -> None:
    assert SourceOptions.parse({**REQUIRED, "maxrowspertrigger": "7"}).max_rows == 7


def test_tables_may_be_a_list_or_json_where_names_have_commas() -> None:
    assert SourceOptions.parse({**REQUIRED, "tables": "a, b"}).tables == ("a", "b")
    assert SourceOptions.parse({**REQUIRED, "tables": '["a, b", "c"]'}).tables == ("a, b", "c")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"tabels": "x"}, "did you mean `tables`"),
        ({"path": "x"}, "path"),
        ({"maxRowsPerTrigger": "many"}, "maxRowsPerTrigger"),
        ({"maxRowsPerTrigger": "0"}, "maxRowsPerTrigger"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss"),
        ({"view": "rows"}, "view"),
        ({"startingOffsets": "yesterday"}, "startingOffsets"),
        ({"types": "[]"}, "types"),
        ({"sourceOptions": "publication"}, "sourceOptions"),
        ({"tables": "a,,b"}, "tables"),
        ({"tables": "[1]"}, "tables"),
        ({"url": " "}, "url"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        SourceOptions.parse({**REQUIRED, **given})


def test_a_password_in_the_url_is_refused_and_not_shown() -> None:
    for url in ("postgresql://me:c4n4ry@db/shop", "postgresql://db/shop?password=c4n4ry"):
        with pytest.raises(ConfigError, match="password") as caught:
            SourceOptions.parse({**REQUIRED, "url": url})
        assert "c4n4ry" not in str(caught.value)
    for url in (
        "postgresql://me:${PASSWORD}@db/shop",
        "postgresql://db/shop?password=${PASSWORD}",
        "sqlite:a:b@c.db",
    ):
        assert SourceOptions.parse({**REQUIRED, "url": url}).url == url


def test_every_option_is_described() -> None:
    assert all(text.endswith(".") for text in DESCRIPTIONS.values())

"""The limits of `[snapshot]`: read with their units, handed to the source, refused with their place."""

from __future__ import annotations

import pytest

from tailrace.spark.options import SourceOptions
from tests.config.conftest import MINIMAL, Load, Refuse

ALL = """\
[snapshot]
rows_per_second = 20000
connections = 2
pause_lag = "256MB, 30s, 500 changes"
pause_standby_lag = "1GB, 1m"
pause_connections = "80%"
pause_active = 20
pause_retained = "4GB"
"""


def test_every_limit_reaches_the_source_as_it_was_written(load: Load) -> None:
    config = load(MINIMAL + ALL)
    options = {"url": config.source.url, "tables": "orders", **config.snapshot.options()}
    limits = SourceOptions.parse(options).throttle
    assert limits.rows_per_second == 20000
    assert limits.connections == 2
    assert str(limits.lag) == "256MB, 30s, 500 changes"
    assert str(limits.standby_lag) == "1GB, 1m"
    assert str(limits.others) == "80%"
    assert limits.active == 20
    assert limits.retained == 4 << 30
    assert config.shown()["snapshot"]["pause_lag"] == "256MB, 30s, 500 changes"
    assert config.shown()["snapshot"]["pause_connections"] == "80%"


def test_without_the_section_there_is_no_limit(load: Load) -> None:
    assert load(MINIMAL).snapshot.options() == {}


def test_a_limit_can_be_set_from_outside_the_file(load: Load) -> None:
    config = load(MINIMAL, snapshot__pause_connections="50", snapshot__pause_lag="10s")
    assert config.snapshot.options() == {"snapshotPauseConnections": "50", "snapshotPauseLag": "10s"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("rows_per_second = 0", "must be greater than or equal to 1"),
        ("rows_per_second = true", "must be a whole number"),
        ("connections = 0", "must be greater than or equal to 1"),
        ("connections = 'two'", "must be"),
        ("pause_lag = '5'", "must be a size, a duration, a number of changes"),
        ("pause_lag = 30", "must be a size, a duration, a number of changes"),
        ("pause_lag = '30s, 40s'", "must be a size, a duration, a number of changes"),
        ("pause_standby_lag = '5 changes'", "must be a size, a duration or both"),
        ("pause_connections = '120%'", "must be a whole number above zero"),
        ("pause_active = -1", "must be greater than or equal to 1"),
        ("pause_retained = '5 apples'", "must be a size above zero"),
        ("rows_per_secnd = 5", "did you mean `rows_per_second`?"),
    ],
)
def test_a_wrong_limit_is_refused_with_its_place(refuse: Refuse, line: str, message: str) -> None:
    error = refuse(MINIMAL + "[snapshot]\n" + line + "\n")
    assert error.place == f"file:5 (snapshot.{line.partition(' ')[0]})"
    assert message in error.message

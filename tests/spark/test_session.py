"""The settings of our own sessions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.spark.session import defaults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_arrow_does_not_test_each_access_again_and_java_options_of_the_user_hold_too(
    spark: SparkSession,
) -> None:
    jvm = spark._jvm
    assert not jvm.org.apache.arrow.memory.BoundsChecking.BOUNDS_CHECKING_ENABLED
    given = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    assert "-XX:+UseSerialGC" in list(given)


@pytest.mark.parametrize("master", ["local[2]", "yarn"])
def test_the_page_lists_every_setting(master: str, root: Path) -> None:
    page = (root / "docs/spark.md").read_text(encoding="utf-8")
    for name, value in defaults(master).items():
        assert re.search(rf"^{re.escape(name)} +{re.escape(value)}$", page, re.MULTILINE), name

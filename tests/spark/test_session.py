"""The settings of our own sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

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

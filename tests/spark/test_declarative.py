"""Declarative Pipelines: the discovered source feeds a streaming table."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.shop import Shop

pytestmark = [pytest.mark.spark, pytest.mark.long]

SPEC = """
name: orders
storage: file://{directory}/storage
libraries:
  - glob:
      include: definitions/**
"""
DEFINITION = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()


@dp.table
def order_changes():
    return (
        spark.readStream.format("tailrace").option("url", "{url}").option("tables", "orders")
        .option("stateDir", "{directory}/state").option("view", "table").load()
    )
"""


@pytest.mark.usefixtures("connect_port")
def test_a_declarative_pipeline_reads_the_source_without_registering(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.insert(0, 25)
    (tmp_path / "definitions").mkdir()
    (tmp_path / "spark-pipeline.yml").write_text(SPEC.format(directory=tmp_path))
    (tmp_path / "definitions/orders.py").write_text(DEFINITION.format(url=shop.url, directory=tmp_path))
    done = subprocess.run(
        [Path(sys.executable).parent / "spark-pipelines", "run"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "COMPLETED" in done.stdout + done.stderr
    from pyarrow import dataset

    found = dataset.dataset(tmp_path / "spark-warehouse/order_changes", format="parquet").to_table()
    assert sorted(key for key in found["id"].to_pylist() if key is not None) == list(range(25))

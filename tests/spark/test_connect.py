"""Discovery: a Connect server finds the source by itself, without `register`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.shop import Shop
from tests.support.sparks import defaults_in

pytestmark = pytest.mark.spark

SCRIPT = """
import sys
from pyspark.sql import SparkSession

url, directory = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
rows = spark.read.format("tailrace").option("url", url).option("tables", "orders").load()
print("batch", rows.count())
changes = (
    spark.readStream.format("tailrace").option("url", url).option("tables", "orders")
    .option("stateDir", directory + "/state").option("view", "net").load()
)
query = (
    changes.writeStream.format("parquet").option("path", directory + "/out")
    .option("checkpointLocation", directory + "/checkpoint").trigger(availableNow=True).start()
)
query.awaitTermination()
print("stream", spark.read.parquet(directory + "/out").where("_change_type = 'upsert'").count())
try:
    spark.read.format("tailrace").option("url", url).option("tables", "nothing").load().schema
except Exception as error:
    import tailrace

    print("error", type(tailrace.cause(error)).__name__)
spark.stop()
"""


@pytest.mark.usefixtures("connect_port")
@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_connect_server_finds_the_source_and_streams(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.insert(0, 25)
    script = tmp_path / "connect.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script), shop.url, str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, **defaults_in(tmp_path / "conf"), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == ["batch 25", "stream 25", "error ConfigError"]

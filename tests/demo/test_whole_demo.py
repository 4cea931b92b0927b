"""The whole demonstration, as `make demo` runs it."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.cli.command import processes_naming
from tests.support import opensearch
from tests.support.installed import installation
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark


@pytest.fixture
def servers() -> None:
    """Skips where there are no servers to be started."""
    if (reason := opensearch.unavailable()) is not None:
        pytest.skip(reason)
    if installation() is None:
        pytest.skip("unavailable: a PostgreSQL server")


@contextmanager
def demonstration(directory: Path, root: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tailrace.demo"],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(root / "src"), "SINK": "", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.timeout(300)
def test_the_demonstration_ends_by_itself_with_every_mirror_equal_and_nothing_left_running(
    tmp_path: Path, root: Path
) -> None:
    with demonstration(tmp_path, root, DEMO_SECONDS="4") as process:
        output, errors = process.communicate(timeout=240)
    assert process.returncode == 0, output + errors
    assert "every mirror equals its table" in output
    assert "NOT EQUAL" not in output
    assert errors == ""
    assert "tailrace status -c demo/tailrace.toml" in output
    wait_until(lambda: not processes_naming(tmp_path), what="the end of every process")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("servers")
def test_the_demonstration_with_servers_ends_by_itself_with_every_document_equal_and_nothing_left_running(
    tmp_path: Path, root: Path
) -> None:
    with demonstration(tmp_path, root, DEMO_SECONDS="4", SINK="opensearch") as process:
        output, errors = process.communicate(timeout=540)
    assert process.returncode == 0, output + errors
    assert "every document equals its rebuild" in output
    assert "NOT EQUAL" not in output
    assert errors == ""
    wait_until(lambda: not processes_naming(tmp_path), what="the end of every process")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize("how", ["told", "killed"])
def test_servers_are_gone_however_the_demonstration_ends(tmp_path: Path, root: Path, how: str) -> None:
    with demonstration(tmp_path, root, SINK="opensearch") as process:
        assert process.stdout is not None
        told = next(line for line in process.stdout if "curl" in line)
        port = int(re.search(r"127\.0\.0\.1:(\d+)", told)[1])  # type: ignore[index]

        def answers() -> bool:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            try:
                connection.request("GET", "/")
                return connection.getresponse().status == 200
            except (OSError, http.client.HTTPException):
                return False
            finally:
                connection.close()

        wait_until(answers, timeout=240, what="the start of OpenSearch")
        started = psutil.Process(process.pid).children(recursive=True)
        if how == "told":
            process.terminate()
            assert process.wait(120) == 0
        else:
            process.kill()
        names = {one.name() for one in started if one.is_running()}
        _, alive = psutil.wait_procs(started, timeout=60)
        assert not alive, names
        assert len(started) > 5
        assert not answers()

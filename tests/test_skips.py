"""In CI a skip needs a reason that names what is unavailable; the rule is tests/conftest.py itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def _run(root: Path, place: Path, test: str, *, ci: str) -> subprocess.CompletedProcess[str]:
    shutil.copy(root / "tests/conftest.py", place / "conftest.py")
    (place / "pytest.ini").write_text("[pytest]\n")
    (place / "test_it.py").write_text(f"import pytest\n\n{test}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(place)]
    # The copy imports what the original imports.
    environment = {**os.environ, "CI": ci, "PYTHONPATH": str(root)}
    return subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


INSIDE = "def test_a():\n    pytest.skip({reason!r})\n\ndef test_b():\n    pass"
MODULE = "def test_b():\n    pass\n\npytest.skip({reason!r}, allow_module_level=True)"
MARK = "@pytest.mark.skip(reason={reason!r})\ndef test_a():\n    pass\n\ndef test_b():\n    pass"


@pytest.mark.parametrize("form", [INSIDE, MARK])
def test_a_skip_without_a_good_reason_fails_in_ci_only(root: Path, tmp_path: Path, form: str) -> None:
    test = form.format(reason="not today")
    done = _run(root, tmp_path, test, ci="true")
    assert done.returncode == 1
    assert "not today" in done.stdout
    assert _run(root, tmp_path, test, ci="").returncode == 0


def test_a_skipped_module_counts_too(root: Path, tmp_path: Path) -> None:
    # A session whose every test is skipped already ends with another code than success.
    (tmp_path / "test_more.py").write_text("def test_c():\n    pass\n")
    assert _run(root, tmp_path, MODULE.format(reason="not today"), ci="true").returncode == 1


@pytest.mark.parametrize("form", [INSIDE, MARK])
def test_a_skip_for_something_unavailable_is_accepted(root: Path, tmp_path: Path, form: str) -> None:
    done = _run(root, tmp_path, form.format(reason="unavailable: a second moon"), ci="true")
    assert done.returncode == 0, done.stdout


def test_an_expected_failure_is_no_skip(root: Path, tmp_path: Path) -> None:
    test = "@pytest.mark.xfail(reason='known')\ndef test_a():\n    assert False"
    assert _run(root, tmp_path, test, ci="true").returncode == 0

"""Documentation cannot lie: what is generated is fresh, what exists is described, what is shown runs."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tailrace.config import keys, load_config
from tailrace.model import errors
from tests.docs.blocks import Block, anchors, broken_links, code_blocks, links, runnable
from tests.support.sparks import defaults_in

PAGES = sorted((Path(__file__).resolve().parents[2] / "docs").glob("*.md"))


def _tracked(root: Path) -> list[Path]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("unavailable: the tree is not a git checkout")
    return [root / name for name in done.stdout.split("\0") if name and (root / name).is_file()]


def test_generated_parts_are_fresh(root: Path) -> None:
    command = [sys.executable, str(root / "scripts/docs"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_error_is_documented(root: Path) -> None:
    text = (root / "docs/errors.md").read_text(encoding="utf-8")
    classes = [
        name for name, cls in vars(errors).items() if isinstance(cls, type) and issubclass(cls, Exception)
    ]
    assert "Fenced" in classes
    assert [name for name in classes if f"| `{name}` |" not in text] == []


def test_every_configuration_key_is_documented(root: Path) -> None:
    text = (root / "docs/configuration.md").read_text(encoding="utf-8")
    assert [key for key in keys() if f"| `{key.name}` | {key.type} |" not in text] == []


def test_every_configuration_shown_is_accepted(root: Path, tmp_path: Path) -> None:
    blocks = code_blocks((root / "docs/configuration.md").read_text(encoding="utf-8"), "toml")
    assert blocks
    schema = code_blocks((root / "docs/index-language.md").read_text(encoding="utf-8"), "yaml")[0]
    (tmp_path / "customers.schema.yml").write_text(schema.body)
    for block in blocks:
        (tmp_path / "tailrace.toml").write_text(block.body)
        load_config(tmp_path / "tailrace.toml", environ={"HOOK_TOKEN": "x"})


def test_the_example_of_opensearch_is_accepted(root: Path, tmp_path: Path) -> None:
    text = (root / "docs/opensearch.md").read_text(encoding="utf-8")
    (schema,) = code_blocks(text, "yaml")
    (tmp_path / "customers.schema.yml").write_text(schema.body)
    for block in code_blocks(text, "toml"):
        (tmp_path / "tailrace.toml").write_text(block.body)
        load_config(tmp_path / "tailrace.toml", environ={"SEARCH_PASSWORD": "x"})


@pytest.mark.spark
def test_the_code_of_the_readme_runs_and_repeats_nothing(root: Path, tmp_path: Path) -> None:
    (block,) = runnable(root / "README.md")
    keys = re.compile(r'\|\{"id":(\d+)\}\|')
    assert keys.findall(run(block, root, tmp_path)) == ["1", "2"]
    assert keys.findall(run(block, root, tmp_path)) == ["3", "4"]


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("place", [f"{page.name}:{block.line}" for page in PAGES for block in runnable(page)])
def test_the_code_of_a_page_runs(root: Path, tmp_path: Path, place: str) -> None:
    page, _, line = place.partition(":")
    (block,) = [block for block in runnable(root / "docs" / page) if block.line == int(line)]
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        shop.executescript("PRAGMA journal_mode=WAL; CREATE TABLE orders (id INTEGER PRIMARY KEY, city TEXT)")
        shop.execute("INSERT INTO orders VALUES (7, 'Bergen')")
        shop.commit()
    write_deltalake(tmp_path / "lake" / "orders", pa.table({"id": [7], "city": ["Bergen"]}))
    shown = run(block, root, tmp_path)
    assert "orders" in shown or "Bergen" in shown


def run(block: Block, root: Path, directory: Path) -> str:
    """Run a block as it is printed; one that would go on for ever gets Ctrl-C after its first output."""
    script = directory / "block.py"
    script.write_text(block.body)
    with subprocess.Popen(
        [sys.executable, "-u", str(script)],
        cwd=directory,
        env={**os.environ, **defaults_in(directory / "conf"), "PYTHONPATH": str(root / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline() if "signal.SIGINT" in block.body else ""
        if first:
            process.send_signal(signal.SIGINT)
        try:
            shown, errors = process.communicate(timeout=170)
        finally:
            process.kill()
    assert process.returncode == 0, shown[-2000:] + errors[-4000:]
    return first + shown


def test_every_link_inside_the_documentation_leads_somewhere(root: Path) -> None:
    pages = [file for file in _tracked(root) if file.suffix == ".md"]
    broken = {str(page.relative_to(root)): found for page in pages if (found := broken_links(page))}
    assert broken == {}


def test_no_page_names_a_place_of_one_machine(root: Path) -> None:
    homes = re.compile(r"(?<![\w.~}])/(?:home|Users)/\w+/|(?<![\w.~}])/root/")
    own = f"{root}/"
    found = []
    for file in _tracked(root):
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if file != Path(__file__) and (homes.search(text) or own in text):
            found.append(str(file.relative_to(root)))
    assert found == []


def test_the_lock_file_names_no_registry(root: Path) -> None:
    text = (root / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in text
    assert [line for line in text.splitlines() if line.startswith("-")] == []


def test_no_tracked_file_names_a_registry(root: Path) -> None:
    # An index belongs to the machine that installs (pip's own configuration), never to the tree.
    option = re.compile(
        r"--(?:extra-)?index-url[ =]|--find-links[ =]|--trusted-host"
        r"|\[\[tool\.uv\.index\]\]|UV_INDEX|PIP_INDEX"
    )
    files = [
        file for file in _tracked(root) if file != Path(__file__) and file.suffix not in {".png", ".lock"}
    ]
    found = [
        str(file.relative_to(root))
        for file in files
        if option.search(file.read_text(encoding="utf-8", errors="replace"))
    ]
    assert found == []


def test_links_blocks_and_anchors_are_read_as_a_forge_reads_them() -> None:
    text = "# A `b` c, d\n[x](y.md#z) `[no](link)`\n```python\n[neither](this)\n# no heading\n```\n"
    text += "```toml\na = 1\n```\n"
    assert links(text) == ["y.md#z"]
    assert anchors(text) == {"a-b-c-d"}
    assert [(block.line, block.body) for block in code_blocks(text, "toml")] == [(8, "a = 1\n")]

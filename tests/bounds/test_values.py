"""Values of fifty megabytes come one by one: as many as there are, they take the memory of a few.

Documents of this size go to a store of SQLite's: OpenSearch refuses bodies of more than 100 MB by default,
and two of them, or one with many quotation marks in it, are more than that.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.bounds.grounds import Ground, md5, mirrored
from tests.bounds.rig import JVM_MB, Home, bounded

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(3600)]

MEGABYTES = int(os.environ.get("TAILRACE_BOUNDS_VALUE_MB", "50"))
SMALL, LARGE = 2, 12
# Whoever has a value has it several times: as it came, decoded, as a part of something larger.
CEILINGS = {"driver": 900.0, "jvm": JVM_MB + 512.0, "capture": 700.0, "workers": 900.0}
# A value more or less may be on its way, and was copied on it; all of them would be many times that.
SLACK = 3.0 * MEGABYTES
# The store's SQLite has a document some twenty times: in JSON's reader, in its words, in temporary tables.
DOCUMENTS = {**CEILINGS, "driver": 1500.0}
SUMS = "SELECT id, length(body), md5(body) FROM items ORDER BY id"


def _value(number: int) -> str:
    """A text that no compression makes much smaller than half."""
    return random.Random(number).randbytes(MEGABYTES * 512 * 1024).hex()


@pytest.fixture
def home(tmp_path: Path, ground: Ground) -> Iterator[Home]:
    made = Home(tmp_path, ground.url)
    ground.transaction("CREATE TABLE items (id BIGINT PRIMARY KEY, body TEXT NOT NULL)")
    ground.publish(["items"])
    yield made
    for directory in (made.lake, made.state):
        shutil.rmtree(directory, ignore_errors=True)


def _put(ground: Ground, first: int, count: int) -> None:
    rows = ((number, _value(number)) for number in range(first, first + count))
    ground.put("INSERT INTO items VALUES ({}, {})", rows)


def _equal(ground: Ground, home: Home, count: int) -> None:
    expected = ground.asked(SUMS)
    assert len(expected) == count
    assert {row[1] for row in expected} == {MEGABYTES * 1024 * 1024}
    assert mirrored(home.lake / "items", SUMS) == expected


def test_a_mirror_takes_large_values_from_the_log(ground: Ground, home: Home) -> None:
    home.configure('[[table]]\nname = "items"', heap=1024)
    _put(ground, 0, 1)
    with home.running() as running:
        running.phase("begin", 1)
        what = f"values of {MEGABYTES} MB in one transaction"
        small = running.phase(f"{SMALL} {what}", SMALL, lambda: _put(ground, 1, SMALL))
        large = running.phase(f"{LARGE} {what}", LARGE, lambda: _put(ground, 1 + SMALL, LARGE))
    _equal(ground, home, 1 + SMALL + LARGE)
    bounded(small, large, ceilings=CEILINGS, slack=SLACK)


def test_a_mirror_takes_large_values_from_a_snapshot(ground: Ground, home: Home) -> None:
    home.configure('[[table]]\nname = "items"', heap=1024, name="few")
    _put(ground, 0, SMALL)
    small = home.run(f"a snapshot of {SMALL} values of {MEGABYTES} MB")
    for directory in (home.lake, home.state):
        shutil.rmtree(directory)
    _put(ground, SMALL, LARGE - SMALL)
    # Another one: for the first the source keeps what was written since.
    home.configure('[[table]]\nname = "items"', heap=1024, name="many")
    large = home.run(f"a snapshot of {LARGE} values of {MEGABYTES} MB")
    _equal(ground, home, LARGE)
    bounded(small, large, ceilings=CEILINGS, slack=SLACK)


def test_a_store_of_documents_takes_large_values(ground: Ground, home: Home) -> None:
    (home.directory / "items.schema.yml").write_text(
        "version: 1\ntable: items\nprimary_key: id\nfields:\n  - integer: id\n  - text: body\n"
    )
    home.configure(
        '[sinks.docs]\ntype = "sqlite"\npath = "docs.db"\n'
        '[[index]]\nname = "items"\nschema = "items.schema.yml"\nsinks = ["docs"]',
        heap=1024,
    )
    _put(ground, 0, 1)
    with home.running() as running:
        running.phase("begin", 1)
        what = f"documents of {MEGABYTES} MB"
        small = running.phase(f"{SMALL} {what}", SMALL, lambda: _put(ground, 1, SMALL))
        large = running.phase(f"{LARGE} {what}", LARGE, lambda: _put(ground, 1 + SMALL, LARGE))
    expected = {str(row[0]): row[2] for row in ground.asked(SUMS)}
    assert len(expected) == 1 + SMALL + LARGE
    assert _documents(home.directory / "docs.db") == expected
    bounded(small, large, ceilings=DOCUMENTS, slack=SLACK)


def _documents(path: Path) -> dict[str, str]:
    """The MD5 of each document's text, by its id, one document at a time."""
    query = "SELECT id, json_extract(document, '$.body') FROM documents"
    with closing(sqlite3.connect(path)) as connection:
        return {one: md5(body) for one, body in connection.execute(query)}

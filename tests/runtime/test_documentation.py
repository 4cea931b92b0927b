"""Every name under which the runtime tells something is in its documentation."""

from __future__ import annotations

import re
from pathlib import Path


def test_every_name_of_an_event_is_documented(root: Path) -> None:
    text = (root / "docs" / "runtime.md").read_text()
    documented = set(re.findall(r"`((?:runtime|filler)?\.[a-z_.<>]+)`", text))
    last = {name.rpartition(".")[2] for name in documented}
    told: set[str] = set()
    for path in (root / "src" / "tailrace" / "runtime").glob("*.py"):
        source = path.read_text()
        told |= set(re.findall(r'named\("([a-z_.]+)"\)', source))
        told |= set(re.findall(r'"((?:runtime|filler)\.[a-z_.]+)"', source))
    assert len(told) > 15
    assert {name for name in told if name.rpartition(".")[2] not in last} == set()

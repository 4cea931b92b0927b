"""The text of a first `tailrace.toml`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.model.table import TableRef

_HEAD = """\
# A Tailrace pipeline. Check it with `tailrace check`, run it with `tailrace run`.
# Paths are relative to this file. Any string may be "${{NAME}}", which is taken from the environment.

[source]
url = {url}

# What the pipeline must remember: the changelog and Spark's checkpoint. Keep it, and keep it private.
[state]
directory = ".tailrace"
# ack = "changelog"    # let the source release its log as soon as changes are on disk here
# max_size = "4GB"     # capture pauses while more than this waits to be written

# Where mirrors are kept: one Delta table a mirrored table, in this directory.
[sinks.lake]
type = "delta"
path = "lake"

# [spark]
# master = "local[2]"  # or a cluster's; any "spark.*" setting may follow

# Mirrors: the current rows of each table, kept in step.
"""

_FEED = """
# A feed sends every change, as lines of JSON, to the standard output or to a URL.
# [[feed]]
# tables = ["*"]
# sink = "stdout"      # or a sink of your own: [sinks.hook] with type = "http" and url = "https://…"
# snapshot = false     # changes only; by default existing rows come first
#
# [sinks.stdout]
# type = "stdout"
"""


def starter(url: str, tables: Sequence[tuple[TableRef, bool]]) -> str:
    """The file for a database with these tables; the flag says whether a table has a primary key."""
    parts = [_HEAD.format(url=_string(url))]
    for ref, keyed in tables:
        if keyed:
            parts.append(f"\n[[table]]\nname = {_name(ref)}\n{_target(ref)}")
        else:
            parts.append(
                f"\n# {_comment(ref.name)} has no primary key and cannot be mirrored; a feed can carry it.\n"
                f"# [[table]]\n# name = {_name(ref)}\n"
            )
    if any(keyed for _, keyed in tables):
        parts.append(_FEED)
    else:
        # A file needs something to do, and without a key only a feed can be had.
        parts.append('\n[[feed]]\ntables = ["*"]\nsink = "stdout"\n\n[sinks.stdout]\ntype = "stdout"\n')
    return "".join(parts)


def _string(text: str) -> str:
    """A TOML basic string: JSON's, with the one control character escaped that JSON leaves alone."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _name(ref: TableRef) -> str:
    # A name with `${` in it must not be taken for a reference to the environment.
    return _string(ref.name.replace("${", "$${"))


def _target(ref: TableRef) -> str:
    # A mirror is a directory, which cannot have every name that a table can.
    plain = re.sub(r"[/\\%]|^\.+$", "_", ref.name)
    return "" if plain == ref.name else f"as = {_string(plain.replace('${', '$${'))}\n"


def _comment(text: str) -> str:
    return " ".join(text.split()) if text.isprintable() else ascii(text)

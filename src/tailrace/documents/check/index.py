"""`check_index`: everything about one index, as far as its file and, where it is given, its source tell."""

from __future__ import annotations

from tailrace.capture.contract import Capture, Finding
from tailrace.config.index.models import IndexSchema
from tailrace.config.lines import Path
from tailrace.documents.check.catalog import Walk
from tailrace.documents.check.found import Found
from tailrace.documents.check.sound import sound
from tailrace.documents.check.statements import Statements, judge_written
from tailrace.documents.compile import catalog_of, drafted
from tailrace.documents.plan import IndexPlan
from tailrace.documents.resolve.parents import old_parents
from tailrace.documents.resolve.values import identity_remedy


def check_index(
    name: str, schema: IndexSchema, capture: Capture | None = None, *, dialect: str = ""
) -> list[Finding]:
    """What is wrong with the index or worth knowing of it, the worst first. Changes nothing.

    Without a capture nothing is opened: the file alone is judged, its SQL by the rules of `dialect` where one
    is given. With one, the source is asked for its catalog, and what it thinks of the statements; no row is
    read. What streaming its tables needs is not asked here, but by `Capture.coverage`.
    """
    found = Found(name, schema)
    if not schema.fields_:
        found.add("warning", "empty", ("fields",), "shows no field, so that every document is empty")
    judge_written(found, schema, dialect or (capture.dialect if capture is not None else ""))
    if capture is not None:
        with capture.together():
            _online(found, name, schema, capture)
    return found.listed()


def _online(found: Found, name: str, schema: IndexSchema, capture: Capture) -> None:
    plan, problems = drafted(name, schema, catalog_of(capture))
    found.problems(problems, "catalog")
    statements = Statements(found, capture)
    walk = Walk(found, schema, capture, statements)
    walk.index(plan)
    _old_parents(found, plan, capture, walk.paths)
    if not found.errors:
        statements.build(plan)


def _old_parents(found: Found, plan: IndexPlan, capture: Capture, paths: dict[tuple[str, ...], Path]) -> None:
    """Whether the log tells what is needed of a row as it was, for every relation that is as it should be."""
    root = sound(plan.root)
    if root is None:
        return
    for way in old_parents(IndexPlan(plan.index, root), capture):
        told, remedy = way.finding, way.remedy
        if remedy is not None and (parts := capture.partitions(way.table)):
            # Each partition has an identity of its own, which that of the table does not change.
            remedy = "; ".join(identity_remedy(part) for part in parts)
        path = paths[way.path] if way.path else ("table",)
        found.add(told.severity, told.code, path, told.message, remedy=remedy, table=way.table)

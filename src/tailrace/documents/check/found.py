"""Findings of one index, each once, with their places in its file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from tailrace.capture.contract import Finding
from tailrace.config.index.models import IndexSchema
from tailrace.config.lines import Path
from tailrace.config.problems import Problem
from tailrace.model.table import Column, TableRef

Severity = Literal["error", "warning", "info"]
_RANK = {"error": 0, "warning": 1, "info": 2}


def typed(column: Column) -> str:
    """A column's type in a sentence."""
    return f"`{column.native}`" if column.native else "without a type"


class Found:
    """Collects what is found. The same thing at several places is told at the first."""

    def __init__(self, index: str, schema: IndexSchema) -> None:
        self._index = index
        self._places = schema.places
        self._found: dict[tuple[object, ...], tuple[int, int, Finding]] = {}

    def add(
        self,
        severity: Severity,
        code: str,
        path: Path,
        message: str,
        *,
        remedy: str | None = None,
        table: TableRef | None = None,
        same: tuple[object, ...] | None = None,
    ) -> None:
        """Add a finding at a path of the file; `same` is equal for what is the same at another path."""
        place = self._places.place(path)
        named = None if table is None else str(table)
        finding = Finding(severity, code, message, named, remedy, self._index, place)
        line = self._places.order(Problem(path, ""))
        self._found.setdefault(same or (code, place, message), (_RANK[severity], line, finding))

    def problems(self, problems: Iterable[Problem], code: str) -> None:
        """Add what the compiler found."""
        for problem in problems:
            self.add("error", code, problem.path, problem.text, remedy=problem.remedy)

    def refused(self, path: Path) -> bool:
        """Whether there is an error at this path already."""
        place = self._places.place(path)
        return any(one.place == place and one.severity == "error" for *_, one in self._found.values())

    @property
    def errors(self) -> bool:
        """Whether there is anything that must be mended."""
        return any(finding.severity == "error" for _, _, finding in self._found.values())

    def listed(self) -> list[Finding]:
        """All of them: the worst first, then in the order of the file."""
        return [finding for *_, finding in sorted(self._found.values(), key=lambda one: one[:2])]

"""Snapshots and fillings asked for and steered from outside, while a pipeline runs or before its next run.

Everything is a durable file in the state directory (`spark.plans`, `spark.orders`), which the query takes up
within seconds. Nothing here waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from tailrace.capture.contract import Capture
from tailrace.changelog.filesystem import make_directory, open_filesystem
from tailrace.model.errors import ConfigError, UsageError
from tailrace.model.table import TableRef

if TYPE_CHECKING:
    from tailrace.app.refilling import Refills
    from tailrace.engine.status import Status
    from tailrace.spark.orders import Orders
    from tailrace.spark.plans import PlanStore


class Control:
    """The snapshots of one pipeline, or of one query by its state directory, and a pipeline's indexes.

    Tables and indexes are given by name, as in the configuration; `*` means all of the pipeline's.
    """

    def __init__(
        self,
        source: Callable[[], AbstractContextManager[Capture]],
        tables: Callable[[Capture], list[TableRef]],
        state_dir: str,
        *,
        checkpoint: str | None = None,
        name: str = "",
        consumer: str = "",
        refills: Refills | None = None,
    ) -> None:
        self._source = source
        self._tables = tables
        self._state_dir = state_dir
        self._checkpoint = checkpoint
        self._name = name
        self._consumer = consumer
        self._refills = refills

    def snapshot(self, *tables: str, where: str | None = None) -> dict[str, str]:
        """Ask for fresh snapshots of tables; the requests' ids by table, as `schema.name`.

        where: a condition in the source's own SQL. Only rows for which it is true are read then, and what is
            known of the others stays. It is judged now: ConfigError says what is wrong with it, and where.
        """
        if not tables:
            raise UsageError("which table?", remedy="name some, or `*` for all of the pipeline's")
        if where is not None and not where.strip():
            raise ConfigError("the condition is empty", remedy="leave it out to read whole tables")
        with self._source() as capture:
            refs = self._chosen(capture, tables)
            if where is not None:
                for ref in refs:
                    capture.check_condition(ref, where)
        plans, orders = self._stores()
        made = {}
        for ref in refs:
            made[str(ref)] = plans.request(ref, where)
            if where is None:
                # It replaces what was to be stopped. Only now: the stop may be all that tells of missing
                # rows, and a request that it does not name is not stopped by it.
                orders.stopped(str(ref))
        return made

    def pause(self, *tables: str) -> list[str]:
        """Take no chunk of these tables, or of all, until they are resumed; changes keep flowing."""
        refs = self._some(tables)
        for ref in refs:
            self._stores()[1].pause(ref)
        return [ref.name for ref in refs]

    def resume(self, *tables: str) -> list[str]:
        """Go on with the snapshots of these tables, or of all; those that were paused.

        All of them are also those that are not read at present: a pause would still hold once they are again.
        """
        refs, orders = self._some(tables), self._stores()[1]
        paused = orders.paused()
        for table in {str(ref) for ref in refs} if tables else paused:
            orders.resume(table)
        return [ref.name for ref in refs if str(ref) in paused]

    def stop(self, *tables: str) -> list[str]:
        """End the running snapshots of these tables, or of all, and withdraw the waiting ones; whose.

        Rows that were not read yet are missing until a fresh snapshot is asked for. A whole snapshot that was
        withdrawn may have been to make up for missing rows, so the table counts as incomplete then too.
        """
        refs = self._some(tables)
        plans, orders = self._stores()
        waiting = plans.requests().values()
        stopped = []
        for ref in refs:
            withdrawn = [one for one in waiting if one.table == ref]
            if withdrawn or not self._over(ref):
                whole = [one.id for one in withdrawn if one.where is None]
                # Before the requests go: see `spark.orders`.
                orders.stop(ref, [one.id for one in withdrawn], whole)
                stopped.append(ref.name)
            for one in withdrawn:
                plans.served(one.id)
            orders.resume(str(ref))
        return stopped

    @property
    def refills(self) -> Refills:
        """The fillings of the pipeline's indexes."""
        if self._refills is None:
            raise UsageError("a query has no indexes", remedy='tailrace.control("tailrace.toml")')
        return self._refills

    def reindex(self, *indexes: str) -> dict[str, str | None]:
        """Ask for indexes to be filled again, beside what readers see; the requests' ids by index.

        None where a filling is due or under way anyway. Readers see the old documents, which get every change
        meanwhile, until the new ones are complete.
        """
        return {one.index: one.request for one in self.refills.ask(indexes)}

    def cancel_reindex(self, *indexes: str) -> list[str]:
        """End fillings that were asked for, or withdraw the requests; whose. Readers keep what they see."""
        return self.refills.cancel(indexes)

    def waiting(self) -> list[str]:
        """The tables whose requested snapshot has not begun yet, with its condition."""
        found = self._stores(make=False)[0].requests().values()
        asked = {(one.table, one.where) for one in found if not one.index}
        wanted = {f"{one.table.name} for the index {one.index}" for one in found if one.index}
        return sorted(
            wanted.union(f"{table.name} where {where}" if where else table.name for table, where in asked)
        )

    def paused(self) -> list[str]:
        """The tables that are paused."""
        return sorted(self._stores(make=False)[1].paused())

    def status(self) -> Status:
        """Where the pipeline stands, its snapshots' progress included. Only looks."""
        from tailrace.engine.status import read_status

        if self._checkpoint is None:
            raise UsageError(
                "the status is read from Spark's checkpoint, which was not named",
                remedy='tailrace.control(url=…, state_dir=…, checkpoint="…")',
            )
        with self._source() as capture:
            return read_status(
                capture,
                name=self._name,
                consumer=self._consumer,
                state=self._state_dir,
                checkpoint=self._checkpoint,
                tables=self._tables(capture),
            )

    def _over(self, ref: TableRef) -> bool:
        """Whether no snapshot of the table runs, by the newest offset."""
        from tailrace.engine.progress import logged

        offset = logged(self._checkpoint) if self._checkpoint is not None else None
        cursor = None if offset is None else offset.snapshots.get(str(ref))
        return cursor is not None and cursor.over

    def _some(self, tables: Sequence[str]) -> list[TableRef]:
        with self._source() as capture:
            return self._chosen(capture, tables or ["*"])

    def _chosen(self, capture: Capture, names: Sequence[str]) -> list[TableRef]:
        known = self._tables(capture)
        wanted = known if list(names) == ["*"] else capture.resolve(names)
        for ref in wanted:
            if ref not in known:
                raise ConfigError(
                    f"the table {ref.name} is not one of this pipeline's",
                    remedy="add it to the file by a [[table]] or [[feed]]; a new table is snapshotted by"
                    " itself",
                )
        return wanted

    def _stores(self, *, make: bool = True) -> tuple[PlanStore, Orders]:
        from tailrace.spark.orders import Orders
        from tailrace.spark.plans import PlanStore

        fs, root = open_filesystem(self._state_dir)
        if make:
            make_directory(fs, root)
        return PlanStore(fs, root), Orders(fs, root)

"""A standby that follows a server of the tests, and can take over."""

from __future__ import annotations

import subprocess

from tests.support.postgres import Database, Server, _free_port

SYNCED = "SELECT synced AND failover AND NOT temporary FROM pg_replication_slots WHERE slot_name = %s"


class Standby(Server):
    """A copy of a running server that follows it and, since 17, keeps its failover slots."""

    def __init__(self, primary: Server) -> None:
        self.installed, self.environment = primary.installed, {}
        self.directory = self.installed.directory()
        self.port = _free_port()
        self._process, self._databases = None, []
        with (primary.data / "pg_hba.conf").open("a") as allowed:
            allowed.write("local replication all trust\n")
        with primary.admin() as admin:
            admin.execute("SELECT pg_reload_conf(), pg_create_physical_replication_slot('standby', true)")
            keeps = {"sync_replication_slots": "on"} if admin.info.server_version >= 170000 else {}
        inside = self.installed.inside
        source = f"host={inside(primary.directory)} port={primary.port} user=postgres dbname=postgres"
        copy = ["-d", source, "-D", inside(self.data), "-S", "standby", "-R", "--checkpoint=fast"]
        command = self.installed.command("pg_basebackup", *copy)
        subprocess.run(command, check=True, capture_output=True, user=self.installed.user, cwd="/")
        self.start(hot_standby_feedback="on", primary_conninfo=source, **keeps)

    def has(self, slot: str) -> bool:
        """Whether it has the primary's slot, for good."""
        with self.admin() as admin:
            return admin.execute(SYNCED, (slot,)).fetchone() == (True,)

    def primary(self) -> bool:
        """Whether it has taken over."""
        with self.admin() as admin:
            return admin.execute("SELECT pg_is_in_recovery()").fetchone() == (False,)

    def same(self, database: Database) -> Database:
        """The primary's database, here."""
        there = Database.__new__(Database)
        there.server, there.name, there._connections = self, database.name, []
        return there

    def promote(self) -> None:
        with self.admin() as admin:
            admin.execute("SELECT pg_promote()")

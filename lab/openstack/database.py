"""The Postgres that Keystone, Placement and Nova keep their state in: quick, and gone with the run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import psycopg
from psycopg import sql

from lab.stack.postgres import Postgres

# A crash of the machine may lose the data: each run begins with none.
SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "400",
    "max_wal_size": "256MB",
}
DATABASES = ("keystone", "placement", "nova_api", "nova_cell0")
CELL0, CELL1 = "nova_cell0", "nova_cell1"


class OpenStackDatabase(Postgres):
    """A Postgres with an empty database for each service."""

    def command(self) -> Sequence[str | Path]:
        flags = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
        return [*super().command(), *flags]

    def finish(self) -> None:
        for name in DATABASES:
            self._create(name, "template1")

    def copy_cell(self) -> None:
        """Make the database of cell1 from that of cell0, which saves the second migration."""
        self._create(CELL1, CELL0)

    def url(self, database: str) -> str:
        """The address as SQLAlchemy wants it."""
        return self.dsn(database).replace("postgresql://", "postgresql+psycopg2://", 1)

    def _create(self, name: str, template: str) -> None:
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as owner:
            create = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
            owner.execute(create.format(sql.Identifier(name), sql.Identifier(template)))

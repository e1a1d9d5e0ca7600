"""Many servers at once: rows of one running server, copied in Nova's databases.

Nova builds two servers a second here; a list of a thousand would take ten minutes to build. What is
copied has no host resources and is only good for lists.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import psycopg
from psycopg import sql

from lab.openstack.database import CELL1, OpenStackDatabase

API = "nova_api"
# Table to the column that names the server.
IN_CELL = {
    "instances": "uuid",
    "instance_extra": "instance_uuid",
    "instance_info_caches": "instance_uuid",
    "instance_metadata": "instance_uuid",
    "instance_system_metadata": "instance_uuid",
    "tags": "resource_id",
}
IN_API = {"instance_mappings": "instance_uuid"}


def copy_server(database: OpenStackDatabase, server_id: str, count: int) -> list[str]:
    """Make `count` copies of a running server with its tags and metadata; answers their ids.

    They were all created at the same moment, which is the hardest case for a list in pages.
    """
    ids = [str(uuid.uuid4()) for _ in range(count)]
    for name, tables in ((API, IN_API), (CELL1, IN_CELL)):
        with psycopg.connect(database.dsn(name)) as connection:
            for table, column in tables.items():
                _copy_rows(connection, table, column, server_id, ids)
    return ids


def drop_servers(database: OpenStackDatabase, ids: Sequence[str]) -> None:
    """Remove copies as if they had never been."""
    for name, tables in ((API, IN_API), (CELL1, dict(reversed(IN_CELL.items())))):
        with psycopg.connect(database.dsn(name)) as connection:
            for table, column in tables.items():
                statement = sql.SQL("DELETE FROM {} WHERE {} = ANY(%s)")
                connection.execute(
                    statement.format(sql.Identifier(table), sql.Identifier(column)), [list(ids)]
                )


def _copy_rows(
    connection: psycopg.Connection, table: str, column: str, server_id: str, ids: Sequence[str]
) -> None:
    known = connection.execute(
        "SELECT column_name FROM information_schema.columns"
        " WHERE table_name = %s AND table_schema = 'public' AND column_name <> 'id'",
        [table],
    ).fetchall()
    names = [name for (name,) in known]
    values = [
        sql.SQL("copy.id") if name == column else sql.SQL("t.{}").format(sql.Identifier(name))
        for name in names
    ]
    statement = sql.SQL(
        "INSERT INTO {table} ({names}) SELECT {values}"
        " FROM {table} t CROSS JOIN unnest(%s::text[]) AS copy(id) WHERE t.{column} = %s"
    )
    connection.execute(
        statement.format(
            table=sql.Identifier(table),
            names=sql.SQL(", ").join(map(sql.Identifier, names)),
            values=sql.SQL(", ").join(values),
            column=sql.Identifier(column),
        ),
        [list(ids), server_id],
    )

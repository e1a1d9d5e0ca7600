"""Names of servers, as the provider reports them: what a scheduler knows a node by.

A node is never asked for its name. Who could choose its own could drain another.
"""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa

from domain.forwarder_nodes import LiveServer
from store.engine import Connection

# Rows that somebody changes at this moment are left to the next look, so that nobody waits crosswise.
NAME = sa.text(
    """
    WITH told AS (
      SELECT i.tenant_id, i.slot_key, t.name
      FROM unnest(CAST(:servers AS text[]), CAST(:names AS text[])) AS t (server_id, name)
      JOIN instances i ON i.server_id = t.server_id
      WHERE i.tenant_id = :tenant AND i.state IN ('building', 'active', 'releasing')
        AND i.server_name IS DISTINCT FROM t.name
      FOR UPDATE OF i SKIP LOCKED
    )
    UPDATE instances i SET server_name = told.name FROM told
    WHERE i.tenant_id = told.tenant_id AND i.slot_key = told.slot_key
    """
)
LIVE = sa.text(
    """
    SELECT i.server_id AS instance_id, i.server_name, n.public_key
    FROM instances i
    LEFT JOIN node_identities n
      ON n.tenant_id = i.tenant_id AND n.instance_id = i.server_id AND n.revoked_at IS NULL
    WHERE i.tenant_id = :tenant AND i.partition_id = :partition
      AND i.state IN ('building', 'active', 'releasing') AND i.server_id IS NOT NULL
    ORDER BY i.server_id LIMIT :limit
    """
)


async def name_servers(connection: Connection, tenant_id: str, names: Mapping[str, str | None]) -> int:
    """Keep the names of live servers by their ids; returns how many were new or had changed."""
    told = {server_id: name for server_id, name in names.items() if name is not None}
    if not told:
        return 0
    named = {"tenant": tenant_id, "servers": [*told], "names": [*told.values()]}
    return (await connection.execute(NAME, named)).rowcount


async def live_servers(
    connection: Connection, tenant_id: str, partition_id: str, *, limit: int
) -> list[LiveServer]:
    """Live servers of a partition in the order of their ids, `limit` at most."""
    rows = await connection.execute(LIVE, {"tenant": tenant_id, "partition": partition_id, "limit": limit})
    return [LiveServer(*row) for row in rows]

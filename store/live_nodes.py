"""Nodes that live: each with the bundle made for it and the one it holds, what it told, its newest drain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import sqlalchemy as sa

from store.engine import Connection

LIVE = sa.text(
    """
    SELECT i.server_id AS instance_id, i.state, i.region, p.hall, i.pool_id, i.partition_id, i.workload_id,
           i.active_at, n.registered_at, n.revoked_at,
           b.version AS bundle_version, b.issued_at AS bundle_issued_at,
           n.held_version AS bundle_held, n.held_reported_at AS bundle_held_reported_at,
           e.type AS last_event, e.occurred_at AS last_event_at,
           d.drain_id, d.outcome AS drain_outcome, d.at AS drain_at, d.deadline AS drain_deadline
    FROM instances i
    JOIN pools p USING (tenant_id, pool_id)
    LEFT JOIN node_identities n ON n.tenant_id = i.tenant_id AND n.instance_id = i.server_id
    LEFT JOIN LATERAL (
      SELECT version, issued_at FROM bundles
      WHERE tenant_id = i.tenant_id AND instance_id = i.server_id ORDER BY version DESC LIMIT 1
    ) b ON true
    LEFT JOIN LATERAL (
      SELECT type, occurred_at FROM lifecycle_events
      WHERE tenant_id = i.tenant_id AND instance_id = i.server_id
      ORDER BY occurred_at DESC, sequence DESC LIMIT 1
    ) e ON true
    LEFT JOIN LATERAL (
      SELECT drain_id, outcome, at, deadline FROM node_drains
      WHERE tenant_id = i.tenant_id AND instance_id = i.server_id ORDER BY at DESC, drain_id LIMIT 1
    ) d ON true
    WHERE i.tenant_id = :tenant AND i.server_id > :after AND i.state IN ('building', 'active', 'releasing')
      AND (CAST(:hall AS text) IS NULL OR p.hall = :hall)
      AND (CAST(:workload AS text) IS NULL OR i.workload_id = :workload)
      AND (CAST(:draining AS bool) IS NULL OR :draining = coalesce(d.outcome = 'open', false))
    ORDER BY i.server_id LIMIT :limit
    """
)


class NodeFilter(NamedTuple):
    """Which nodes to list; None is any."""

    hall: str | None = None
    workload_id: str | None = None
    draining: bool | None = None


async def live_nodes(
    connection: Connection, tenant_id: str, wanted: NodeFilter, *, after: str = "", limit: int
) -> Sequence[sa.RowMapping]:
    """Instances that have a server and have not ended, in the order of their ids, from behind `after` on."""
    named = {
        "tenant": tenant_id,
        "after": after,
        "hall": wanted.hall,
        "workload": wanted.workload_id,
        "draining": wanted.draining,
        "limit": limit,
    }
    return (await connection.execute(LIVE, named)).mappings().all()

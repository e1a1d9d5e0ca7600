"""How all pools are, in figures: by state, and for each serving pool its use and health."""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple

import sqlalchemy as sa

from store.engine import Connection

BY_STATE = sa.text(
    "SELECT tenant_id, kind, state, region, count(*) FROM pools GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"
)
SERVING = sa.text(
    """
    SELECT s.tenant_id, s.pool_id, CASE WHEN c.reported_at IS NOT NULL THEN c.utilization END, s.health,
           s.stale_since IS NOT NULL
    FROM pool_serving s JOIN pools p USING (tenant_id, pool_id)
    JOIN pool_capacity c USING (tenant_id, pool_id)
    WHERE p.state IN ('active', 'draining') AND p.endpoint_ref IS NOT NULL ORDER BY 1, 2
    """
)


class PoolCount(NamedTuple):
    """So many pools of a tenant are of one kind, in one state and one region."""

    tenant_id: str
    kind: str
    state: str
    region: str
    pools: int


class ServingFigures(NamedTuple):
    """One serving pool in service. Utilization is a share, None before the first report."""

    tenant_id: str
    pool_id: str
    utilization: Decimal | None
    health: str
    stale: bool


class PoolFigures(NamedTuple):
    """All pools in figures."""

    counts: tuple[PoolCount, ...]
    serving: tuple[ServingFigures, ...]


async def read_figures(connection: Connection) -> PoolFigures:
    """The figures of every pool that the caller may see."""
    counts = tuple(PoolCount(*row) for row in await connection.execute(BY_STATE))
    serving = tuple(ServingFigures(*row) for row in await connection.execute(SERVING))
    return PoolFigures(counts, serving)

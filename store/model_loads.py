"""Loads of models that were seen, and the cold starts that were learned from them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal

import sqlalchemy as sa

from domain.serving.cold_start import Load
from store.engine import Connection

PoolName = tuple[str, str]

# Many loads of one pool say no more than its newest ones.
RECENT = sa.text(
    """
    SELECT s.tenant_id, s.pool_id, l.vram_gb, l.seconds, l.finished_at
    FROM pool_serving s CROSS JOIN LATERAL (
      SELECT vram_gb, seconds, finished_at FROM model_loads l
      WHERE l.tenant_id = s.tenant_id AND l.pool_id = s.pool_id AND l.started_at >= :since
        AND l.outcome = 'loaded' AND l.seconds IS NOT NULL
      ORDER BY l.started_at DESC LIMIT :limit
    ) l
    """
)
LEARN = sa.text(
    """
    WITH told AS MATERIALIZED (
      SELECT s.tenant_id, s.pool_id, t.seconds
      FROM unnest(CAST(:tenants AS text[]), CAST(:pools AS text[]), CAST(:seconds AS int[]))
        AS t (tenant_id, pool_id, seconds) JOIN pool_serving s USING (tenant_id, pool_id)
      WHERE s.learned_cold_start_seconds IS DISTINCT FROM t.seconds
      ORDER BY 1, 2 FOR NO KEY UPDATE OF s
    )
    UPDATE pool_serving s SET learned_cold_start_seconds = t.seconds FROM told t
    WHERE (s.tenant_id, s.pool_id) = (t.tenant_id, t.pool_id)
    """
)
LOADS_PER_POOL = 200


async def recent(connection: Connection, since: datetime) -> dict[PoolName, list[Load]]:
    """The newest loads that succeeded since then, of every serving pool that has any."""
    found: dict[PoolName, list[Load]] = {}
    named = {"since": since, "limit": LOADS_PER_POOL}
    for tenant, pool, vram_gb, seconds, finished_at in await connection.execute(RECENT, named):
        found.setdefault((tenant, pool), []).append(Load(vram_gb, Decimal(seconds), finished_at))
    return found


async def learn(connection: Connection, seconds: Mapping[PoolName, int]) -> int:
    """Keep what was learned of pools; returns how many changed. Of others the last figure stays."""
    ordered = sorted(seconds)
    named = {
        "tenants": [one[0] for one in ordered],
        "pools": [one[1] for one in ordered],
        "seconds": [seconds[one] for one in ordered],
    }
    return (await connection.execute(LEARN, named)).rowcount

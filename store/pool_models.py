"""The models on pools, as a tenant may see them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa

from store.engine import Connection
from store.tables import ModelState

PoolName = tuple[str, str]

# Of its own pools a tenant sees every model, of others those that it holds placements of: what another
# tenant runs on a shared pool is nobody's business.
VISIBLE = sa.text(
    """
    SELECT m.tenant_id, m.pool_id, m.model, m.vram_gb, m.state, m.loaded_at, m.last_used_at
    FROM cached_models m
    JOIN unnest(CAST(:tenants AS text[]), CAST(:pools AS text[])) AS t (tenant_id, pool_id)
      USING (tenant_id, pool_id)
    WHERE m.tenant_id = :tenant OR EXISTS (
      SELECT FROM model_placements h
      WHERE h.tenant_id = :tenant AND h.state = 'held'
        AND (h.pool_tenant_id, h.pool_id, h.model) = (m.tenant_id, m.pool_id, m.model)
    )
    ORDER BY 1, 2, 3
    """
)


class VisibleModel(NamedTuple):
    """A model that takes memory on a pool."""

    model: str
    vram_gb: int
    state: ModelState
    loaded_at: datetime | None
    last_used_at: datetime


async def visible_models(
    connection: Connection, tenant_id: str, pools: Sequence[PoolName]
) -> dict[PoolName, list[VisibleModel]]:
    """By pool, named by owner and id, the models on it that a tenant may see, in their order."""
    found: dict[PoolName, list[VisibleModel]] = {}
    if not pools:
        return found
    named = {"tenant": tenant_id, "tenants": [one[0] for one in pools], "pools": [one[1] for one in pools]}
    for owner, pool_id, model, vram_gb, state, *times in await connection.execute(VISIBLE, named):
        one = VisibleModel(model, vram_gb, ModelState(state), *times)
        found.setdefault((owner, pool_id), []).append(one)
    return found

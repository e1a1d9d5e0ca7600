"""Counts over everything a tenant has, for status answers and overview screens."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from domain.pool import PoolState, PurchaseModel
from store.engine import Connection
from store.tables import pools, workloads

NEWEST_RANKINGS = sa.text(
    """
    SELECT DISTINCT ON (p.partition_id)
           p.partition_id, p.region, p.scheduler, r.ranking_id, r.version, r.created_at
    FROM partitions p LEFT JOIN rankings r USING (tenant_id, partition_id)
    WHERE p.tenant_id = :tenant
    ORDER BY p.partition_id, r.version DESC
    """
)


@dataclass(frozen=True, slots=True)
class PoolCount:
    state: str
    purchase_model: str
    pools: int


@dataclass(frozen=True, slots=True)
class PartitionRanking:
    """A partition with its newest ranking, if it has one."""

    partition_id: str
    region: str
    scheduler: str
    ranking_id: UUID | None
    version: int | None
    ranked_at: datetime | None


async def count_pools(connection: Connection, tenant_id: str) -> list[PoolCount]:
    query = (
        sa.select(pools.c.state, pools.c.purchase_model, sa.func.count())
        .where(pools.c.tenant_id == tenant_id)
        .group_by(pools.c.state, pools.c.purchase_model)
        .order_by(pools.c.state, pools.c.purchase_model)
    )
    return [PoolCount(*row) for row in await connection.execute(query)]


async def count_reclaimable(connection: Connection, tenant_id: str) -> tuple[int, int]:
    """Active reclaimable pools, and the correlation groups they are in."""
    query = sa.select(sa.func.count(), sa.func.count(pools.c.group_id.distinct())).where(
        pools.c.tenant_id == tenant_id,
        pools.c.purchase_model == PurchaseModel.RECLAIMABLE.value,
        pools.c.state == PoolState.ACTIVE.value,
    )
    row = (await connection.execute(query)).one()
    return row[0], row[1]


async def count_workloads(connection: Connection, tenant_id: str) -> dict[str, int]:
    """Workloads by phase."""
    query = (
        sa.select(workloads.c.phase, sa.func.count())
        .where(workloads.c.tenant_id == tenant_id)
        .group_by(workloads.c.phase)
        .order_by(workloads.c.phase)
    )
    return {row[0]: row[1] for row in await connection.execute(query)}


async def partition_rankings(connection: Connection, tenant_id: str) -> list[PartitionRanking]:
    """Every partition in the order of its id, with its newest ranking."""
    rows = await connection.execute(NEWEST_RANKINGS, {"tenant": tenant_id})
    return [PartitionRanking(*row) for row in rows]

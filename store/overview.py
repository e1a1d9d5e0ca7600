"""Counts over everything a tenant has, for status answers and overview screens."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from domain.pool import PoolState, PurchaseModel
from store.engine import Connection
from store.tables import claims, partitions, pools, rankings, workloads


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
    joined = partitions.outerjoin(
        rankings,
        sa.and_(
            rankings.c.tenant_id == partitions.c.tenant_id,
            rankings.c.partition_id == partitions.c.partition_id,
        ),
    )
    query = (
        sa.select(
            partitions.c.partition_id,
            partitions.c.region,
            partitions.c.scheduler,
            rankings.c.ranking_id,
            rankings.c.version,
            rankings.c.created_at,
        )
        .select_from(joined)
        .distinct(partitions.c.partition_id)
        .where(partitions.c.tenant_id == tenant_id)
        .order_by(partitions.c.partition_id, rankings.c.version.desc())
    )
    return [PartitionRanking(*row) for row in await connection.execute(query)]


async def claim_to_scale(connection: Connection, tenant_id: str, workload_id: str) -> sa.RowMapping | None:
    """The newest claim that was submitted with units, or the newest of all.

    Scaling from what was submitted keeps its proportions, however often it is scaled.
    """
    submitted = sa.and_(claims.c.source != "scale", claims.c.units > 0)
    query = (
        sa.select(claims)
        .where(claims.c.tenant_id == tenant_id, claims.c.workload_id == workload_id)
        .order_by(submitted.desc(), claims.c.version.desc())
        .limit(1)
    )
    return (await connection.execute(query)).mappings().first()

"""What a placement decision depends on, and the decisions that were made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from psycopg.rows import dict_row

from domain.placement.liveness import PoolPulse
from domain.pool import Pool
from store.engine import Connection, Driver
from store.tables import (
    placement_decisions,
    plan_generations,
    pool_backoffs,
)
from store.workloads import LOCK

PULSES = sa.text(
    """
    SELECT p.pool_id, c.capacity_instances - c.reserved_instances AS free,
           p.state, CASE WHEN c.hall_lost THEN 'excluded' ELSE c.standing END AS standing,
           c.degraded, c.reported_at
    FROM pools p JOIN pool_capacity c USING (tenant_id, pool_id)
    WHERE p.tenant_id = :tenant
    """
)
PULSES_OF = sa.text(f"{PULSES.text} AND p.pool_id = ANY(:pools)")
HELD = sa.text(
    """
    SELECT r.pool_id, r.shape_key, r.units, r.target_instances, r.generation,
           count(i.slot_key) FILTER (WHERE i.state IN ('planned', 'building', 'active')) AS usable
    FROM reservations r
    LEFT JOIN instances i USING (tenant_id, workload_id, pool_id, shape_key)
    WHERE r.tenant_id = :tenant AND r.workload_id = :workload
    GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2
    """
)


INTENT = """
    SELECT w.partition_id, p.region, w.claim_version, w.planned_version, w.generation, w.shortfall_units,
           c.demand, k.contract_id, k.floor_share, k.pool_cap_share, k.group_cap_share,
           k.tolerated_interruptions_per_hour,
           (SELECT ranking_id FROM rankings r
            WHERE (r.tenant_id, r.partition_id) = (w.tenant_id, w.partition_id)
            ORDER BY version DESC LIMIT 1) AS ranking_id
    FROM workloads w
    JOIN claims c ON (c.tenant_id, c.workload_id, c.version) = (w.tenant_id, w.workload_id, w.claim_version)
    JOIN contracts k ON (k.tenant_id, k.contract_id) = (w.tenant_id, w.contract_id)
    JOIN partitions p ON (p.tenant_id, p.partition_id) = (w.tenant_id, w.partition_id)
    WHERE w.tenant_id = %(tenant)s AND w.workload_id = %(workload)s
    """


@dataclass(frozen=True, slots=True)
class HeldRow:
    """What a workload holds in one pool for one shape: planned units, instances meant and usable."""

    pool_id: str
    shape_key: str
    units: int
    target_instances: int
    generation: int
    usable: int


async def find_decision(connection: Connection, tenant_id: str, decision_id: UUID) -> sa.RowMapping | None:
    """A decision with its plan generation, or None."""
    joined = placement_decisions.join(
        plan_generations,
        sa.and_(
            placement_decisions.c.tenant_id == plan_generations.c.tenant_id,
            placement_decisions.c.decision_id == plan_generations.c.decision_id,
        ),
    )
    own = [column for column in plan_generations.c if column.name not in placement_decisions.c]
    query = (
        sa.select(placement_decisions, *own)
        .select_from(joined)
        .where(placement_decisions.c.tenant_id == tenant_id, placement_decisions.c.decision_id == decision_id)
    )
    return (await connection.execute(query)).mappings().first()


async def decision_id_of(
    connection: Connection, tenant_id: str, workload_id: str, generation: int | None
) -> UUID | None:
    """The decision behind one plan generation, the newest unless a generation is named."""
    query = sa.select(placement_decisions.c.decision_id).where(
        placement_decisions.c.tenant_id == tenant_id, placement_decisions.c.workload_id == workload_id
    )
    if generation is not None:
        query = query.where(placement_decisions.c.generation == generation)
    query = query.order_by(placement_decisions.c.generation.desc()).limit(1)
    found: UUID | None = (await connection.execute(query)).scalar()
    return found


async def list_generations(
    connection: Connection, tenant_id: str, workload_id: str, limit: int
) -> Sequence[sa.RowMapping]:
    """The newest plan generations of a workload, newest first."""
    query = (
        sa.select(plan_generations)
        .where(plan_generations.c.tenant_id == tenant_id, plan_generations.c.workload_id == workload_id)
        .order_by(plan_generations.c.generation.desc())
        .limit(limit)
    )
    return (await connection.execute(query)).mappings().all()


async def lock_intent(driver: Driver, tenant_id: str, workload_id: str) -> dict[str, Any] | None:
    """The workload with its newest claim, contract and ranking, locked against other decisions for it.

    It is read only once it is locked: what a transaction committed that was waited for is seen whole.
    """
    named = {"tenant": tenant_id, "workload": workload_id}
    async with driver.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(LOCK, named)
        await cursor.execute(INTENT, named)
        return await cursor.fetchone()


async def held_by(connection: Connection, tenant_id: str, workload_id: str) -> list[HeldRow]:
    rows = await connection.execute(HELD, {"tenant": tenant_id, "workload": workload_id})
    return [HeldRow(*row) for row in rows]


async def read_pulses(connection: Connection, tenant_id: str) -> dict[str, PoolPulse]:
    """The changing state of every pool of the tenant."""
    rows = await connection.execute(PULSES, {"tenant": tenant_id})
    return {row[0]: PoolPulse(*row[1:]) for row in rows}


async def pulses_of(connection: Connection, pools: Iterable[Pool]) -> dict[tuple[str, str], PoolPulse]:
    """The changing state of these pools, by owner and pool id, whoever owns them."""
    by_owner: dict[str, list[str]] = {}
    for one in pools:
        by_owner.setdefault(one.tenant_id, []).append(one.pool_id)
    pulses: dict[tuple[str, str], PoolPulse] = {}
    for owner, wanted in sorted(by_owner.items()):
        rows = await connection.execute(PULSES_OF, {"tenant": owner, "pools": wanted})
        pulses |= {(owner, row[0]): PoolPulse(*row[1:]) for row in rows}
    return pulses


async def backed_off(
    connection: Connection, tenant_id: str, workload_id: str, now: datetime
) -> frozenset[str]:
    """Pools in which a launch of this workload failed a short while ago."""
    query = sa.select(pool_backoffs.c.pool_id).where(
        pool_backoffs.c.tenant_id == tenant_id,
        pool_backoffs.c.workload_id == workload_id,
        pool_backoffs.c.until > now,
    )
    return frozenset((await connection.execute(query)).scalars())

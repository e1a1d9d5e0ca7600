"""The one transaction of a placement decision: read what it depends on, write what was decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from domain.placement.liveness import PoolPulse
from store.engine import Connection
from store.registry import lock_capacity
from store.tables import (
    claims,
    contracts,
    partitions,
    placement_decisions,
    plan_generations,
    pool_backoffs,
    rankings,
    reservations,
    workloads,
)
from store.workloads import lock_workload

PULSES = sa.text(
    """
    SELECT p.pool_id, c.capacity_instances - c.reserved_instances AS free,
           p.state, CASE WHEN c.hall_lost THEN 'excluded' ELSE c.standing END AS standing,
           c.degraded, c.reported_at
    FROM pools p JOIN pool_capacity c USING (tenant_id, pool_id)
    WHERE p.tenant_id = :tenant
    """
)
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


# Arrays, because a statement with a parameter for each value has room for a few thousand slots only.
PLAN_SLOTS = sa.text(
    """
    INSERT INTO instances (tenant_id, workload_id, partition_id, generation, state,
                           slot_key, batch_key, pool_id, region, shape_key)
    SELECT :tenant, :workload, :partition, :generation, 'planned', s.*
    FROM unnest(CAST(:slot_keys AS text[]), CAST(:batch_keys AS text[]), CAST(:pools AS text[]),
                CAST(:regions AS text[]), CAST(:shape_keys AS text[])) AS s
    """
)


@dataclass(frozen=True, slots=True)
class HeldRow:
    """What a workload holds in one pool for one shape: planned units, instances meant and usable."""

    pool_id: str
    shape_key: str
    units: int
    target_instances: int
    generation: int
    usable: int


@dataclass(frozen=True, slots=True)
class Target:
    """What a pool is to hold for one shape after a decision."""

    pool_id: str
    shape_key: str
    units: int
    instances: int
    units_per_instance: int
    grew: bool


@dataclass(frozen=True, slots=True)
class Slot:
    """One planned instance, with the keys that its server will carry."""

    slot_key: str
    batch_key: str
    pool_id: str
    region: str
    shape_key: str


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


async def lock_intent(connection: Connection, tenant_id: str, workload_id: str) -> sa.RowMapping | None:
    """The workload with its newest claim, contract and ranking, locked against other decisions for it.

    It is read only once it is locked: what a transaction committed that was waited for is seen whole.
    """
    await lock_workload(connection, tenant_id, workload_id)
    newest = (
        sa.select(rankings.c.ranking_id)
        .where(
            rankings.c.tenant_id == workloads.c.tenant_id,
            rankings.c.partition_id == workloads.c.partition_id,
        )
        .order_by(rankings.c.version.desc())
        .limit(1)
        .correlate(workloads)
        .scalar_subquery()
    )
    joined = (
        workloads.join(
            claims,
            sa.and_(
                claims.c.tenant_id == workloads.c.tenant_id,
                claims.c.workload_id == workloads.c.workload_id,
                claims.c.version == workloads.c.claim_version,
            ),
        )
        .join(
            contracts,
            sa.and_(
                contracts.c.tenant_id == workloads.c.tenant_id,
                contracts.c.contract_id == workloads.c.contract_id,
            ),
        )
        .join(
            partitions,
            sa.and_(
                partitions.c.tenant_id == workloads.c.tenant_id,
                partitions.c.partition_id == workloads.c.partition_id,
            ),
        )
    )
    query = (
        sa.select(
            workloads.c.partition_id,
            partitions.c.region,
            newest.label("ranking_id"),
            workloads.c.claim_version,
            workloads.c.planned_version,
            workloads.c.generation,
            workloads.c.shortfall_units,
            claims.c.demand,
            contracts.c.contract_id,
            contracts.c.floor_share,
            contracts.c.pool_cap_share,
            contracts.c.group_cap_share,
            contracts.c.tolerated_interruptions_per_hour,
        )
        .select_from(joined)
        .where(workloads.c.tenant_id == tenant_id, workloads.c.workload_id == workload_id)
    )
    return (await connection.execute(query)).mappings().first()


async def held_by(connection: Connection, tenant_id: str, workload_id: str) -> list[HeldRow]:
    rows = await connection.execute(HELD, {"tenant": tenant_id, "workload": workload_id})
    return [HeldRow(*row) for row in rows]


async def read_pulses(connection: Connection, tenant_id: str) -> dict[str, PoolPulse]:
    """The changing state of every pool of the tenant."""
    rows = await connection.execute(PULSES, {"tenant": tenant_id})
    return {row[0]: PoolPulse(*row[1:]) for row in rows}


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


async def write_decision(
    connection: Connection, decision: Mapping[str, Any], generation: Mapping[str, Any]
) -> None:
    """Store a decision and the plan generation that it makes."""
    await connection.execute(insert(placement_decisions).values(dict(decision)))
    await connection.execute(insert(plan_generations).values(dict(generation)))


async def clear_targets(connection: Connection, tenant_id: str, workload_id: str) -> None:
    """Every pool is to hold nothing, until `write_targets` says otherwise in the same transaction."""
    await connection.execute(
        sa.update(reservations)
        .where(reservations.c.tenant_id == tenant_id, reservations.c.workload_id == workload_id)
        .values(units=0, target_instances=0)
    )


async def write_targets(
    connection: Connection, tenant_id: str, workload_id: str, generation: int, targets: Sequence[Target]
) -> None:
    """Set what pools are to hold; those that are not named keep what was set."""
    if not targets:
        return
    rows = [
        {
            "tenant_id": tenant_id,
            "workload_id": workload_id,
            "pool_id": one.pool_id,
            "shape_key": one.shape_key,
            "units": one.units,
            "target_instances": one.instances,
            "units_per_instance": one.units_per_instance,
            "generation": generation,
        }
        for one in targets
    ]
    statement = insert(reservations).values(rows)
    grown = [(one.pool_id, one.shape_key) for one in targets if one.grew]
    await connection.execute(
        statement.on_conflict_do_update(
            index_elements=["tenant_id", "workload_id", "pool_id", "shape_key"],
            set_={
                "units": statement.excluded.units,
                "target_instances": statement.excluded.target_instances,
                "units_per_instance": statement.excluded.units_per_instance,
                "generation": sa.case(
                    (
                        sa.tuple_(reservations.c.pool_id, reservations.c.shape_key).in_(grown),
                        statement.excluded.generation,
                    ),
                    else_=reservations.c.generation,
                ),
            },
        )
    )


async def write_slots(
    connection: Connection,
    *,
    tenant_id: str,
    workload_id: str,
    partition_id: str,
    generation: int,
    slots: Sequence[Slot],
) -> None:
    """Plan new instances. Fails on the capacity constraint when a pool has too little room."""
    if not slots:
        return
    await lock_capacity(connection, tenant_id, sorted({slot.pool_id for slot in slots}))
    named = {
        "tenant": tenant_id,
        "workload": workload_id,
        "partition": partition_id,
        "generation": generation,
        "slot_keys": [slot.slot_key for slot in slots],
        "batch_keys": [slot.batch_key for slot in slots],
        "pools": [slot.pool_id for slot in slots],
        "regions": [slot.region for slot in slots],
        "shape_keys": [slot.shape_key for slot in slots],
    }
    await connection.execute(PLAN_SLOTS, named)


async def mark_planned(
    connection: Connection,
    *,
    tenant_id: str,
    workload_id: str,
    claim_version: int,
    generation: int,
    phase: str,
    shortfall_units: int,
    shortfall_reason: str | None,
) -> None:
    await connection.execute(
        sa.update(workloads)
        .where(workloads.c.tenant_id == tenant_id, workloads.c.workload_id == workload_id)
        .values(
            planned_version=claim_version,
            generation=generation,
            phase=phase,
            shortfall_units=shortfall_units,
            shortfall_reason=shortfall_reason,
            updated_at=sa.func.now(),
        )
    )

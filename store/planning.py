"""What a placement decision writes: targets, slots and the plan generation, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from store import documents
from store.engine import Connection
from store.registry import lock_capacity

# Arrays instead of a parameter for each value: one prepared statement for every plan, of any size.
CLEAR_TARGETS = sa.text(
    """
    UPDATE reservations SET units = 0, target_instances = 0
    WHERE tenant_id = :tenant AND workload_id = :workload
    """
)
SET_TARGETS = sa.text(
    """
    INSERT INTO reservations AS r (tenant_id, workload_id, generation, pool_id, shape_key, units,
                                   target_instances, units_per_instance)
    SELECT :tenant, :workload, :generation, t.pool_id, t.shape_key, t.units, t.instances, t.per_instance
    FROM unnest(CAST(:pools AS text[]), CAST(:shape_keys AS text[]), CAST(:units AS int[]),
                CAST(:instances AS int[]), CAST(:per_instance AS int[]))
      AS t (pool_id, shape_key, units, instances, per_instance)
    ON CONFLICT (tenant_id, workload_id, pool_id, shape_key) DO UPDATE SET
      units = excluded.units,
      target_instances = excluded.target_instances,
      units_per_instance = excluded.units_per_instance,
      generation = CASE WHEN r.pool_id || ' ' || r.shape_key = ANY(:grown)
                        THEN excluded.generation ELSE r.generation END
    """
)
PLAN_SLOTS = sa.text(
    """
    INSERT INTO instances (tenant_id, workload_id, partition_id, generation, state,
                           slot_key, batch_key, pool_id, region, shape_key)
    SELECT :tenant, :workload, :partition, :generation, 'planned', s.*
    FROM unnest(CAST(:slot_keys AS text[]), CAST(:batch_keys AS text[]), CAST(:pools AS text[]),
                CAST(:regions AS text[]), CAST(:shape_keys AS text[])) AS s
    """
)
COMMIT_PLAN = sa.text(
    """
    WITH decision AS (
      INSERT INTO placement_decisions (tenant_id, decision_id, workload_id, generation, claim_version,
        ranking_id, class_key, outcome, question, allocations, reasons, shortfalls, decided_at)
      VALUES (:tenant_id, :decision_id, :workload_id, :generation, :claim_version,
        :ranking_id, :class_key, :outcome, CAST(:question AS jsonb), CAST(:allocations AS jsonb),
        CAST(:reasons AS jsonb), CAST(:shortfalls AS jsonb), :decided_at)
    ), generation AS (
      INSERT INTO plan_generations (tenant_id, workload_id, generation, decision_id, units, placed_units,
        floor_units, pool_cap_units, group_cap_units, cost_per_hour, depth_premium_per_hour, currency,
        floor_spread_met, hall_spread_met)
      VALUES (:tenant_id, :workload_id, :generation, :decision_id, :units, :placed_units,
        :floor_units, :pool_cap_units, :group_cap_units, :cost_per_hour, :depth_premium_per_hour, :currency,
        :floor_spread_met, :hall_spread_met)
    )
    UPDATE workloads SET planned_version = :claim_version, generation = :generation, phase = 'planned',
      shortfall_units = :shortfall_units, shortfall_reason = :shortfall_reason, updated_at = now()
    WHERE tenant_id = :tenant_id AND workload_id = :workload_id
    """
)


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


async def clear_targets(connection: Connection, tenant_id: str, workload_id: str) -> None:
    """Every pool is to hold nothing, until `write_targets` says otherwise in the same transaction."""
    await connection.execute(CLEAR_TARGETS, {"tenant": tenant_id, "workload": workload_id})


async def write_targets(
    connection: Connection, tenant_id: str, workload_id: str, generation: int, targets: Sequence[Target]
) -> None:
    """Set what pools are to hold; those that are not named keep what was set."""
    if not targets:
        return
    named = {
        "tenant": tenant_id,
        "workload": workload_id,
        "generation": generation,
        "pools": [one.pool_id for one in targets],
        "shape_keys": [one.shape_key for one in targets],
        "units": [one.units for one in targets],
        "instances": [one.instances for one in targets],
        "per_instance": [one.units_per_instance for one in targets],
        "grown": [f"{one.pool_id} {one.shape_key}" for one in targets if one.grew],
    }
    await connection.execute(SET_TARGETS, named)


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


async def commit_plan(
    connection: Connection, decision: Mapping[str, Any], generation: Mapping[str, Any]
) -> None:
    """Store a decision and its plan generation, and make that the plan of the workload."""
    row = dict(decision) | dict(generation)
    shortfalls = row["shortfalls"]
    row |= {
        "shortfall_units": sum(units for units, _ in shortfalls),
        "shortfall_reason": shortfalls[-1][1] if shortfalls else None,
    }
    for name in ("question", "allocations", "reasons", "shortfalls"):
        row[name] = documents.dumps(row[name])
    await connection.execute(COMMIT_PLAN, row)

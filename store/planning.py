"""What a placement decision writes: targets, slots and the plan generation, in the caller's transaction.

These are the statements that every placement runs, so they go to the driver as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from store import documents
from store.engine import Driver
from store.registry import LOCK_CAPACITY

# Arrays instead of a parameter for each value: one prepared statement for every plan, of any size.
CLEAR_TARGETS = """
    UPDATE reservations SET units = 0, target_instances = 0
    WHERE tenant_id = %(tenant)s AND workload_id = %(workload)s
"""
SET_TARGETS = """
    INSERT INTO reservations AS r (tenant_id, workload_id, generation, pool_id, shape_key, units,
                                   target_instances, units_per_instance)
    SELECT %(tenant)s, %(workload)s, %(generation)s, t.pool_id, t.shape_key, t.units,
           t.instances, t.per_instance
    FROM unnest(CAST(%(pools)s AS text[]), CAST(%(shape_keys)s AS text[]), CAST(%(units)s AS int[]),
                CAST(%(instances)s AS int[]), CAST(%(per_instance)s AS int[]))
      AS t (pool_id, shape_key, units, instances, per_instance)
    ON CONFLICT (tenant_id, workload_id, pool_id, shape_key) DO UPDATE SET
      units = excluded.units,
      target_instances = excluded.target_instances,
      units_per_instance = excluded.units_per_instance,
      generation = CASE WHEN r.pool_id || ' ' || r.shape_key = ANY(%(grown)s)
                        THEN excluded.generation ELSE r.generation END
"""
PLAN_SLOTS = """
    INSERT INTO instances (tenant_id, workload_id, partition_id, generation, state,
                           slot_key, batch_key, pool_id, region, shape_key)
    SELECT %(tenant)s, %(workload)s, %(partition)s, %(generation)s, 'planned', s.*
    FROM unnest(CAST(%(slot_keys)s AS text[]), CAST(%(batch_keys)s AS text[]), CAST(%(pools)s AS text[]),
                CAST(%(regions)s AS text[]), CAST(%(shape_keys)s AS text[])) AS s
"""
COMMIT_PLAN = """
    WITH decision AS (
      INSERT INTO placement_decisions (tenant_id, decision_id, workload_id, generation, claim_version,
        ranking_id, class_key, outcome, question, allocations, reasons, shortfalls, decided_at)
      VALUES (%(tenant_id)s, %(decision_id)s, %(workload_id)s, %(generation)s, %(claim_version)s,
        %(ranking_id)s, %(class_key)s, %(outcome)s, CAST(%(question)s AS jsonb),
        CAST(%(allocations)s AS jsonb), CAST(%(reasons)s AS jsonb), CAST(%(shortfalls)s AS jsonb),
        %(decided_at)s)
    ), generation AS (
      INSERT INTO plan_generations (tenant_id, workload_id, generation, decision_id, units, placed_units,
        floor_units, pool_cap_units, group_cap_units, cost_per_hour, depth_premium_per_hour, currency,
        floor_spread_met, hall_spread_met)
      VALUES (%(tenant_id)s, %(workload_id)s, %(generation)s, %(decision_id)s, %(units)s, %(placed_units)s,
        %(floor_units)s, %(pool_cap_units)s, %(group_cap_units)s, %(cost_per_hour)s,
        %(depth_premium_per_hour)s, %(currency)s, %(floor_spread_met)s, %(hall_spread_met)s)
    )
    UPDATE workloads SET planned_version = %(claim_version)s, generation = %(generation)s, phase = 'planned',
      shortfall_units = %(shortfall_units)s, shortfall_reason = %(shortfall_reason)s, updated_at = now()
    WHERE tenant_id = %(tenant_id)s AND workload_id = %(workload_id)s
"""


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


async def clear_targets(driver: Driver, tenant_id: str, workload_id: str) -> None:
    """Every pool is to hold nothing, until `write_targets` says otherwise in the same transaction."""
    await driver.execute(CLEAR_TARGETS, {"tenant": tenant_id, "workload": workload_id})


async def write_targets(
    driver: Driver, tenant_id: str, workload_id: str, generation: int, targets: Sequence[Target]
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
    await driver.execute(SET_TARGETS, named)


async def write_slots(
    driver: Driver,
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
    pools = sorted({slot.pool_id for slot in slots})
    await driver.execute(LOCK_CAPACITY, {"tenant": tenant_id, "pools": pools})
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
    await driver.execute(PLAN_SLOTS, named)


async def commit_plan(driver: Driver, decision: Mapping[str, Any], generation: Mapping[str, Any]) -> None:
    """Store a decision and its plan generation, and make that the plan of the workload."""
    row = dict(decision) | dict(generation)
    shortfalls = row["shortfalls"]
    row |= {
        "shortfall_units": sum(units for units, _ in shortfalls),
        "shortfall_reason": shortfalls[-1][1] if shortfalls else None,
    }
    for name in ("question", "allocations", "reasons", "shortfalls"):
        row[name] = documents.dumps(row[name])
    await driver.execute(COMMIT_PLAN, row)

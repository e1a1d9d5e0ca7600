"""Rebuilding lost records: slots and reservations written from what servers say of themselves."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa

from domain.acquisition import SlotState
from store.engine import Connection
from store.registry import lock_capacity
from store.releases import cancel_unasked
from store.tables import pools, workloads

# A server that exists has its capacity, whatever was last observed.
ROOM = sa.text(
    """
    UPDATE pool_capacity c SET
      capacity_instances = greatest(c.capacity_instances, c.reserved_instances + n.more)
    FROM unnest(CAST(:pools AS text[]), CAST(:more AS int[])) AS n (pool_id, more)
    WHERE c.tenant_id = :tenant AND c.pool_id = n.pool_id
    """
)
SLOTS = sa.text(
    """
    INSERT INTO instances (tenant_id, partition_id, region, slot_key, batch_key, workload_id, pool_id,
                           shape_key, generation, state, server_id, launched_by, launch_attempts, active_at,
                           updated_at)
    SELECT :tenant, :partition, :region, t.slot_key, t.batch_key, t.workload_id, t.pool_id, t.shape_key,
           t.generation, t.state, t.server_id, :actor, 1,
           CASE WHEN t.state = 'active' THEN t.created_at END, :at
    FROM unnest(CAST(:slot_keys AS text[]), CAST(:batches AS text[]), CAST(:workloads AS text[]),
                CAST(:pools AS text[]), CAST(:shapes AS text[]), CAST(:generations AS int[]),
                CAST(:states AS text[]), CAST(:servers AS text[]), CAST(:created AS timestamptz[]))
      AS t (slot_key, batch_key, workload_id, pool_id, shape_key, generation, state, server_id, created_at)
    ON CONFLICT DO NOTHING
    RETURNING server_id
    """
)
TARGETS = sa.text(
    """
    UPDATE reservations r SET
      units_per_instance = t.per_instance,
      units = r.units + t.more * t.per_instance,
      target_instances = r.target_instances + t.more,
      generation = greatest(r.generation, t.generation)
    FROM unnest(CAST(:workloads AS text[]), CAST(:pools AS text[]), CAST(:shapes AS text[]),
                CAST(:per_instance AS int[]), CAST(:more AS int[]), CAST(:generations AS int[]))
      AS t (workload_id, pool_id, shape_key, per_instance, more, generation)
    WHERE r.tenant_id = :tenant AND r.workload_id = t.workload_id
      AND r.pool_id = t.pool_id AND r.shape_key = t.shape_key
    """
)
GENERATIONS = sa.text(
    """
    UPDATE workloads w SET generation = greatest(w.generation, t.generation), updated_at = now()
    FROM unnest(CAST(:workloads AS text[]), CAST(:generations AS int[])) AS t (workload_id, generation)
    WHERE w.tenant_id = :tenant AND w.workload_id = t.workload_id
    """
)
MISSING = sa.text(
    """
    SELECT w.workload_id, c.units - coalesce(sum(r.units), 0) AS missing
    FROM workloads w
    JOIN claims c ON (c.tenant_id, c.workload_id, c.version) = (w.tenant_id, w.workload_id, w.claim_version)
    LEFT JOIN reservations r ON (r.tenant_id, r.workload_id) = (w.tenant_id, w.workload_id)
    WHERE w.tenant_id = :tenant AND w.workload_id = ANY(CAST(:workloads AS text[]))
    GROUP BY w.workload_id, c.units
    """
)


class Record(NamedTuple):
    """One server as a slot. `shape_key` and `units` say what of the claim it serves."""

    server_id: str
    slot_key: str
    batch_key: str
    workload_id: str
    pool_id: str
    shape_key: str
    units: int
    generation: int
    state: SlotState
    created_at: datetime


async def missing_units(
    connection: Connection, tenant_id: str, workload_ids: Collection[str]
) -> dict[str, int]:
    """Claimed units that no server holds; the workloads stay locked, in the order of everyone.

    Slots that nobody has asked for were planned in ignorance of the servers that exist: they are given up.
    """
    wanted = sorted(workload_ids)
    await connection.execute(
        sa.select(workloads.c.workload_id)
        .where(workloads.c.tenant_id == tenant_id, workloads.c.workload_id.in_(wanted))
        .order_by(workloads.c.workload_id)
        .with_for_update(key_share=True)
    )
    await cancel_unasked(connection, tenant_id, wanted)
    found = await connection.execute(MISSING, {"tenant": tenant_id, "workloads": wanted})
    return {row[0]: int(row[1]) for row in found}


async def registered(connection: Connection, tenant_id: str, pool_ids: Collection[str]) -> frozenset[str]:
    """Which of these pools exist."""
    query = sa.select(pools.c.pool_id).where(
        pools.c.tenant_id == tenant_id, pools.c.pool_id.in_(sorted(pool_ids))
    )
    return frozenset((await connection.execute(query)).scalars())


async def adopt(
    connection: Connection,
    tenant_id: str,
    partition_id: str,
    region: str,
    records: Sequence[Record],
    *,
    actor: str,
    at: datetime,
) -> frozenset[str]:
    """Write slots for servers that have none, and plan for them; returns the servers adopted.

    Their workloads are locked already (`missing_units`). One that got a slot meanwhile is left alone.
    """
    await lock_capacity(connection, tenant_id, sorted({one.pool_id for one in records}))
    await _make_room(connection, tenant_id, records)
    named = {
        "tenant": tenant_id,
        "partition": partition_id,
        "region": region,
        "actor": actor,
        "at": at,
        "slot_keys": [one.slot_key for one in records],
        "batches": [one.batch_key for one in records],
        "workloads": [one.workload_id for one in records],
        "pools": [one.pool_id for one in records],
        "shapes": [one.shape_key for one in records],
        "generations": [one.generation for one in records],
        "states": [one.state.value for one in records],
        "servers": [one.server_id for one in records],
        "created": [one.created_at for one in records],
    }
    adopted = frozenset((await connection.execute(SLOTS, named)).scalars())
    await _raise_targets(connection, tenant_id, [one for one in records if one.server_id in adopted])
    return adopted


async def _make_room(connection: Connection, tenant_id: str, records: Sequence[Record]) -> None:
    more: dict[str, int] = {}
    for one in records:
        more[one.pool_id] = more.get(one.pool_id, 0) + 1
    await connection.execute(ROOM, {"tenant": tenant_id, "pools": [*more], "more": [*more.values()]})


async def _raise_targets(connection: Connection, tenant_id: str, records: Sequence[Record]) -> None:
    """What was adopted is meant to be: or the next sweep would give it all back."""
    held: dict[tuple[str, str, str], list[Record]] = {}
    newest: dict[str, int] = {}
    for one in records:
        held.setdefault((one.workload_id, one.pool_id, one.shape_key), []).append(one)
        newest[one.workload_id] = max(newest.get(one.workload_id, 0), one.generation)
    await connection.execute(
        TARGETS,
        {
            "tenant": tenant_id,
            "workloads": [key[0] for key in held],
            "pools": [key[1] for key in held],
            "shapes": [key[2] for key in held],
            "per_instance": [many[0].units for many in held.values()],
            "more": [len(many) for many in held.values()],
            "generations": [max(one.generation for one in many) for many in held.values()],
        },
    )
    await connection.execute(
        GENERATIONS, {"tenant": tenant_id, "workloads": [*newest], "generations": [*newest.values()]}
    )

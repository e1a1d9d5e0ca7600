"""Giving slots back: what is beyond the plan, what nobody has asked for, and what is gone."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from domain.acquisition import LIVE_STATES, SlotState
from store.engine import Connection
from store.slots import LOWER_TARGETS, lock_slots, slot_update
from store.tables import instances
from store.workloads import lock_workload

# What was asked for is given back once it is known what came of it: its server may still show.
SURPLUS = sa.text(
    """
    WITH usable AS (
      SELECT i.slot_key, i.server_id, i.requested_at, i.region, i.pool_id, r.target_instances,
             row_number() OVER (
               PARTITION BY i.pool_id, i.shape_key
               ORDER BY (i.state = 'active') DESC, i.generation, i.slot_key
             ) AS place
      FROM instances i JOIN reservations r USING (tenant_id, workload_id, pool_id, shape_key)
      WHERE i.tenant_id = :tenant AND i.workload_id = :workload
        AND i.state IN ('planned', 'building', 'active')
    )
    SELECT slot_key, server_id, region, pool_id FROM usable
    WHERE place > target_instances AND (server_id IS NOT NULL OR requested_at IS NULL)
    ORDER BY pool_id, slot_key
    """
)


async def mark_gone(connection: Connection, tenant_id: str, workload_id: str, slots: Sequence[str]) -> None:
    """These slots' servers are deleted, or never existed; their capacity is free again."""
    if not slots:
        return
    await lock_slots(connection, tenant_id, workload_id, slots)
    await connection.execute(
        slot_update(tenant_id, slots)
        .where(instances.c.state.in_(LIVE_STATES))
        .values(state=SlotState.GONE, updated_at=sa.func.now())
    )


async def cancel_unasked(connection: Connection, tenant_id: str, workload_ids: Sequence[str]) -> None:
    """Give up slots that nobody has asked for: they were planned without what is known now."""
    query = (
        sa.select(instances.c.workload_id, instances.c.slot_key)
        .where(
            instances.c.tenant_id == tenant_id,
            instances.c.workload_id.in_(list(workload_ids)),
            instances.c.state == SlotState.PLANNED,
            instances.c.requested_at.is_(None),
        )
        .order_by(instances.c.workload_id, instances.c.slot_key)
    )
    of_workload: dict[str, list[str]] = {}
    for workload_id, slot in await connection.execute(query):
        of_workload.setdefault(workload_id, []).append(slot)
    for workload_id, slots in of_workload.items():
        named = {"tenant": tenant_id, "workload": workload_id, "slots": slots}
        await lock_slots(connection, tenant_id, workload_id, slots)
        await connection.execute(LOWER_TARGETS, named)
        await mark_gone(connection, tenant_id, workload_id, slots)


async def mark_surplus(connection: Connection, tenant_id: str, workload_id: str) -> Sequence[sa.RowMapping]:
    """Turn what a workload holds beyond its targets into slots to give back; returns all of those.

    The newest go first, and those that do not run yet before those that do.
    """
    await lock_workload(connection, tenant_id, workload_id)
    named = {"tenant": tenant_id, "workload": workload_id}
    surplus = (await connection.execute(SURPLUS, named)).mappings().all()
    unlaunched = [row["slot_key"] for row in surplus if row["server_id"] is None]
    launched = [row["slot_key"] for row in surplus if row["server_id"] is not None]
    await mark_gone(connection, tenant_id, workload_id, unlaunched)
    if launched:
        await connection.execute(
            slot_update(tenant_id, launched).values(state=SlotState.RELEASING, updated_at=sa.func.now())
        )
    return await releasing(connection, tenant_id, workload_id)


async def releasing(connection: Connection, tenant_id: str, workload_id: str) -> Sequence[sa.RowMapping]:
    """Slots whose servers are to be deleted."""
    query = (
        sa.select(instances.c.slot_key, instances.c.server_id, instances.c.region, instances.c.pool_id)
        .where(
            instances.c.tenant_id == tenant_id,
            instances.c.workload_id == workload_id,
            instances.c.state == SlotState.RELEASING,
        )
        .order_by(instances.c.region, instances.c.slot_key)
    )
    return (await connection.execute(query)).mappings().all()

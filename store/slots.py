"""The life of slots: asked for, bound to servers, running, given back, gone or failed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from domain.acquisition import ENDED_STATES, LIVE_STATES, Binding, Failure, SlotState
from store.engine import Connection
from store.registry import lock_capacity
from store.tables import instances, pools, reservations
from store.workloads import lock_workload

# Slots that fail beyond what the plan asks for cost it nothing.
LOWER_TARGETS = sa.text(
    """
    UPDATE reservations r SET
      target_instances = least(r.target_instances, d.usable),
      units = least(r.units, least(r.target_instances, d.usable) * r.units_per_instance)
    FROM (
      SELECT pool_id, shape_key, count(*) FILTER (WHERE slot_key <> ALL(:slots)) AS usable
      FROM instances
      WHERE tenant_id = :tenant AND workload_id = :workload AND state IN ('planned', 'building', 'active')
      GROUP BY 1, 2 HAVING bool_or(slot_key = ANY(:slots))
    ) d
    WHERE r.tenant_id = :tenant AND r.workload_id = :workload
      AND r.pool_id = d.pool_id AND r.shape_key = d.shape_key
    """
)

FAILURES = sa.text(
    """
    SELECT pool_id, count(*) AS instances,
           (array_agg(problem ORDER BY updated_at DESC, slot_key))[1] AS problem
    FROM instances
    WHERE tenant_id = :tenant AND workload_id = :workload AND region = :region AND state = 'failed'
      AND updated_at >= (
        SELECT max(committed_at) FROM plan_generations WHERE tenant_id = :tenant AND workload_id = :workload
      )
    GROUP BY pool_id ORDER BY pool_id
    """
)


async def live_slots(
    connection: Connection, tenant_id: str, workload_id: str, region: str
) -> Sequence[sa.RowMapping]:
    """Live slots of a workload in one region, each with its pool's place."""
    return await _slots(connection, tenant_id, workload_id, region, instances.c.state.in_(LIVE_STATES))


async def ended_slots(
    connection: Connection,
    tenant_id: str,
    workload_id: str,
    region: str,
    *,
    batch_keys: Sequence[str],
    asked_since: datetime,
) -> Sequence[sa.RowMapping]:
    """Ended slots that have, or may still get, servers: of the named batches, or asked for lately."""
    may_have = sa.or_(instances.c.batch_key.in_(list(batch_keys)), instances.c.requested_at >= asked_since)
    ended = sa.and_(instances.c.state.in_(ENDED_STATES), may_have)
    return await _slots(connection, tenant_id, workload_id, region, ended)


async def _slots(
    connection: Connection, tenant_id: str, workload_id: str, region: str, which: sa.ColumnElement[bool]
) -> Sequence[sa.RowMapping]:
    joined = instances.join(
        pools, sa.and_(pools.c.tenant_id == instances.c.tenant_id, pools.c.pool_id == instances.c.pool_id)
    ).join(
        reservations,
        sa.and_(
            *(
                reservations.c[name] == instances.c[name]
                for name in ("tenant_id", "workload_id", "pool_id", "shape_key")
            )
        ),
    )
    query = (
        sa.select(
            instances,
            pools.c.hall,
            pools.c.flavor,
            pools.c.purchase_model,
            reservations.c.units_per_instance,
        )
        .select_from(joined)
        .where(
            instances.c.tenant_id == tenant_id,
            instances.c.workload_id == workload_id,
            instances.c.region == region,
            which,
        )
        .order_by(instances.c.batch_key, instances.c.slot_key)
    )
    return (await connection.execute(query)).mappings().all()


async def bind_servers(
    connection: Connection, tenant_id: str, bindings: Sequence[Binding], launched_by: str
) -> None:
    """Bind servers to their slots. The database refuses a server that has a slot already."""
    for slot, server_id in bindings:
        await connection.execute(
            slot_update(tenant_id, [slot])
            .where(instances.c.state == SlotState.PLANNED)
            .values(
                server_id=server_id,
                state=SlotState.BUILDING,
                launched_by=launched_by,
                updated_at=sa.func.now(),
            )
        )


async def mark_requested(
    connection: Connection, tenant_id: str, slots: Sequence[str], *, at: datetime, settle: timedelta
) -> Sequence[str]:
    """Write down that servers are about to be asked for, before they are; returns for which slots.

    A slot that was asked for within the `settle` time, by whomever, is not asked for now.
    """
    asked = await connection.execute(
        slot_update(tenant_id, slots)
        .where(
            instances.c.state == SlotState.PLANNED,
            sa.or_(instances.c.requested_at.is_(None), instances.c.requested_at <= at - settle),
        )
        .values(requested_at=at, launch_attempts=instances.c.launch_attempts + 1, updated_at=at)
        .returning(instances.c.slot_key)
    )
    return sorted(asked.scalars())


async def unask(connection: Connection, tenant_id: str, slots: Sequence[str]) -> None:
    """The provider has certainly not built what was just asked for: it does not count as an attempt.

    A slot that was asked for before keeps the time of this request, so that it is not asked for at once.
    """
    await connection.execute(
        slot_update(tenant_id, slots)
        .where(instances.c.state == SlotState.PLANNED, instances.c.launch_attempts > 0)
        .values(
            launch_attempts=instances.c.launch_attempts - 1,
            requested_at=sa.case((instances.c.launch_attempts > 1, instances.c.requested_at)),
        )
    )


def slot_update(tenant_id: str, slots: Sequence[str]) -> sa.Update:
    return sa.update(instances).where(
        instances.c.tenant_id == tenant_id, instances.c.slot_key.in_(list(slots))
    )


async def mark_active(
    connection: Connection, tenant_id: str, server_ids: Sequence[str], at: datetime
) -> None:
    """The provider says that these servers run."""
    await connection.execute(
        sa.update(instances)
        .where(
            instances.c.tenant_id == tenant_id,
            instances.c.server_id.in_(list(server_ids)),
            instances.c.state == SlotState.BUILDING,
        )
        .values(state=SlotState.ACTIVE, active_at=at, updated_at=at)
    )


async def mark_failed(
    connection: Connection, tenant_id: str, workload_id: str, failures: Sequence[Failure]
) -> None:
    """These slots will not run: their capacity is free again, and their pools are to hold so much less."""
    if not failures:
        return
    slots = [failure.slot_key for failure in failures]
    await lock_slots(connection, tenant_id, workload_id, slots)
    named = {"tenant": tenant_id, "workload": workload_id, "slots": slots}
    await connection.execute(LOWER_TARGETS, named)
    for failure in failures:
        ended: dict[str, Any] = {"state": SlotState.FAILED, "problem": failure.problem}
        if failure.server_id is not None:
            ended["server_id"] = failure.server_id
        await connection.execute(
            slot_update(tenant_id, [failure.slot_key])
            .where(instances.c.state.in_(LIVE_STATES))
            .values(ended | {"updated_at": sa.func.clock_timestamp()})
        )


async def mark_lost(
    connection: Connection, tenant_id: str, workload_id: str, losses: Sequence[Failure], at: datetime
) -> Sequence[sa.RowMapping]:
    """The servers of these slots are gone or useless: what they held is to be placed anew.

    Returns the slots that were running until now, each with its pool and when it began to run; a slot
    that somebody else has ended meanwhile is left alone.
    """
    await lock_slots(connection, tenant_id, workload_id, [one.slot_key for one in losses])
    running = (
        sa.select(instances.c.slot_key, instances.c.pool_id, instances.c.server_id, instances.c.active_at)
        .where(
            instances.c.tenant_id == tenant_id,
            instances.c.slot_key.in_([one.slot_key for one in losses]),
            instances.c.state == SlotState.ACTIVE,
        )
        .order_by(instances.c.slot_key)
    )
    lost = (await connection.execute(running)).mappings().all()
    named = {"tenant": tenant_id, "workload": workload_id, "slots": [row["slot_key"] for row in lost]}
    await connection.execute(LOWER_TARGETS, named)
    why = {one.slot_key: one.problem for one in losses}
    for row in lost:
        await connection.execute(
            slot_update(tenant_id, [row["slot_key"]]).values(
                state=SlotState.LOST, problem=why[row["slot_key"]], updated_at=at
            )
        )
    return lost


async def failures_since_plan(
    connection: Connection, tenant_id: str, workload_id: str, region: str
) -> Sequence[sa.RowMapping]:
    """Slots of a region that failed since the newest plan, by pool with the last problem of each."""
    named = {"tenant": tenant_id, "workload": workload_id, "region": region}
    return (await connection.execute(FAILURES, named)).mappings().all()


async def lock_slots(connection: Connection, tenant_id: str, workload_id: str, slots: Sequence[str]) -> None:
    """Lock the workload, then the capacity that its slots take: the order of everyone."""
    await lock_workload(connection, tenant_id, workload_id)
    touched = (
        sa.select(instances.c.pool_id)
        .distinct()
        .where(instances.c.tenant_id == tenant_id, instances.c.slot_key.in_(list(slots)))
    )
    await lock_capacity(connection, tenant_id, list((await connection.execute(touched)).scalars()))

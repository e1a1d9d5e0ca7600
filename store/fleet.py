"""The fleet: slots, the servers bound to them, and what is to be given back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from domain.acquisition import LIVE_STATES, Binding, Failure, SlotState
from domain.contract import Contract
from store.engine import Connection
from store.registry import lock_capacity
from store.tables import (
    contracts,
    instances,
    pool_backoffs,
    pools,
    reservations,
    workloads,
)

SURPLUS = sa.text(
    """
    WITH usable AS (
      SELECT i.slot_key, i.server_id, i.region, i.pool_id, r.target_instances,
             row_number() OVER (
               PARTITION BY i.pool_id, i.shape_key
               ORDER BY (i.state = 'active') DESC, i.generation, i.slot_key
             ) AS place
      FROM instances i JOIN reservations r USING (tenant_id, workload_id, pool_id, shape_key)
      WHERE i.tenant_id = :tenant AND i.workload_id = :workload
        AND i.state IN ('planned', 'building', 'active')
    )
    SELECT slot_key, server_id, region, pool_id FROM usable
    WHERE place > target_instances ORDER BY pool_id, slot_key
    """
)

LOWER_TARGETS = sa.text(
    """
    UPDATE reservations r SET
      target_instances = greatest(0, r.target_instances - d.failed),
      units = least(r.units, greatest(0, r.target_instances - d.failed) * r.units_per_instance)
    FROM (
      SELECT tenant_id, workload_id, pool_id, shape_key, count(*) AS failed
      FROM instances WHERE tenant_id = :tenant AND slot_key = ANY(:slots)
        AND state IN ('planned', 'building', 'active')
      GROUP BY 1, 2, 3, 4
    ) d
    WHERE (r.tenant_id, r.workload_id, r.pool_id, r.shape_key)
        = (d.tenant_id, d.workload_id, d.pool_id, d.shape_key)
    """
)

REGIONS_AT_WORK = sa.text(
    """
    SELECT i.region,
           bool_or(i.state IN ('planned', 'building')) AS opening,
           bool_or(i.state = 'releasing') AS releasing,
           bool_or(r.instances > r.target_instances) AS surplus
    FROM instances i JOIN reservations r USING (tenant_id, workload_id, pool_id, shape_key)
    WHERE i.tenant_id = :tenant AND i.workload_id = :workload
      AND i.state IN ('planned', 'building', 'active', 'releasing')
    GROUP BY i.region ORDER BY i.region
    """
)


async def slots_in_region(
    connection: Connection, tenant_id: str, workload_id: str, region: str, batch_keys: Sequence[str]
) -> Sequence[sa.RowMapping]:
    """Live slots of a workload in one region, and every slot of the named batches, with its pool's place."""
    joined = instances.join(
        pools, sa.and_(pools.c.tenant_id == instances.c.tenant_id, pools.c.pool_id == instances.c.pool_id)
    )
    query = (
        sa.select(instances, pools.c.hall, pools.c.flavor, pools.c.purchase_model)
        .select_from(joined)
        .where(
            instances.c.tenant_id == tenant_id,
            instances.c.workload_id == workload_id,
            instances.c.region == region,
            sa.or_(instances.c.state.in_(LIVE_STATES), instances.c.batch_key.in_(list(batch_keys))),
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
            _slot_update(tenant_id, [slot])
            .where(instances.c.state == SlotState.PLANNED)
            .values(
                server_id=server_id,
                state=SlotState.BUILDING,
                launched_by=launched_by,
                updated_at=sa.func.now(),
            )
        )


async def mark_requested(connection: Connection, tenant_id: str, slots: Sequence[str], at: datetime) -> None:
    """Write down that servers are about to be asked for, before they are."""
    await connection.execute(
        _slot_update(tenant_id, slots).values(
            requested_at=at, launch_attempts=instances.c.launch_attempts + 1, updated_at=at
        )
    )


def _slot_update(tenant_id: str, slots: Sequence[str]) -> sa.Update:
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


async def mark_failed(connection: Connection, tenant_id: str, failures: Sequence[Failure]) -> None:
    """These slots will not run: their capacity is free again, and their pools are to hold so much less."""
    if not failures:
        return
    slots = [failure.slot_key for failure in failures]
    await _lock_pools_of(connection, tenant_id, slots)
    await connection.execute(LOWER_TARGETS, {"tenant": tenant_id, "slots": slots})
    for failure in failures:
        ended: dict[str, Any] = {"state": SlotState.FAILED, "problem": failure.problem}
        if failure.server_id is not None:
            ended["server_id"] = failure.server_id
        await connection.execute(
            _slot_update(tenant_id, [failure.slot_key])
            .where(instances.c.state.in_(LIVE_STATES))
            .values(ended | {"updated_at": sa.func.now()})
        )


async def mark_gone(connection: Connection, tenant_id: str, slots: Sequence[str]) -> None:
    """These slots' servers are deleted, or never existed; their capacity is free again."""
    if not slots:
        return
    await _lock_pools_of(connection, tenant_id, slots)
    await connection.execute(
        _slot_update(tenant_id, slots)
        .where(instances.c.state.in_(LIVE_STATES))
        .values(state=SlotState.GONE, updated_at=sa.func.now())
    )


async def _lock_pools_of(connection: Connection, tenant_id: str, slots: Sequence[str]) -> None:
    touched = (
        sa.select(instances.c.pool_id)
        .distinct()
        .where(instances.c.tenant_id == tenant_id, instances.c.slot_key.in_(list(slots)))
    )
    await lock_capacity(connection, tenant_id, list((await connection.execute(touched)).scalars()))


async def mark_surplus(connection: Connection, tenant_id: str, workload_id: str) -> Sequence[sa.RowMapping]:
    """Turn what a workload holds beyond its targets into slots to give back; returns all of those.

    The newest go first, and those that do not run yet before those that do.
    """
    named = {"tenant": tenant_id, "workload": workload_id}
    surplus = (await connection.execute(SURPLUS, named)).mappings().all()
    unlaunched = [row["slot_key"] for row in surplus if row["server_id"] is None]
    launched = [row["slot_key"] for row in surplus if row["server_id"] is not None]
    await mark_gone(connection, tenant_id, unlaunched)
    if launched:
        await connection.execute(
            _slot_update(tenant_id, launched).values(state=SlotState.RELEASING, updated_at=sa.func.now())
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


async def back_off(
    connection: Connection, *, tenant_id: str, workload_id: str, pool_id: str, until: datetime, problem: str
) -> None:
    """Keep a workload out of a pool for a while after a failed launch."""
    row = {
        "tenant_id": tenant_id,
        "workload_id": workload_id,
        "pool_id": pool_id,
        "until": until,
        "failures": 1,
        "problem": problem,
    }
    statement = insert(pool_backoffs).values(row)
    await connection.execute(
        statement.on_conflict_do_update(
            index_elements=["tenant_id", "workload_id", "pool_id"],
            set_={
                "until": until,
                "failures": pool_backoffs.c.failures + 1,
                "problem": statement.excluded.problem,
            },
        )
    )


async def counts_by_state(connection: Connection, tenant_id: str, workload_id: str) -> dict[str, int]:
    query = (
        sa.select(instances.c.state, sa.func.count())
        .where(instances.c.tenant_id == tenant_id, instances.c.workload_id == workload_id)
        .group_by(instances.c.state)
    )
    return {row[0]: row[1] for row in await connection.execute(query)}


async def planned_units(connection: Connection, tenant_id: str, workload_id: str) -> int:
    """Units that a workload's pools hold or are to hold."""
    query = sa.select(sa.func.coalesce(sa.func.sum(reservations.c.units), 0)).where(
        reservations.c.tenant_id == tenant_id, reservations.c.workload_id == workload_id
    )
    return int((await connection.execute(query)).scalar_one())


async def fleet_of(connection: Connection, tenant_id: str, workload_id: str) -> Sequence[sa.RowMapping]:
    """What a workload holds by pool and shape, with the pool's place and price."""
    joined = reservations.join(
        pools,
        sa.and_(pools.c.tenant_id == reservations.c.tenant_id, pools.c.pool_id == reservations.c.pool_id),
    )
    query = (
        sa.select(
            reservations,
            pools.c.region,
            pools.c.hall,
            pools.c.group_id,
            pools.c.purchase_model,
            pools.c.price_per_hour_usd,
            pools.c.cpu_cores,
            pools.c.ram_gb,
        )
        .select_from(joined)
        .where(
            reservations.c.tenant_id == tenant_id,
            reservations.c.workload_id == workload_id,
            sa.or_(reservations.c.instances > 0, reservations.c.units > 0),
        )
        .order_by(reservations.c.pool_id, reservations.c.shape_key)
    )
    return (await connection.execute(query)).mappings().all()


async def list_instances(
    connection: Connection, tenant_id: str, workload_id: str, *, live_only: bool = True
) -> Sequence[sa.RowMapping]:
    query = sa.select(instances).where(
        instances.c.tenant_id == tenant_id, instances.c.workload_id == workload_id
    )
    if live_only:
        query = query.where(instances.c.state.in_(LIVE_STATES))
    return (await connection.execute(query.order_by(instances.c.slot_key))).mappings().all()


async def contract_of(connection: Connection, tenant_id: str, workload_id: str) -> Contract:
    joined = workloads.join(
        contracts,
        sa.and_(
            contracts.c.tenant_id == workloads.c.tenant_id,
            contracts.c.contract_id == workloads.c.contract_id,
        ),
    )
    columns: list[Any] = [contracts.c[name] for name in Contract.model_fields]
    query = (
        sa.select(*columns)
        .select_from(joined)
        .where(workloads.c.tenant_id == tenant_id, workloads.c.workload_id == workload_id)
    )
    return Contract.model_validate(dict((await connection.execute(query)).mappings().one()))


async def finish(
    connection: Connection,
    *,
    tenant_id: str,
    workload_id: str,
    phase: str,
    shortfall_units: int,
    shortfall_reason: str | None,
) -> None:
    """Record how far a placement came."""
    await connection.execute(
        sa.update(workloads)
        .where(workloads.c.tenant_id == tenant_id, workloads.c.workload_id == workload_id)
        .values(
            phase=phase,
            shortfall_units=shortfall_units,
            shortfall_reason=shortfall_reason,
            updated_at=sa.func.now(),
        )
    )


async def regions_at_work(connection: Connection, tenant_id: str, workload_id: str) -> Sequence[sa.Row[Any]]:
    """Regions where a workload has slots: which are opening, releasing, or hold more than is meant."""
    named = {"tenant": tenant_id, "workload": workload_id}
    return (await connection.execute(REGIONS_AT_WORK, named)).all()

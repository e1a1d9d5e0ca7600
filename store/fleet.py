"""The fleet of a workload: what it holds in which pools and states, and how far its placement came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from domain.contract import Contract
from store.engine import Connection
from store.tables import contracts, instances, pools, reservations, workloads

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

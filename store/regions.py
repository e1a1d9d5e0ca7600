"""Provider regions as they are known: budget, circuit, pause, quotas, licences, drift and leases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from store.engine import Connection
from store.tables import drifts, leases, quota_reports, reconciles

# A pause and the tokens are told by the database's clock, as the statement that takes one sees them.
BUDGETS = sa.text(
    """
    SELECT region, burst, refill_per_second, circuit, failures, trips, circuit_problem, circuit_changed_at,
           circuit_until, quota_refusals, quota_problem, quota_until,
           CASE WHEN paused_until > clock_timestamp() THEN paused_until END AS paused_until,
           floor(greatest(0, least(burst, tokens + extract(epoch FROM clock_timestamp() - updated_at)
                                          * refill_per_second))) AS tokens
    FROM provider_budgets
    WHERE tenant_id = :tenant AND region > :after ORDER BY region LIMIT :limit
    """
)


@dataclass(frozen=True, slots=True)
class RegionRows:
    """The rows of one region. `drifts` counts by partition and kind; leases come by their end."""

    budget: sa.Row[tuple[object, ...]]
    quotas: Sequence[sa.RowMapping]
    licences: Sequence[sa.RowMapping]
    drifts: dict[tuple[str, str], int]
    leases: Sequence[sa.RowMapping]

    @property
    def region(self) -> str:
        return str(self.budget.region)


async def list_regions(
    connection: Connection, tenant_id: str, *, after: str = "", limit: int
) -> list[RegionRows]:
    """Every region that has a token budget, in the order of the names, from behind `after`."""
    budgets = (await connection.execute(BUDGETS, {"tenant": tenant_id, "after": after, "limit": limit})).all()
    return [await _rows(connection, tenant_id, budget) for budget in budgets]


async def _rows(connection: Connection, tenant_id: str, budget: sa.Row[tuple[object, ...]]) -> RegionRows:
    async def of_region(table: sa.Table, *order: str) -> Sequence[sa.RowMapping]:
        query = (
            sa.select(table)
            .where(table.c.tenant_id == tenant_id, table.c.region == budget.region)
            .order_by(*(table.c[name] for name in order))
        )
        return (await connection.execute(query)).mappings().all()

    counted = await connection.execute(
        sa.select(drifts.c.partition_id, drifts.c.kind, sa.func.count())
        .where(drifts.c.tenant_id == tenant_id, drifts.c.region == budget.region)
        .group_by(drifts.c.partition_id, drifts.c.kind)
    )
    return RegionRows(
        budget=budget,
        quotas=await of_region(quota_reports, "resource"),
        licences=await of_region(reconciles, "partition_id"),
        drifts={(row[0], row[1]): row[2] for row in counted},
        leases=await of_region(leases, "ends_at", "lease_id"),
    )

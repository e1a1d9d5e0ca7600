"""Which workloads a placement has to look at again, and why."""

from __future__ import annotations

import sqlalchemy as sa

from store.engine import Connection
from store.tables import workloads

IN_NEED = sa.text(
    """
    SELECT DISTINCT ON (workload_id) workload_id, why FROM (
      SELECT workload_id, 'its newest claim is not planned' AS why, 1 AS rank
      FROM workloads
      WHERE tenant_id = :tenant AND partition_id = :partition AND planned_version < claim_version
        AND updated_at < now() - interval '10 seconds'
      UNION ALL
      SELECT w.workload_id, 'it lost instances', 2
      FROM workloads w
      JOIN claims c ON (c.tenant_id, c.workload_id, c.version)
                     = (w.tenant_id, w.workload_id, w.planned_version)
      WHERE w.tenant_id = :tenant AND w.partition_id = :partition AND w.phase IN ('placed', 'shortfall')
        AND c.units > w.shortfall_units + (
          SELECT coalesce(sum(r.units), 0) FROM reservations r
          WHERE (r.tenant_id, r.workload_id) = (w.tenant_id, w.workload_id)
        )
      UNION ALL
      SELECT i.workload_id, 'it has slots without a running server', 2
      FROM instances i JOIN workloads w USING (tenant_id, workload_id)
      WHERE i.tenant_id = :tenant AND i.partition_id = :partition
        AND i.state IN ('planned', 'building', 'releasing')
        AND (w.phase IN ('placed', 'shortfall') OR w.updated_at < now() - interval '5 minutes')
      UNION ALL
      SELECT r.workload_id, 'it holds units in a pool that may hold none', 3
      FROM reservations r JOIN workloads w USING (tenant_id, workload_id)
      JOIN pools p USING (tenant_id, pool_id) JOIN pool_capacity c USING (tenant_id, pool_id)
      WHERE r.tenant_id = :tenant AND w.partition_id = :partition AND r.units > 0
        AND (p.state <> 'active' OR c.standing = 'excluded' OR c.hall_lost)
      UNION ALL
      SELECT r.workload_id, 'it holds instances beyond its plan', 4
      FROM reservations r JOIN workloads w USING (tenant_id, workload_id)
      WHERE r.tenant_id = :tenant AND w.partition_id = :partition AND r.instances > r.target_instances
        AND w.phase IN ('placed', 'shortfall')
      UNION ALL
      SELECT workload_id, 'units of it are not placed', 5
      FROM workloads
      WHERE tenant_id = :tenant AND partition_id = :partition AND shortfall_units > 0
        AND updated_at < now() - interval '5 minutes'
    ) found
    ORDER BY workload_id, rank
    LIMIT :limit
    """
)


async def workloads_in_need(
    connection: Connection, tenant_id: str, partition_id: str, limit: int
) -> list[tuple[str, str]]:
    """Workload and reason, in the order of the ids; the weightiest reason of each.

    What a running placement is about to do is no need yet: hence the ages.
    """
    named = {"tenant": tenant_id, "partition": partition_id, "limit": limit}
    return [(row[0], row[1]) for row in await connection.execute(IN_NEED, named)]


async def shortfall_units(connection: Connection, tenant_id: str, partition_id: str) -> dict[str, int]:
    """Units of a partition's workloads that are not placed, by reason."""
    query = (
        sa.select(workloads.c.shortfall_reason, sa.func.sum(workloads.c.shortfall_units))
        .where(
            workloads.c.tenant_id == tenant_id,
            workloads.c.partition_id == partition_id,
            workloads.c.shortfall_units > 0,
        )
        .group_by(workloads.c.shortfall_reason)
    )
    return {row[0]: int(row[1]) for row in await connection.execute(query)}

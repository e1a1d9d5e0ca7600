"""Plan generations with the decisions that made them, newest first."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from store.engine import Connection
from store.tables import placement_decisions, plan_generations


async def generations_before(
    connection: Connection, tenant_id: str, workload_id: str, *, before: int | None, limit: int
) -> Sequence[sa.RowMapping]:
    """Up to `limit` generations of a workload, the newest first, from below `before` on."""
    joined = plan_generations.join(
        placement_decisions,
        sa.and_(
            placement_decisions.c.tenant_id == plan_generations.c.tenant_id,
            placement_decisions.c.decision_id == plan_generations.c.decision_id,
        ),
    )
    query = (
        sa.select(
            plan_generations,
            placement_decisions.c.claim_version,
            placement_decisions.c.ranking_id,
            placement_decisions.c.outcome,
            placement_decisions.c.decided_at,
        )
        .select_from(joined)
        .where(plan_generations.c.tenant_id == tenant_id, plan_generations.c.workload_id == workload_id)
        .order_by(plan_generations.c.generation.desc())
        .limit(limit)
    )
    if before is not None:
        query = query.where(plan_generations.c.generation < before)
    return (await connection.execute(query)).mappings().all()

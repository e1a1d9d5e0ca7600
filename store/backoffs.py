"""Pools that a workload stays out of for a while."""

from __future__ import annotations

from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from domain.backoff import BackoffTerms
from store.engine import Connection
from store.tables import pool_backoffs


async def back_off(
    connection: Connection,
    *,
    tenant_id: str,
    workload_id: str,
    pool_id: str,
    now: datetime,
    terms: BackoffTerms,
    problem: str,
) -> None:
    """Keep a workload out of a pool for a while after a failed launch or an early loss.

    Each further one within a clean period doubles the while, up to its limit.
    """
    key = {"tenant_id": tenant_id, "workload_id": workload_id, "pool_id": pool_id}
    query = (
        sa.select(pool_backoffs.c.failures, pool_backoffs.c.until)
        .where(*(pool_backoffs.c[name] == value for name, value in key.items()))
        .with_for_update()
    )
    earlier = (await connection.execute(query)).first()
    failures = terms.failures_so_far(earlier[0], earlier[1], now) + 1 if earlier else 1
    values = {
        "until": now + timedelta(seconds=terms.backoff_seconds_after(failures)),
        "failures": failures,
        "problem": problem,
    }
    statement = insert(pool_backoffs).values(key | values)
    await connection.execute(
        statement.on_conflict_do_update(index_elements=["tenant_id", "workload_id", "pool_id"], set_=values)
    )

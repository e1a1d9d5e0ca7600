"""Quota reports: what the provider's quota of a region leaves, as it was last observed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from domain.quota import Level, QuotaResource
from store.engine import Connection
from store.tables import quota_reports


async def report(
    connection: Connection, tenant_id: str, region: str, levels: Sequence[Level], at: datetime
) -> tuple[QuotaResource, ...]:
    """Record the levels of a region; returns the resources whose alarm begins with them."""
    of_region = sa.and_(quota_reports.c.tenant_id == tenant_id, quota_reports.c.region == region)
    query = sa.select(quota_reports.c.resource).where(of_region, quota_reports.c.alarm).with_for_update()
    before = set((await connection.execute(query)).scalars())
    statement = insert(quota_reports).values(
        [
            {
                "tenant_id": tenant_id,
                "region": region,
                "resource": one.resource.value,
                "quota_limit": one.limit,
                "used": one.used,
                "pending": one.pending,
                "alarm": one.alarm,
                "observed_at": at,
            }
            for one in levels
        ]
    )
    written = ("quota_limit", "used", "pending", "alarm", "observed_at")
    await connection.execute(
        statement.on_conflict_do_update(
            index_elements=["tenant_id", "region", "resource"],
            set_={name: statement.excluded[name] for name in written},
        )
    )
    return tuple(one.resource for one in levels if one.alarm and one.resource.value not in before)

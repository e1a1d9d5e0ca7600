"""Quota holds: after a refusal for quota nobody asks the region for more until a while has passed.

The hold stands in the row of the region's token budget, which every call to the provider takes from:
write it in a short transaction, or last in a longer one.
"""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from store.engine import Connection
from store.tables import provider_budgets

BASE_SECONDS = 60.0
MOST_SECONDS = 3600.0
# Refused while the region is held: a call that was on its way already. It is no refusal in a row.
HOLD = sa.text(
    """
    UPDATE provider_budgets SET
      quota_problem = :problem,
      quota_refusals = quota_refusals + CASE WHEN quota_until > :now THEN 0 ELSE 1 END,
      quota_until = CASE WHEN quota_until > :now THEN quota_until ELSE
        CAST(:now AS timestamptz)
        + make_interval(secs => least(:most, :base * power(2, least(quota_refusals, 32)))) END
    WHERE tenant_id = :tenant AND region = :region
    RETURNING quota_until
    """
)


async def hold(
    connection: Connection,
    tenant_id: str,
    region: str,
    problem: str,
    now: datetime,
    *,
    base_seconds: float = BASE_SECONDS,
    most_seconds: float = MOST_SECONDS,
) -> datetime | None:
    """Hold a region after a refusal for quota: twice as long for each refusal in a row.

    Returns until when; None when the region has no token budget, where nothing can be remembered.
    """
    named = {"tenant": tenant_id, "region": region, "problem": problem, "now": now}
    row = (await connection.execute(HOLD, named | {"base": base_seconds, "most": most_seconds})).first()
    return None if row is None else row.quota_until


async def clear(
    connection: Connection, tenant_id: str, region: str, *, until: datetime | None = None
) -> bool:
    """Forget a hold and the refusals before it; whether there was anything to forget.

    With `until` only the hold that ends then: one that was written meanwhile stays.
    """
    held = provider_budgets.c.quota_refusals > 0
    if until is not None:
        held = sa.and_(held, provider_budgets.c.quota_until == until)
    found = await connection.execute(
        sa.update(provider_budgets)
        .where(_of(tenant_id, region), held)
        .values(quota_refusals=0, quota_problem=None, quota_until=None)
        .returning(provider_budgets.c.region)
    )
    return found.first() is not None


async def held_until(connection: Connection, tenant_id: str, region: str) -> datetime | None:
    """When the region's last hold ends or ended; None without one."""
    query = sa.select(provider_budgets.c.quota_until).where(_of(tenant_id, region))
    until: datetime | None = (await connection.execute(query)).scalar()
    return until


def _of(tenant_id: str, region: str) -> sa.ColumnElement[bool]:
    return sa.and_(provider_budgets.c.tenant_id == tenant_id, provider_budgets.c.region == region)

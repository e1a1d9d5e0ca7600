"""Claims as they were submitted, apart from how they were scaled since."""

from __future__ import annotations

import sqlalchemy as sa

from store.engine import Connection
from store.tables import claims

SCALED = "scale"


async def claim_to_scale(connection: Connection, tenant_id: str, workload_id: str) -> sa.RowMapping | None:
    """The newest claim that was submitted with units, or the newest of all.

    Scaling from what was submitted keeps its proportions, however often it is scaled.
    """
    submitted = sa.and_(claims.c.source != SCALED, claims.c.units > 0)
    query = (
        sa.select(claims)
        .where(claims.c.tenant_id == tenant_id, claims.c.workload_id == workload_id)
        .order_by(submitted.desc(), claims.c.version.desc())
        .limit(1)
    )
    return (await connection.execute(query)).mappings().first()


async def newest_units(connection: Connection, tenant_id: str, workload_id: str) -> int:
    """How many units the newest claim of a workload is for; 0 before its first."""
    query = (
        sa.select(claims.c.units)
        .where(claims.c.tenant_id == tenant_id, claims.c.workload_id == workload_id)
        .order_by(claims.c.version.desc())
        .limit(1)
    )
    return (await connection.execute(query)).scalar() or 0

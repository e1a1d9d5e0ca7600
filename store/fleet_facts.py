"""What the records say of the servers of one partition in one region."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import sqlalchemy as sa

from domain.contract import Tier
from store.engine import Connection
from store.licences import Place

_SLOT = """
    SELECT i.slot_key, i.batch_key, i.workload_id, i.pool_id, i.state, i.server_id, p.purchase_model, c.tier
    FROM instances i
    JOIN pools p USING (tenant_id, pool_id)
    JOIN workloads w USING (tenant_id, workload_id)
    JOIN contracts c USING (tenant_id, contract_id)
    WHERE i.tenant_id = :tenant AND i.partition_id = :partition AND i.region = :region
"""
LIVE = sa.text(_SLOT + " AND i.state IN ('planned', 'building', 'active', 'releasing')")
NAMED = sa.text(
    _SLOT
    + " AND (i.server_id = ANY(CAST(:servers AS text[])) OR i.batch_key = ANY(CAST(:batches AS text[])))"
)
# A workload without a claim may have lost it with the records: nothing can be said of its servers.
TIERS = sa.text(
    """
    SELECT w.workload_id, c.tier FROM workloads w JOIN contracts c USING (tenant_id, contract_id)
    WHERE w.tenant_id = :tenant AND w.partition_id = :partition AND w.claim_version > 0
    """
)
HELD = sa.text(
    """
    SELECT server_id FROM instances
    WHERE tenant_id = :tenant AND server_id = ANY(CAST(:servers AS text[]))
      AND state IN ('planned', 'building', 'active', 'releasing')
    """
)


def _named(place: Place) -> dict[str, object]:
    return {"tenant": place.tenant_id, "partition": place.partition_id, "region": place.region}


async def live_slots(connection: Connection, place: Place) -> Sequence[sa.RowMapping]:
    """Every live slot, with the purchase model of its pool and the tier of its workload."""
    return (await connection.execute(LIVE, _named(place))).mappings().all()


async def slots_of(
    connection: Connection, place: Place, *, servers: Collection[str], batches: Collection[str]
) -> Sequence[sa.RowMapping]:
    """Slots in any state that have these servers or belong to these batches."""
    named = _named(place) | {"servers": sorted(servers), "batches": sorted(batches)}
    return (await connection.execute(NAMED, named)).mappings().all()


async def tiers(connection: Connection, place: Place) -> dict[str, Tier]:
    """Every workload of the partition that has a claim, with its tier."""
    return {row[0]: Tier(row[1]) for row in await connection.execute(TIERS, _named(place))}


async def held(connection: Connection, tenant_id: str, servers: Collection[str]) -> frozenset[str]:
    """Which of these servers have a live slot now."""
    named = {"tenant": tenant_id, "servers": sorted(servers)}
    return frozenset((await connection.execute(HELD, named)).scalars())

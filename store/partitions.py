"""Partitions: one scheduler cluster in one region each."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from store.engine import Connection
from store.tables import partitions, pools


class UnknownRegion(LookupError):
    """Pools are registered, and none of them is in this region."""


class PartitionDiffers(ValueError):
    """A partition of this id exists with another region or scheduler."""


async def put_partition(
    connection: Connection, *, tenant_id: str, partition_id: str, region: str, scheduler: str
) -> bool:
    """Create a partition; whether it is new. Region and scheduler are fixed then.

    Raises `PartitionDiffers` where it exists with others, and `UnknownRegion` where a new one names a region
    without pools. Before any pool is registered every region is taken.
    """
    key = {"tenant_id": tenant_id, "partition_id": partition_id}
    given = {"region": region, "scheduler": scheduler}
    statement = insert(partitions).values(key | given).on_conflict_do_nothing()
    added = await connection.execute(statement.returning(partitions.c.partition_id))
    if added.first() is not None:
        await _require_region(connection, tenant_id, region)
        return True
    query = sa.select(partitions.c.region, partitions.c.scheduler).filter_by(**key)
    known = dict((await connection.execute(query)).mappings().one())
    if known != given:
        raise PartitionDiffers(
            f"partition {partition_id!r} is in region {known['region']!r} with scheduler"
            f" {known['scheduler']!r}, not {region!r} with {scheduler!r}: both are fixed at creation,"
            " so choose another partitionId"
        )
    return False


async def _require_region(connection: Connection, tenant_id: str, region: str) -> None:
    query = sa.select(pools.c.region).distinct().where(pools.c.tenant_id == tenant_id)
    known = sorted((await connection.execute(query)).scalars())
    if known and region not in known:
        raise UnknownRegion(
            f"no pool is registered in region {region!r}: regions with pools are {', '.join(known)}"
        )


async def list_partitions(connection: Connection, tenant_id: str) -> list[tuple[str, str, str]]:
    """Partition id, region and scheduler, in the order of the ids."""
    query = sa.select(partitions.c.partition_id, partitions.c.region, partitions.c.scheduler)
    rows = await connection.execute(
        query.where(partitions.c.tenant_id == tenant_id).order_by(partitions.c.partition_id)
    )
    return [(row.partition_id, row.region, row.scheduler) for row in rows]

"""Bundles: what they are compiled from, and those that were issued."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from domain.bundle_compile import NodeFacts
from domain.contract import Contract
from store.engine import Connection
from store.nodes import UnknownNode
from store.tables import bundles, contracts, instances, partitions, pools, workloads

BUNDLES_KEPT = 10


class Purpose(NamedTuple):
    """Where an instance is, what it is for, and under which contract."""

    facts: NodeFacts
    contract: Contract


class IssuedBundle(NamedTuple):
    """A bundle as it was issued; `letter` is what was signed."""

    version: int
    content_digest: str
    letter: bytes
    issued_at: datetime


async def find_purpose(connection: Connection, tenant_id: str, instance_id: str) -> Purpose:
    """What a bundle of an instance is compiled from. Raises `UnknownNode`."""
    facts = (
        instances.c.tenant_id,
        instances.c.server_id.label("instance_id"),
        instances.c.region,
        pools.c.hall,
        instances.c.pool_id,
        instances.c.partition_id,
        partitions.c.scheduler,
        instances.c.workload_id,
    )
    terms = [contracts.c[name] for name in Contract.model_fields]
    query = (
        sa.select(*facts, *terms)
        .join(pools, _same(instances, pools, "pool_id"))
        .join(partitions, _same(instances, partitions, "partition_id"))
        .join(workloads, _same(instances, workloads, "workload_id"))
        .join(contracts, _same(workloads, contracts, "contract_id"))
        .where(instances.c.tenant_id == tenant_id, instances.c.server_id == instance_id)
    )
    row = (await connection.execute(query)).mappings().first()
    if row is None:
        raise UnknownNode(f"no instance {instance_id!r}")
    return Purpose(
        NodeFacts.model_validate({name: row[name] for name in NodeFacts.model_fields}),
        Contract.model_validate({name: row[name] for name in Contract.model_fields}),
    )


async def find_scheduler(connection: Connection, tenant_id: str, partition_id: str) -> str | None:
    query = sa.select(partitions.c.scheduler).filter_by(tenant_id=tenant_id, partition_id=partition_id)
    found: str | None = (await connection.execute(query)).scalar_one_or_none()
    return found


async def newest_bundle(connection: Connection, tenant_id: str, instance_id: str) -> IssuedBundle | None:
    columns = (bundles.c[name] for name in IssuedBundle._fields)
    query = sa.select(*columns).filter_by(tenant_id=tenant_id, instance_id=instance_id)
    row = (await connection.execute(query.order_by(bundles.c.version.desc()).limit(1))).first()
    return None if row is None else IssuedBundle(*row)


async def add_bundle(
    connection: Connection, tenant_id: str, instance_id: str, issued: IssuedBundle, key_id: str
) -> bool:
    """Keep a bundle; False where its version was issued meanwhile. The last few versions are kept."""
    own = {"tenant_id": tenant_id, "instance_id": instance_id}
    row = own | issued._asdict() | {"key_id": key_id}
    added = await connection.execute(
        insert(bundles).values(row).on_conflict_do_nothing().returning(bundles.c.version)
    )
    if added.first() is None:
        return False
    old = sa.delete(bundles).filter_by(**own).where(bundles.c.version <= issued.version - BUNDLES_KEPT)
    await connection.execute(old)
    return True


def _same(left: sa.Table, right: sa.Table, key: str) -> sa.ColumnElement[bool]:
    return sa.and_(left.c.tenant_id == right.c.tenant_id, left.c[key] == right.c[key])

"""Leases as they were last seen: who holds what until when, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from domain.leases import LeaseStatus
from domain.pool import PoolState, PurchaseModel
from store.engine import Connection
from store.tables import leases, pool_capacity, pools

SEE = sa.text(
    """
    INSERT INTO leases AS l
      (tenant_id, region, lease_id, name, status, hall, flavor, instances, ends_at, seen_at)
    SELECT :tenant, :region, t.lease_id, t.name, t.status, t.hall, t.flavor, t.instances, t.ends_at, :at
    FROM unnest(CAST(:ids AS text[]), CAST(:names AS text[]), CAST(:statuses AS text[]),
                CAST(:halls AS text[]), CAST(:flavors AS text[]), CAST(:instances AS int[]),
                CAST(:ends AS timestamptz[]))
      AS t (lease_id, name, status, hall, flavor, instances, ends_at)
    ON CONFLICT (tenant_id, region, lease_id) DO UPDATE SET
      name = excluded.name, status = excluded.status, hall = excluded.hall, flavor = excluded.flavor,
      instances = excluded.instances, ends_at = excluded.ends_at, seen_at = excluded.seen_at,
      renewed_at = CASE WHEN excluded.ends_at > l.ends_at THEN excluded.seen_at ELSE l.renewed_at END
    """
)
NOTE = sa.text(
    """
    UPDATE leases l SET problem = t.problem
    FROM unnest(CAST(:ids AS text[]), CAST(:problems AS text[])) AS t (lease_id, problem)
    WHERE l.tenant_id = :tenant AND l.region = :region AND l.lease_id = t.lease_id
      AND l.problem IS DISTINCT FROM t.problem
    """
)


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """One lease. `hall` and `flavor` are None where its reservations do not agree on one."""

    lease_id: str
    name: str
    status: str
    hall: str | None
    flavor: str | None
    instances: int
    ends_at: datetime


async def committed_pools(connection: Connection, tenant_id: str, region: str) -> dict[tuple[str, str], str]:
    """Pool ids by (hall, flavor) of committed pools in use; a retired one is while units are left there."""
    query = (
        sa.select(pools.c.hall, pools.c.flavor, pools.c.pool_id)
        .join(
            pool_capacity,
            sa.and_(
                pools.c.tenant_id == pool_capacity.c.tenant_id, pools.c.pool_id == pool_capacity.c.pool_id
            ),
        )
        .where(
            pools.c.tenant_id == tenant_id,
            pools.c.region == region,
            pools.c.purchase_model == PurchaseModel.COMMITTED.value,
            sa.or_(pools.c.state != PoolState.RETIRED.value, pool_capacity.c.reserved_instances > 0),
        )
    )
    return {(row.hall, row.flavor): row.pool_id for row in await connection.execute(query)}


async def see(
    connection: Connection, tenant_id: str, region: str, listed: Sequence[LeaseRow], at: datetime
) -> None:
    """Record every lease that the provider lists now.

    One that is listed no longer is GONE, unless it had ended: then somebody tidied up.
    """
    if listed:
        await connection.execute(
            SEE,
            {
                "tenant": tenant_id,
                "region": region,
                "ids": [one.lease_id for one in listed],
                "names": [one.name for one in listed],
                "statuses": [one.status for one in listed],
                "halls": [one.hall for one in listed],
                "flavors": [one.flavor for one in listed],
                "instances": [one.instances for one in listed],
                "ends": [one.ends_at for one in listed],
                "at": at,
            },
        )
    missing = sa.and_(_of(tenant_id, region), leases.c.lease_id.not_in([one.lease_id for one in listed]))
    ended = leases.c.status == LeaseStatus.TERMINATED.value
    await connection.execute(sa.delete(leases).where(missing, ended))
    await connection.execute(sa.update(leases).where(missing).values(status=LeaseStatus.GONE.value))


async def gone(connection: Connection, tenant_id: str, region: str) -> list[LeaseRow]:
    """Leases that were there once and are listed no longer."""
    query = sa.select(*(leases.c[name] for name in LeaseRow.__slots__)).where(
        _of(tenant_id, region), leases.c.status == LeaseStatus.GONE.value
    )
    return [LeaseRow(**row) for row in (await connection.execute(query.order_by("lease_id"))).mappings()]


async def forget(connection: Connection, tenant_id: str, region: str, lease_ids: Collection[str]) -> None:
    """Drop leases that concern nobody any more."""
    if lease_ids:
        chosen = leases.c.lease_id.in_(sorted(lease_ids))
        await connection.execute(sa.delete(leases).where(_of(tenant_id, region), chosen))


async def renewed(
    connection: Connection,
    tenant_id: str,
    region: str,
    lease_id: str,
    *,
    ends_at: datetime,
    at: datetime,
    problem: str | None,
) -> None:
    """A lease ends later now; `problem` is what is wrong with it all the same."""
    await connection.execute(
        sa.update(leases)
        .where(_of(tenant_id, region), leases.c.lease_id == lease_id)
        .values(ends_at=ends_at, renewed_at=at, problem=problem)
    )


async def note_problems(
    connection: Connection, tenant_id: str, region: str, problems: Mapping[str, str | None]
) -> None:
    """Write down what is wrong with each lease, None where nothing is."""
    ids = sorted(problems)
    await connection.execute(
        NOTE,
        {"tenant": tenant_id, "region": region, "ids": ids, "problems": [problems[one] for one in ids]},
    )


def _of(tenant_id: str, region: str) -> sa.ColumnElement[bool]:
    return sa.and_(leases.c.tenant_id == tenant_id, leases.c.region == region)

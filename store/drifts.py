"""Drift as it is known: what differed in the last cycle, since when, and whether it was confirmed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

import sqlalchemy as sa

from domain.reconcile import Drift
from store.engine import Connection
from store.licences import Place
from store.tables import drifts

NOTE = sa.text(
    """
    INSERT INTO drifts AS d (tenant_id, partition_id, region, kind, subject, detail, workload_id, pool_id,
                             confirmed, first_seen_at, last_seen_at)
    SELECT :tenant, :partition, :region, t.kind, t.subject, t.detail, t.workload_id, t.pool_id,
           t.subject = ANY(CAST(:confirmed AS text[])), :at, :at
    FROM unnest(CAST(:kinds AS text[]), CAST(:subjects AS text[]), CAST(:details AS text[]),
                CAST(:workloads AS text[]), CAST(:pools AS text[]))
      AS t (kind, subject, detail, workload_id, pool_id)
    ON CONFLICT (tenant_id, partition_id, region, kind, subject) DO UPDATE SET
      cycles = d.cycles + 1, detail = excluded.detail, last_seen_at = excluded.last_seen_at,
      confirmed = d.confirmed OR excluded.confirmed
    """
)


def _of(place: Place) -> sa.ColumnElement[bool]:
    return sa.and_(
        drifts.c.tenant_id == place.tenant_id,
        drifts.c.partition_id == place.partition_id,
        drifts.c.region == place.region,
    )


async def note(
    connection: Connection,
    place: Place,
    found: Sequence[Drift],
    *,
    confirmed: Collection[str],
    at: datetime,
) -> None:
    """Record what this cycle found: seen once more, or new. What it did not find has healed."""
    named = {
        "tenant": place.tenant_id,
        "partition": place.partition_id,
        "region": place.region,
        "kinds": [one.kind.value for one in found],
        "subjects": [one.subject for one in found],
        "details": [one.detail for one in found],
        "workloads": [one.workload_id for one in found],
        "pools": [one.pool_id for one in found],
        "confirmed": sorted(confirmed),
        "at": at,
    }
    if found:
        await connection.execute(NOTE, named)
    await connection.execute(sa.delete(drifts).where(_of(place), drifts.c.last_seen_at < at))


async def known(connection: Connection, place: Place) -> Sequence[sa.RowMapping]:
    """What differed in the last cycle."""
    query = sa.select(drifts).where(_of(place)).order_by(drifts.c.kind, drifts.c.subject)
    return (await connection.execute(query)).mappings().all()


async def healed(connection: Connection, place: Place, subjects: Collection[str]) -> None:
    """These differences are put right."""
    await connection.execute(sa.delete(drifts).where(_of(place), drifts.c.subject.in_(list(subjects))))

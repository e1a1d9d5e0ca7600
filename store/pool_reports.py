"""Utilization reports of pools, written many at a time: one statement for pools, one for their models.

Locks are taken in the order of everyone: capacity, then models, then the memory they are counted in, and
each of these by tenant and id. So a batch never waits for whoever waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError

from domain.pool import PoolState
from domain.serving.models import DEFAULT_TAG
from store.engine import Connection
from store.tables import ModelState, cached_models

PoolName = tuple[str, str]

WRITE = sa.text(
    """
    WITH told AS MATERIALIZED (
      SELECT * FROM unnest(CAST(:tenants AS text[]), CAST(:pools AS text[]), CAST(:utilization AS numeric[]),
                           CAST(:queue_depth AS int[]), CAST(:reported_at AS timestamptz[]))
        AS t (tenant_id, pool_id, utilization, queue_depth, reported_at)
    ), found AS MATERIALIZED (
      SELECT t.*, p.state FROM told t JOIN pools p USING (tenant_id, pool_id)
      JOIN pool_capacity c USING (tenant_id, pool_id)
      ORDER BY t.tenant_id, t.pool_id FOR NO KEY UPDATE OF c
    ), written AS (
      UPDATE pool_capacity c
      SET utilization = f.utilization, queue_depth = f.queue_depth, reported_at = f.reported_at
      FROM found f
      WHERE c.tenant_id = f.tenant_id AND c.pool_id = f.pool_id AND f.state <> 'retired'
        AND (c.reported_at IS NULL OR c.reported_at < f.reported_at)
      RETURNING c.tenant_id, c.pool_id
    )
    SELECT f.tenant_id, f.pool_id, f.state, w.pool_id IS NOT NULL AS written
    FROM found f LEFT JOIN written w USING (tenant_id, pool_id)
    """
)
# A model may be named with the tag that is meant when none is written, by either side.
TOUCH = sa.text(
    """
    WITH told AS MATERIALIZED (
      SELECT * FROM unnest(CAST(:tenants AS text[]), CAST(:pools AS text[]), CAST(:models AS text[]),
                           CAST(:vram_gb AS int[]), CAST(:last_used_at AS timestamptz[]),
                           CAST(:listed_at AS timestamptz[]))
        AS t (tenant_id, pool_id, model, vram_gb, last_used_at, listed_at)
    ), held AS MATERIALIZED (
      SELECT m.tenant_id, m.pool_id, m.model, t.model AS told_as, t.last_used_at, t.listed_at
      FROM cached_models m JOIN told t
        ON m.tenant_id = t.tenant_id AND m.pool_id = t.pool_id
        AND regexp_replace(m.model, :untagged, '') = regexp_replace(t.model, :untagged, '')
      ORDER BY 1, 2, 3 FOR NO KEY UPDATE OF m
    ), touched AS (
      UPDATE cached_models m
      SET last_used_at = greatest(m.last_used_at, h.last_used_at),
          listed_at = greatest(m.listed_at, h.listed_at)
      FROM held h WHERE (m.tenant_id, m.pool_id, m.model) = (h.tenant_id, h.pool_id, h.model)
      RETURNING m.model
    )
    SELECT t.tenant_id, t.pool_id, t.model, t.vram_gb, t.last_used_at, t.listed_at
    FROM told t JOIN pool_serving s USING (tenant_id, pool_id)
    WHERE NOT EXISTS (
      SELECT FROM held h WHERE (h.tenant_id, h.pool_id, h.told_as) = (t.tenant_id, t.pool_id, t.model)
    )
    ORDER BY 1, 2, 3
    """
)
FRESH = sa.text(
    """
    WITH fresh AS MATERIALIZED (
      SELECT s.tenant_id, s.pool_id
      FROM unnest(CAST(:tenants AS text[]), CAST(:pools AS text[])) AS t (tenant_id, pool_id)
      JOIN pool_serving s USING (tenant_id, pool_id)
      WHERE s.stale_since IS NOT NULL ORDER BY 1, 2 FOR NO KEY UPDATE OF s
    )
    UPDATE pool_serving s SET stale_since = NULL FROM fresh f
    WHERE (s.tenant_id, s.pool_id) = (f.tenant_id, f.pool_id) RETURNING s.tenant_id, s.pool_id
    """
)
# A pool that is not in service, or without an endpoint, has no report to wait for.
MARK_STALE = sa.text(
    """
    WITH due AS MATERIALIZED (
      SELECT s.tenant_id, s.pool_id, now.since
      FROM pool_serving s JOIN pools p USING (tenant_id, pool_id)
      JOIN pool_capacity c USING (tenant_id, pool_id)
      CROSS JOIN LATERAL (
        SELECT CASE WHEN p.state IN ('active', 'draining') AND p.endpoint_ref IS NOT NULL
                         AND (c.reported_at IS NULL OR c.reported_at < :before)
                    THEN coalesce(c.reported_at + CAST(:window AS interval), :at) END AS since
      ) now
      WHERE (s.stale_since IS NULL) <> (now.since IS NULL)
      ORDER BY 1, 2 FOR NO KEY UPDATE OF s
    )
    UPDATE pool_serving s SET stale_since = due.since FROM due
    WHERE (s.tenant_id, s.pool_id) = (due.tenant_id, due.pool_id)
    RETURNING s.tenant_id, s.pool_id, s.stale_since
    """
)


class PoolReportRow(NamedTuple):
    """One report to write. `reported_at` is when it counts from, never later than now."""

    tenant_id: str
    pool_id: str
    utilization: Decimal
    queue_depth: int
    reported_at: datetime

    @property
    def name(self) -> PoolName:
        return (self.tenant_id, self.pool_id)


class ListedRow(NamedTuple):
    """A model that the agent of a pool lists as loaded."""

    tenant_id: str
    pool_id: str
    model: str
    vram_gb: int
    last_used_at: datetime
    listed_at: datetime


class Written(NamedTuple):
    """What became of a report of a pool that exists: its pool's state, and whether it was news."""

    state: PoolState
    news: bool


class Staleness(NamedTuple):
    """A pool whose staleness changed; `since` is None when it is stale no more."""

    tenant_id: str
    pool_id: str
    since: datetime | None


async def write(connection: Connection, rows: Sequence[PoolReportRow]) -> dict[PoolName, Written]:
    """Write reports, one for each pool, and say what became of each. Pools that do not exist are left out.

    A report that is not newer than the stored one changes nothing.
    """
    if not rows:
        return {}
    named = {
        "tenants": [one.tenant_id for one in rows],
        "pools": [one.pool_id for one in rows],
        "utilization": [one.utilization for one in rows],
        "queue_depth": [one.queue_depth for one in rows],
        "reported_at": [one.reported_at for one in rows],
    }
    found = await connection.execute(WRITE, named)
    return {(row[0], row[1]): Written(PoolState(row[2]), row[3]) for row in found}


async def touch_models(connection: Connection, rows: Sequence[ListedRow]) -> list[ListedRow]:
    """Note when models were last used and listed; returns those that no serving pool is known to have."""
    if not rows:
        return []
    columns = zip(*rows, strict=True)
    names = ("tenants", "pools", "models", "vram_gb", "last_used_at", "listed_at")
    named: dict[str, object] = {name: list(column) for name, column in zip(names, columns, strict=True)}
    named["untagged"] = f"{DEFAULT_TAG}$"
    return [ListedRow(*row) for row in await connection.execute(TOUCH, named)]


async def record_listed(connection: Connection, row: ListedRow) -> bool:
    """Keep memory for a model that only an agent says is loaded; False where it does not fit.

    It is as a load whose end nobody saw, until the endpoint is asked. The memory of a pool is what the
    database refuses to exceed, so the refusal is the test.
    """
    statement = insert(cached_models).values(
        tenant_id=row.tenant_id,
        pool_id=row.pool_id,
        model=row.model,
        vram_gb=row.vram_gb,
        state=ModelState.LOADING,
        last_used_at=row.last_used_at,
        listed_at=row.listed_at,
        load_started_at=row.listed_at,
        load_key=sa.func.gen_random_uuid(),
        load_until=row.listed_at,
    )
    try:
        async with connection.begin_nested():
            await connection.execute(statement.on_conflict_do_nothing())
    except IntegrityError:
        return False
    return True


async def unmark_stale(connection: Connection, names: Sequence[PoolName]) -> list[PoolName]:
    """Take the mark from pools that were reported; returns those that had it."""
    if not names:
        return []
    ordered = sorted(names)
    named = {"tenants": [one[0] for one in ordered], "pools": [one[1] for one in ordered]}
    return [(row[0], row[1]) for row in await connection.execute(FRESH, named)]


async def mark_stale(connection: Connection, at: datetime, staleness_seconds: float) -> list[Staleness]:
    """Mark serving pools that fell silent, take the mark from others; returns what changed, in order."""
    window = timedelta(seconds=staleness_seconds)
    found = await connection.execute(MARK_STALE, {"at": at, "before": at - window, "window": window})
    return sorted((Staleness(*row) for row in found), key=lambda one: one[:2])

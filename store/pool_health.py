"""The health of serving pools: which are probed, what probes said, and what routers reported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import sqlalchemy as sa

from domain.serving.health import EndpointHealth, Health, HealthSource
from store.engine import Connection
from store.registry import UnknownPool

PoolName = tuple[str, str]
PURGE_ROWS = 1000

TO_PROBE = sa.text(
    """
    SELECT p.tenant_id, p.pool_id, p.endpoint_ref
    FROM pools p JOIN pool_serving s USING (tenant_id, pool_id)
    WHERE p.state IN ('active', 'draining') AND p.endpoint_ref IS NOT NULL
      AND (CAST(:tenant AS text) IS NULL OR (p.tenant_id = :tenant AND p.pool_id = :pool))
    ORDER BY s.probed_at NULLS FIRST, p.tenant_id, p.pool_id LIMIT :limit
    """
)
# Capacity comes first in everybody's order of locks, and a change of health is written there as well.
LOCK = sa.text(
    """
    WITH told AS MATERIALIZED (
      SELECT * FROM unnest(CAST(:tenants AS text[]), CAST(:pools AS text[])) AS t (tenant_id, pool_id)
    ), capacity AS MATERIALIZED (
      SELECT c.tenant_id, c.pool_id FROM pool_capacity c JOIN told USING (tenant_id, pool_id)
      ORDER BY 1, 2 FOR NO KEY UPDATE OF c
    )
    SELECT s.tenant_id, s.pool_id, s.health, s.health_problem, s.health_source, s.failures, s.successes,
           s.probed_at, s.health_changed_at,
           (SELECT max(r.reported_at) FROM endpoint_reports r
            WHERE r.pool_tenant_id = s.tenant_id AND r.pool_id = s.pool_id AND r.reported_at > :since)
             AS reported_at
    FROM pool_serving s JOIN capacity USING (tenant_id, pool_id)
    ORDER BY 1, 2 FOR NO KEY UPDATE OF s
    """
)
WRITE = sa.text(
    """
    UPDATE pool_serving s
    SET health = t.health, health_problem = t.problem, health_source = t.source, failures = t.failures,
        successes = t.successes, probed_at = t.probed_at, health_changed_at = t.changed_at
    FROM unnest(CAST(:tenants AS text[]), CAST(:pools AS text[]), CAST(:health AS text[]),
                CAST(:problem AS text[]), CAST(:source AS text[]), CAST(:failures AS int[]),
                CAST(:successes AS int[]), CAST(:probed_at AS timestamptz[]),
                CAST(:changed_at AS timestamptz[]))
      AS t (tenant_id, pool_id, health, problem, source, failures, successes, probed_at, changed_at)
    WHERE (s.tenant_id, s.pool_id) = (t.tenant_id, t.pool_id)
    """
)
# Whoever may place on a pool may report it: its own tenant, and everybody where it is shared.
REPORT = sa.text(
    """
    INSERT INTO endpoint_reports (tenant_id, report_id, pool_tenant_id, pool_id, problem, reported_at)
    SELECT :tenant, :report, p.tenant_id, p.pool_id, :problem, :at
    FROM pools p WHERE p.tenant_id = :pool_tenant AND p.pool_id = :pool
      AND NOT EXISTS (
        SELECT FROM endpoint_reports r WHERE r.tenant_id = :tenant AND r.pool_tenant_id = p.tenant_id
          AND r.pool_id = p.pool_id AND r.reported_at > :since
      )
    RETURNING report_id
    """
)
REPORTABLE = sa.text(
    """
    SELECT endpoint_ref IS NOT NULL AND vram_gb > 0 FROM pools
    WHERE tenant_id = :pool_tenant AND pool_id = :pool
      AND (tenant_id = :tenant
           OR (tenant_id = 'platform' AND security_boundary IN ('regional', 'shared')))
    """
)
REPORTED_UNPROBED = sa.text(
    """
    SELECT DISTINCT s.tenant_id, s.pool_id FROM endpoint_reports r
    JOIN pool_serving s ON s.tenant_id = r.pool_tenant_id AND s.pool_id = r.pool_id
    WHERE r.reported_at > :since AND (s.probed_at IS NULL OR s.probed_at < r.reported_at)
    ORDER BY 1, 2 LIMIT :limit
    """
)
PURGE = sa.text(
    """
    DELETE FROM endpoint_reports WHERE (tenant_id, report_id) IN (
      SELECT tenant_id, report_id FROM endpoint_reports WHERE reported_at < :before LIMIT :limit
    )
    """
)


class NoEndpoint(LookupError):
    """The pool is there for whoever asks, but serves no models."""


class ToProbe(NamedTuple):
    """A serving pool whose endpoint is probed."""

    tenant_id: str
    pool_id: str
    endpoint_ref: str

    @property
    def name(self) -> PoolName:
        return (self.tenant_id, self.pool_id)


class Judged(NamedTuple):
    """A pool with its health before and after a probe."""

    name: PoolName
    before: EndpointHealth
    after: EndpointHealth


Judge = Callable[[PoolName, EndpointHealth, datetime | None], EndpointHealth]


async def to_probe(connection: Connection, limit: int, only: PoolName | None = None) -> list[ToProbe]:
    """Pools in service with an endpoint, those first that were not probed for the longest."""
    tenant, pool = only or (None, None)
    rows = await connection.execute(TO_PROBE, {"tenant": tenant, "pool": pool, "limit": limit})
    return [ToProbe(*row) for row in rows]


async def judge(
    connection: Connection, names: Sequence[PoolName], judged_by: Judge, *, reports_since: datetime
) -> list[Judged]:
    """Judge pools while they are locked: by their name, their health and the newest report since then."""
    ordered = sorted(names)
    named = {"tenants": [one[0] for one in ordered], "pools": [one[1] for one in ordered]}
    found = (await connection.execute(LOCK, named | {"since": reports_since})).all()
    judged = []
    for row in found:
        name, before = (row.tenant_id, row.pool_id), _health(row)
        judged.append(Judged(name, before, judged_by(name, before, row.reported_at)))
    await _write(connection, [one for one in judged if one.after != one.before])
    return judged


def _health(row: sa.Row[tuple[object, ...]]) -> EndpointHealth:
    return EndpointHealth(
        health=Health(row.health),
        problem=row.health_problem,
        source=HealthSource(row.health_source) if row.health_source is not None else None,
        failures=row.failures,
        successes=row.successes,
        probed_at=row.probed_at,
        changed_at=row.health_changed_at,
    )


async def _write(connection: Connection, judged: Sequence[Judged]) -> None:
    if not judged:
        return
    known = [one.after for one in judged]
    await connection.execute(
        WRITE,
        {
            "tenants": [one.name[0] for one in judged],
            "pools": [one.name[1] for one in judged],
            "health": [one.health.value for one in known],
            "problem": [one.problem for one in known],
            "source": [None if one.source is None else one.source.value for one in known],
            "failures": [one.failures for one in known],
            "successes": [one.successes for one in known],
            "probed_at": [one.probed_at for one in known],
            "changed_at": [one.changed_at for one in known],
        },
    )


async def report(
    connection: Connection,
    *,
    tenant_id: str,
    report_id: UUID,
    pool: PoolName,
    problem: str,
    at: datetime,
    every_seconds: float,
) -> bool:
    """Keep a router's report; False where the same tenant has reported the pool just before.

    `UnknownPool` where the tenant may not place on such a pool, `NoEndpoint` where it serves no models.
    """
    named = {"tenant": tenant_id, "pool_tenant": pool[0], "pool": pool[1]}
    serves = (await connection.execute(REPORTABLE, named)).scalar()
    if serves is None:
        raise UnknownPool(f"no pool {pool[1]!r} of tenant {pool[0]!r}: see `sco get pools`")
    if not serves:
        raise NoEndpoint(
            f"pool {pool[1]!r} of tenant {pool[0]!r} has no endpoint, or no accelerator memory to serve from"
        )
    since = at - timedelta(seconds=every_seconds)
    values = {**named, "report": report_id, "problem": problem, "at": at, "since": since}
    return (await connection.execute(REPORT, values)).first() is not None


async def reported_unprobed(
    connection: Connection, at: datetime, hold_seconds: float, limit: int
) -> list[PoolName]:
    """Pools that a router reported, and that were not probed since."""
    named = {"since": at - timedelta(seconds=hold_seconds), "limit": limit}
    return [(row[0], row[1]) for row in await connection.execute(REPORTED_UNPROBED, named)]


async def purge_reports(connection: Connection, before: datetime) -> int:
    """Forget a bounded number of reports from before then; returns how many."""
    done = await connection.execute(PURGE, {"before": before, "limit": PURGE_ROWS})
    return done.rowcount

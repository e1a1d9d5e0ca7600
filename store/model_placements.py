"""Placements of models: what a decision reads and writes, and how a placement ends.

A placement that is held keeps memory on its pool, which triggers count and a constraint bounds: whoever
writes, memory is never promised twice. The statements of a decision go to the driver as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import sqlalchemy as sa
from psycopg.rows import args_row, dict_row

from domain.serving.placing import PlacementOutcome, PoolNow
from store import documents
from store.engine import Connection, Driver
from store.model_leases import LET_GO
from store.tables import PlacementState, model_placements

# Of the models on shared pools, a tenant's transaction sees the one that it names here.
NAME_MODEL = "SELECT set_config('sco.model', %(model)s, true)"
# The tenant's own pools and the shared ones. A retired pool is no candidate: it never comes back. An endpoint
# that this tenant reported down is down for it, until probes say how it is for all. A lease without a
# beginning is that of an unloading: who is placed then has to see to the load. What did not load counts for
# the tenant whose placement failed: nobody keeps others away from a pool.
CANDIDATES = """
    SELECT p.tenant_id, p.pool_id, p.region, p.security_boundary, p.state, p.endpoint_ref,
      CASE WHEN c.hall_lost THEN 'excluded' ELSE c.standing END,
      c.degraded OR (s.tenant_id, s.pool_id) IN (
        SELECT r.pool_tenant_id, r.pool_id FROM endpoint_reports r
        WHERE r.tenant_id = %(tenant)s AND r.reported_at > %(reports_since)s),
      c.reported_at,
      s.vram_gb, s.committed_vram_gb, CAST(p.price_per_hour_usd * 1000000 AS bigint),
      CAST(c.utilization * 1000000 AS int), c.queue_depth,
      coalesce(s.learned_cold_start_seconds, nullif(c.cold_start_seconds, 0)),
      coalesce(m.vram_gb, 0), coalesce(m.state = 'loaded', false),
      coalesce(m.state = 'loading' AND m.load_until > %(now)s AND m.load_started_at IS NOT NULL, false),
      (s.tenant_id, s.pool_id) IN (
        SELECT f.pool_tenant_id, f.pool_id FROM model_placements f
        WHERE f.tenant_id = %(tenant)s AND f.model = %(model)s AND f.ended_at > %(failed_since)s
          AND f.problem IS NOT NULL AND f.problem <> %(let_go)s)
    FROM pool_serving s
    JOIN pools p ON p.tenant_id = s.tenant_id AND p.pool_id = s.pool_id
    JOIN pool_capacity c ON c.tenant_id = s.tenant_id AND c.pool_id = s.pool_id
    LEFT JOIN cached_models m
      ON m.tenant_id = s.tenant_id AND m.pool_id = s.pool_id AND m.model = %(model)s
    WHERE p.state <> 'retired'
      AND (p.tenant_id = %(tenant)s
           OR p.tenant_id = 'platform' AND p.security_boundary IN ('regional', 'shared'))
"""
COLUMNS = ", ".join(column.name for column in model_placements.c)
FIND = f"SELECT {COLUMNS} FROM model_placements WHERE tenant_id = %(tenant)s AND placement_id = %(id)s"  # noqa: S608
ADD = """
    INSERT INTO model_placements (tenant_id, placement_id, deployment_id, run_id, model, requirements,
      candidates, outcome, pool_tenant_id, pool_id, vram_gb, warm, cold_start_seconds, state, decided_at,
      expires_at)
    VALUES (%(tenant_id)s, %(placement_id)s, %(deployment_id)s, %(run_id)s, %(model)s,
      CAST(%(requirements)s AS jsonb), CAST(%(candidates)s AS jsonb), %(outcome)s, %(pool_tenant_id)s,
      %(pool_id)s, %(vram_gb)s, %(warm)s, %(cold_start_seconds)s, %(state)s, %(decided_at)s, %(expires_at)s)
"""
# Models are locked in one order, and before the memory of their pools is counted: a decision holds the row
# of its model while it waits for the count of its pool.
EXPIRE = f"""
    WITH due AS MATERIALIZED (
      SELECT tenant_id, placement_id, pool_tenant_id, pool_id, model FROM model_placements
      WHERE state = 'held' AND expires_at <= %(now)s
      ORDER BY expires_at, placement_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    ), locked AS MATERIALIZED (
      SELECT m.pool_id FROM cached_models m
      WHERE (m.tenant_id, m.pool_id, m.model) IN (SELECT pool_tenant_id, pool_id, model FROM due)
      ORDER BY m.tenant_id, m.pool_id, m.model FOR UPDATE
    )
    UPDATE model_placements p SET state = 'expired', ended_at = greatest(%(now)s, p.decided_at)
    FROM due, (SELECT count(*) FROM locked) AS all_locked
    WHERE (p.tenant_id, p.placement_id) = (due.tenant_id, due.placement_id)
    RETURNING {", ".join(f"p.{column.name}" for column in model_placements.c)}
"""  # noqa: S608
UNSTARTED = f"""
    SELECT {", ".join(f"p.{column.name}" for column in model_placements.c)} FROM model_placements p
    JOIN cached_models m
      ON (m.tenant_id, m.pool_id, m.model) = (p.pool_tenant_id, p.pool_id, p.model) AND m.state <> 'loaded'
    WHERE p.state = 'held' AND NOT p.warm AND p.decided_at <= %(before)s AND p.expires_at > %(now)s
      AND (m.state <> 'loading' OR m.load_until <= %(now)s)
    ORDER BY p.decided_at, p.placement_id LIMIT %(limit)s
"""  # noqa: S608


FORGET = """
    DELETE FROM model_placements WHERE (tenant_id, placement_id) IN (
      SELECT tenant_id, placement_id FROM model_placements
      WHERE decided_at < %(before)s AND state <> 'held' LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    )
"""


@dataclass(frozen=True, slots=True)
class StoredPlacement:
    """A placement as its row holds it. `requirements` and `candidates` are plain JSON."""

    tenant_id: str
    placement_id: UUID
    deployment_id: str
    run_id: UUID | None
    model: str
    requirements: dict[str, Any]
    candidates: dict[str, Any]
    outcome: PlacementOutcome
    pool_tenant_id: str | None
    pool_id: str | None
    vram_gb: int
    warm: bool
    cold_start_seconds: int
    state: PlacementState
    decided_at: datetime
    expires_at: datetime | None
    ended_at: datetime | None = None
    caused_load: bool = False
    problem: str | None = None

    @property
    def held(self) -> bool:
        return self.state is PlacementState.HELD


class PlacementFilter(NamedTuple):
    """Which placements to list; None means any."""

    outcome: str | None = None
    state: str | None = None
    deployment_id: str | None = None
    model: str | None = None
    pool_id: str | None = None


class Place(NamedTuple):
    """Where a listing goes on: behind this placement, towards older ones."""

    decided_at: datetime
    placement_id: UUID


class Read(NamedTuple):
    """What a decision is made on: the placement as it is known already, or the pools that there are."""

    known: StoredPlacement | None
    pools: list[PoolNow]


async def read_for(
    driver: Driver,
    tenant_id: str,
    placement_id: UUID,
    model: str,
    *,
    now: datetime,
    reports_since: datetime,
    failed_since: datetime,
) -> Read:
    """The placement of this id, if there is one, and every candidate; one exchange with the database.

    Endpoints that the tenant reported down after `reports_since` are degraded for it; where the model of a
    placement of its own did not load after `failed_since`, it is backed off.
    """
    named: dict[str, object] = {"tenant": tenant_id, "id": placement_id, "model": model}
    named |= {"now": now, "reports_since": reports_since, "failed_since": failed_since}
    named |= {"let_go": LET_GO}
    found = driver.cursor(row_factory=dict_row)
    pools = driver.cursor(row_factory=args_row(PoolNow))
    async with driver.pipeline():
        await driver.execute(NAME_MODEL, named)
        await found.execute(FIND, named)
        await pools.execute(CANDIDATES, named)
    row = await found.fetchone()
    return Read(None if row is None else stored(row), await pools.fetchall())


async def add_placement(driver: Driver, placement: StoredPlacement) -> None:
    """Store a placement. One that is held keeps memory from here on, or breaks the constraint of its pool."""
    row = {field.name: getattr(placement, field.name) for field in fields(placement)}
    for name in ("requirements", "candidates"):
        row[name] = documents.dumps(row[name])
    await driver.execute(ADD, row)


async def find_placement(
    connection: Connection, tenant_id: str, placement_id: UUID
) -> StoredPlacement | None:
    """A placement of the tenant, or None."""
    query = sa.select(model_placements).where(*_of(tenant_id, placement_id))
    row = (await connection.execute(query)).mappings().first()
    return None if row is None else stored(row)


async def list_placements(
    connection: Connection, tenant_id: str, wanted: PlacementFilter, *, before: Place | None, limit: int
) -> list[StoredPlacement]:
    """Placements of a tenant, newest first."""
    table = model_placements.c
    query = sa.select(model_placements).where(table.tenant_id == tenant_id)
    for name, value in wanted._asdict().items():
        if value is not None:
            query = query.where(table[name] == value)
    if before is not None:
        query = query.where(sa.tuple_(table.decided_at, table.placement_id) < sa.tuple_(*before))
    query = query.order_by(table.decided_at.desc(), table.placement_id.desc()).limit(limit)
    return [stored(row) for row in (await connection.execute(query)).mappings()]


async def release_placement(
    connection: Connection,
    tenant_id: str,
    placement_id: UUID,
    *,
    at: datetime,
    problem: str | None = None,
) -> StoredPlacement | None:
    """Release what a placement holds; None where it holds nothing (any more)."""
    table = model_placements.c
    values = {
        "state": PlacementState.RELEASED.value,
        "ended_at": sa.func.greatest(at, table.decided_at),
        "problem": problem,
    }
    return await _change(connection, _held(tenant_id, placement_id), values)


async def end_if_due(
    connection: Connection, tenant_id: str, placement_id: UUID, now: datetime
) -> StoredPlacement | None:
    """Expire one placement if its time is over; None where it is not, or where it ended already."""
    due = (*_held(tenant_id, placement_id), model_placements.c.expires_at <= now)
    ended_at = sa.func.greatest(now, model_placements.c.decided_at)
    return await _change(connection, due, {"state": PlacementState.EXPIRED.value, "ended_at": ended_at})


async def renew_placement(
    connection: Connection, tenant_id: str, placement_id: UUID, *, now: datetime, until: datetime
) -> StoredPlacement | None:
    """Hold a placement until then; None where it is held no more. Its end never comes nearer."""
    live = (*_held(tenant_id, placement_id), model_placements.c.expires_at > now)
    later = sa.func.greatest(model_placements.c.expires_at, until)
    return await _change(connection, live, {"expires_at": later})


async def record_load(connection: Connection, tenant_id: str, placement_id: UUID) -> StoredPlacement | None:
    """Record that a model was loaded because of this placement; None where that is recorded already."""
    first = (*_of(tenant_id, placement_id), model_placements.c.caused_load.is_(False))
    return await _change(connection, first, {"caused_load": True})


async def expire(connection: Connection, now: datetime, limit: int) -> list[StoredPlacement]:
    """End placements of every tenant whose time is over, the oldest first; returns them.

    Those that another transaction ends at this moment are left to it.
    """
    rows = await connection.exec_driver_sql(EXPIRE, {"now": now, "limit": limit})
    return [stored(row) for row in rows.mappings()]


async def unstarted(
    connection: Connection, now: datetime, *, before: datetime, limit: int
) -> list[StoredPlacement]:
    """Cold placements decided before then, still held, whose model nobody has loaded or loads.

    Their start is lost, or the load that they counted on failed. Starting one that runs changes nothing.
    """
    named = {"now": now, "before": before, "limit": limit}
    rows = await connection.exec_driver_sql(UNSTARTED, named)
    return [stored(row) for row in rows.mappings()]


async def forget(connection: Connection, before: datetime, limit: int) -> int:
    """Remove placements of every tenant that were decided before then and keep nothing; returns how many."""
    return (await connection.exec_driver_sql(FORGET, {"before": before, "limit": limit})).rowcount


def stored(row: Any) -> StoredPlacement:
    """A placement from its row."""
    values = dict(row)
    return StoredPlacement(
        **values | {"outcome": PlacementOutcome(values["outcome"]), "state": PlacementState(values["state"])}
    )


def _of(tenant_id: str, placement_id: UUID) -> tuple[sa.ColumnElement[bool], ...]:
    return (model_placements.c.tenant_id == tenant_id, model_placements.c.placement_id == placement_id)


def _held(tenant_id: str, placement_id: UUID) -> tuple[sa.ColumnElement[bool], ...]:
    return (*_of(tenant_id, placement_id), model_placements.c.state == PlacementState.HELD.value)


async def _change(
    connection: Connection, where: Sequence[sa.ColumnElement[bool]], values: dict[str, Any]
) -> StoredPlacement | None:
    statement = sa.update(model_placements).where(*where).values(**values).returning(model_placements)
    row = (await connection.execute(statement)).mappings().first()
    return None if row is None else stored(row)

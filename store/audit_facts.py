"""What an audit reads: the records of one moment, in one snapshot that cannot write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa

from domain.acquisition import ENDED_STATES, LIVE_STATES, SlotState
from domain.audit import (
    ENDED_BY,
    STARTED_BY,
    CountFact,
    EndFact,
    Facts,
    GapFact,
    LicenceFact,
    PlanFact,
    ServerFact,
    SlotFact,
)
from store.engine import Connection, Engine

# A log that is empty would make every slot that ever ended a finding.
MAX_ENDS = 20_000
GAPS_FOR = timedelta(days=30)


def _scoped(query: str, region: str, partition: str, ending: str = "") -> sa.TextClause:
    """A query that ends in WHERE or AND, kept to the regions and partitions of a scope."""
    here = f"""
      (CAST(:regions AS text[]) IS NULL OR {region} = ANY(CAST(:regions AS text[])))
      AND (CAST(:partitions AS text[]) IS NULL OR {partition} = ANY(CAST(:partitions AS text[])))
    """
    return sa.text(query + here + ending)


_SLOT = """
    SELECT i.slot_key, i.batch_key, i.workload_id, i.partition_id, i.pool_id, i.region, p.purchase_model,
           i.state, i.server_id, i.requested_at
    FROM instances i JOIN pools p USING (tenant_id, pool_id)
    WHERE i.tenant_id = :tenant AND
"""
# A listed server may be bound by a slot of another region, which is wrong, or by one that ended.
SLOTS = _scoped(
    _SLOT + " i.state = ANY(:live) AND ",
    "i.region",
    "i.partition_id",
    " UNION " + _SLOT + " i.server_id = ANY(CAST(:servers AS text[]))",
)
WORKLOADS = sa.text(
    """
    SELECT workload_id FROM workloads
    WHERE tenant_id = :tenant AND workload_id = ANY(CAST(:names AS text[]))
    """
)
BATCH_SLOTS = sa.text(
    """
    SELECT batch_key, count(*) FROM instances
    WHERE tenant_id = :tenant AND batch_key = ANY(CAST(:batches AS text[])) GROUP BY 1
    """
)
LAUNCHED = sa.text(
    """
    SELECT DISTINCT batch_key FROM audit_log
    WHERE tenant_id = :tenant AND batch_key = ANY(CAST(:batches AS text[])) AND action = ANY(:started)
    """
)
# Pools serve every partition, so they are counted as a whole.
POOL_COUNTS = sa.text(
    """
    SELECT c.pool_id, c.reserved_instances, coalesce(s.live, 0), NULL, NULL, c.capacity_instances
    FROM pool_capacity c JOIN pools p USING (tenant_id, pool_id) LEFT JOIN (
      SELECT pool_id, count(*) AS live FROM instances
      WHERE tenant_id = :tenant AND state = ANY(:live) GROUP BY 1
    ) s USING (pool_id)
    WHERE c.tenant_id = :tenant
      AND (CAST(:regions AS text[]) IS NULL OR p.region = ANY(CAST(:regions AS text[])))
    ORDER BY 1
    """
)
RESERVATION_COUNTS = _scoped(
    """
    SELECT pool_id, coalesce(r.instances, 0), coalesce(s.live, 0), workload_id, shape_key, NULL
    FROM (SELECT * FROM reservations WHERE tenant_id = :tenant) r FULL JOIN (
      SELECT workload_id, pool_id, shape_key, count(*) AS live FROM instances
      WHERE tenant_id = :tenant AND state = ANY(:live) GROUP BY 1, 2, 3
    ) s USING (workload_id, pool_id, shape_key)
    JOIN pools p USING (pool_id) JOIN workloads w USING (workload_id)
    WHERE p.tenant_id = :tenant AND w.tenant_id = :tenant
      AND (coalesce(r.instances, 0) <> 0 OR s.live IS NOT NULL)
      AND
    """,
    "p.region",
    "w.partition_id",
    " ORDER BY 4, 1, 5",
)
PLANS = _scoped(
    """
    SELECT w.workload_id, t.region, w.phase, w.planned_version < w.claim_version, coalesce(c.units, 0),
           coalesce(r.placed, 0), w.shortfall_units, w.shortfall_reason, coalesce(r.meant, 0),
           coalesce(s.active, 0), coalesce(s.open, 0), s.lost_at
    FROM workloads w JOIN partitions t USING (tenant_id, partition_id)
    LEFT JOIN claims c ON (c.tenant_id, c.workload_id, c.version)
                        = (w.tenant_id, w.workload_id, w.planned_version)
    LEFT JOIN (
      SELECT workload_id, sum(units) AS placed, sum(target_instances) AS meant
      FROM reservations WHERE tenant_id = :tenant GROUP BY 1
    ) r ON r.workload_id = w.workload_id
    LEFT JOIN (
      SELECT workload_id, count(*) FILTER (WHERE state = 'active') AS active,
             count(*) FILTER (WHERE state IN ('planned', 'building', 'releasing')) AS open,
             max(updated_at) FILTER (WHERE state = 'lost') AS lost_at
      FROM instances WHERE tenant_id = :tenant GROUP BY 1
    ) s ON s.workload_id = w.workload_id
    WHERE w.tenant_id = :tenant AND w.claim_version > 0
      AND
    """,
    "t.region",
    "w.partition_id",
    " ORDER BY 1",
)
UNLOGGED_ENDS = _scoped(
    """
    SELECT i.slot_key, i.workload_id, i.pool_id, i.region, i.state, i.server_id, (
      SELECT array_agg(DISTINCT a.action) FROM audit_log a
      WHERE a.tenant_id = i.tenant_id AND a.server_id = i.server_id
    )
    FROM instances i
    WHERE i.tenant_id = :tenant AND i.state = ANY(:ended) AND i.server_id IS NOT NULL
      AND NOT EXISTS (
        SELECT 1 FROM audit_log a
        JOIN unnest(CAST(:states AS text[]), CAST(:actions AS text[])) AS by (state, action)
          ON by.action = a.action
        WHERE a.tenant_id = i.tenant_id AND a.server_id = i.server_id AND by.state = i.state
      )
      AND
    """,
    "i.region",
    "i.partition_id",
    " ORDER BY i.slot_key LIMIT :most",
)
GAPS = _scoped(
    """
    SELECT partition_id, region, since, until, why FROM fleet_gaps
    WHERE tenant_id = :tenant AND until > :gaps_since
      AND
    """,
    "region",
    "partition_id",
    " ORDER BY since DESC, partition_id, region",
)
LICENCES = _scoped(
    """
    SELECT partition_id, region, phase, acting_until, problem FROM reconciles WHERE tenant_id = :tenant AND
    """,
    "region",
    "partition_id",
    " ORDER BY 1, 2",
)
REGIONS = sa.text(
    """
    SELECT region FROM partitions WHERE tenant_id = :tenant
    UNION SELECT region FROM pools WHERE tenant_id = :tenant AND state <> 'retired'
    UNION SELECT region FROM instances WHERE tenant_id = :tenant AND state = ANY(:live)
    ORDER BY 1
    """
)


class Scope(NamedTuple):
    """What is audited: some regions and partitions of a tenant, or with None all of them."""

    tenant_id: str
    regions: tuple[str, ...] | None = None
    partitions: tuple[str, ...] | None = None


async def read_facts(engine: Engine, scope: Scope, servers: Sequence[ServerFact], at: datetime) -> Facts:
    """The records of one moment, as far as they concern `scope` or the listed `servers`."""
    named = _named(scope, servers, at)
    async with snapshot(engine) as connection:
        read = _Reading(connection, named)
        slots = [SlotFact._make((*row[:7], SlotState(row[7]), *row[8:])) for row in await read.rows(SLOTS)]
        workloads = frozenset(row[0] for row in await read.rows(WORKLOADS))
        batch_slots = {row[0]: row[1] for row in await read.rows(BATCH_SLOTS)}
        launched = frozenset(row[0] for row in await read.rows(LAUNCHED))
        counts = [*await read.rows(POOL_COUNTS), *await read.rows(RESERVATION_COUNTS)]
        plans = await read.rows(PLANS)
        ends = await read.rows(UNLOGGED_ENDS)
        gaps = await read.rows(GAPS)
        licences = await read.rows(LICENCES)
    within = _within(scope, slots, servers)
    return Facts(
        at=at,
        slots=tuple(slot for slot in slots if _includes(scope.partitions, slot.partition_id)),
        servers=tuple(within),
        workloads=workloads,
        batch_slots=batch_slots,
        launched=launched,
        counts=tuple(CountFact(*row) for row in counts),
        plans=tuple(PlanFact(*row) for row in plans),
        ends=tuple(
            EndFact._make((*row[:4], SlotState(row[4]), row[5], frozenset(row[6] or ()))) for row in ends
        ),
        gaps=tuple(GapFact(*row) for row in gaps),
        licences=tuple(LicenceFact(*row) for row in licences),
    )


async def regions_of(engine: Engine, tenant_id: str) -> tuple[str, ...]:
    """Every region where something of ours may be."""
    async with snapshot(engine) as connection:
        named = {"tenant": tenant_id, "live": [state.value for state in LIVE_STATES]}
        return tuple((await connection.execute(REGIONS, named)).scalars())


class _Reading(NamedTuple):
    connection: Connection
    named: dict[str, Any]

    async def rows(self, query: sa.TextClause) -> list[tuple[Any, ...]]:
        wanted = {name: self.named[name] for name in query.compile().params}
        return [tuple(row) for row in await self.connection.execute(query, wanted)]


@asynccontextmanager
async def snapshot(engine: Engine) -> AsyncIterator[Connection]:
    """All reads see one moment, and the database refuses to write."""
    async with engine.connect() as connection:
        yield await connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def _named(scope: Scope, servers: Sequence[ServerFact], at: datetime) -> dict[str, Any]:
    ended_by = [(state.value, action) for state in ENDED_STATES for action in sorted(ENDED_BY[state])]
    return {
        "tenant": scope.tenant_id,
        "regions": None if scope.regions is None else list(scope.regions),
        "partitions": None if scope.partitions is None else list(scope.partitions),
        "live": [state.value for state in LIVE_STATES],
        "ended": [state.value for state in ENDED_STATES],
        "servers": [one.server_id for one in servers],
        "names": _distinct(one.workload_id for one in servers),
        "batches": _distinct(one.batch_key for one in servers),
        "started": sorted(STARTED_BY),
        "states": [state for state, _ in ended_by],
        "actions": [action for _, action in ended_by],
        "most": MAX_ENDS,
        "gaps_since": at - GAPS_FOR,
    }


def _distinct(names: Iterable[str | None]) -> list[str]:
    return sorted({name for name in names if name is not None})


def _includes(partitions: tuple[str, ...] | None, partition_id: str | None) -> bool:
    return partitions is None or partition_id in partitions


def _within(scope: Scope, slots: Sequence[SlotFact], servers: Sequence[ServerFact]) -> list[ServerFact]:
    """Servers of the partitions: as their slots say, and without a slot as they say themselves."""
    partition_of = {slot.server_id: slot.partition_id for slot in slots if slot.server_id is not None}
    return [
        one
        for one in servers
        if _includes(scope.partitions, partition_of.get(one.server_id, one.partition_id))
    ]

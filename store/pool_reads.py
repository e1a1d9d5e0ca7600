"""Pools for whoever reads the registry: everything that is told of them in one statement.

A reader is answered with rows as they are. Who decides on a pool, or changes it, reads it as a `Pool` from
`store.registry`, which is checked and costs several times as much.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from domain.ids import PLATFORM
from store.engine import Engine, read_once
from store.registry import EQUALS, FACT_COLUMNS, SERVING_COLUMNS, SHARED, PoolFilter, UnknownPool

# A pool by `TOLD_COLUMNS`, with `free`, `standing` and `degraded`, which its pulse needs as well; and of the
# models on it that the tenant may see, in their order, a list for each of `MODEL_COLUMNS`, or None.
PoolRow = dict[str, Any]
MODEL_COLUMNS = ("model", "vram_gb", "state", "loaded_at", "last_used_at")
HELD_COLUMNS = ("held_units", "held_instances", "held_workloads")
OF_POOL = (*FACT_COLUMNS, "state", "endpoint_ref", "version", "draining_since", "drained_at")
OF_CAPACITY = (
    *("capacity_instances", "reserved_instances", "utilization", "queue_depth"),
    *("cold_start_seconds", "reported_at"),
)
TOLD_COLUMNS = (*OF_POOL, *OF_CAPACITY, *SERVING_COLUMNS, "group_basis")
_COLUMNS = ", ".join(
    (
        *(f"p.{name}" for name in OF_POOL),
        *(f"c.{name}" for name in (*OF_CAPACITY, "degraded")),
        *(f"s.{name}" for name in SERVING_COLUMNS),
        "g.basis AS group_basis",
        "c.capacity_instances - c.reserved_instances AS free",
        "CASE WHEN c.hall_lost THEN 'excluded' ELSE c.standing END AS standing",
    )
)
# What row-level security lets a tenant read is said once more: other roles see every row.
_READABLE = f"""
    FROM pools p
    JOIN pool_capacity c ON (c.tenant_id, c.pool_id) = (p.tenant_id, p.pool_id)
    JOIN correlation_groups g ON (g.tenant_id, g.group_id) = (p.tenant_id, p.group_id)
    LEFT JOIN pool_serving s ON (s.tenant_id, s.pool_id) = (p.tenant_id, p.pool_id)
    WHERE (p.tenant_id = %(tenant)s
           OR p.tenant_id = '{PLATFORM}' AND p.security_boundary IN {SHARED})
"""
# Of its own pools a tenant sees every model, of others those that it holds placements of.
_MODELS = f"""
    LEFT JOIN LATERAL (
      SELECT {", ".join(f"array_agg(m.{name} ORDER BY m.model) AS model_{name}" for name in MODEL_COLUMNS)}
      FROM cached_models m
      WHERE (m.tenant_id, m.pool_id) = (page.tenant_id, page.pool_id)
        AND (m.tenant_id = %(tenant)s OR EXISTS (
          SELECT FROM model_placements h
          WHERE h.tenant_id = %(tenant)s AND h.state = 'held'
            AND (h.pool_tenant_id, h.pool_id, h.model) = (m.tenant_id, m.pool_id, m.model)))
    ) models ON true
"""  # noqa: S608
_FILTERS = "".join(f" AND (CAST(%({name})s AS text) IS NULL OR p.{name} = %({name})s)" for name in EQUALS)
LIST = f"""
    SELECT page.*, models.* FROM (
      SELECT {_COLUMNS} {_READABLE} {_FILTERS}
        AND (CAST(%(health)s AS text) IS NULL OR s.health = %(health)s)
        AND (CAST(%(stale)s AS boolean) IS NULL
             OR s.tenant_id IS NOT NULL AND (s.stale_since IS NOT NULL) = %(stale)s)
        AND (p.pool_id, p.tenant_id) > (%(after_pool)s, %(after_owner)s)
      ORDER BY p.pool_id, p.tenant_id LIMIT %(limit)s
    ) page {_MODELS} ORDER BY page.pool_id, page.tenant_id
"""  # noqa: S608
FIND = f"""
    SELECT page.*, models.*, held.* FROM (
      SELECT {_COLUMNS} {_READABLE} AND p.tenant_id = %(owner)s AND p.pool_id = %(pool)s
    ) page {_MODELS}
    LEFT JOIN LATERAL (
      SELECT coalesce(sum(r.units), 0) AS held_units, coalesce(sum(r.instances), 0) AS held_instances,
        array_agg(DISTINCT r.workload_id ORDER BY r.workload_id) AS held_workloads
      FROM reservations r
      WHERE (r.tenant_id, r.pool_id) = (page.tenant_id, page.pool_id) AND (r.units > 0 OR r.instances > 0)
    ) held ON true
"""  # noqa: S608


async def list_readable(
    engine: Engine, tenant_id: str, wanted: PoolFilter, *, after: tuple[str, str] = ("", ""), limit: int
) -> list[PoolRow]:
    """The tenant's own pools and the shared ones, by pool id and owner; the first after the pair `after`."""
    named = asdict(wanted) | {"tenant": tenant_id, "limit": limit}
    return await read_once(engine, LIST, named | {"after_pool": after[0], "after_owner": after[1]})


async def find_readable(engine: Engine, tenant_id: str, owner_id: str, pool_id: str) -> PoolRow:
    """One of the tenant's own pools or a shared one, with `HELD_COLUMNS`: what the tenant holds in it of
    units and instances, and by which workloads. `UnknownPool` also for what others own.
    """
    found = await read_once(engine, FIND, {"tenant": tenant_id, "owner": owner_id, "pool": pool_id})
    if not found:
        raise UnknownPool(f"no pool {pool_id!r} of tenant {owner_id!r}: see `sco get pools`")
    return found[0]

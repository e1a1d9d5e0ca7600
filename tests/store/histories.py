"""A history on a test's own database: instances that are ours, and what was kept of their lives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from domain.cause import Cause
from domain.lifecycle import Event
from store import lifecycle
from store.engine import Engine
from store.lifecycle import Arrival, Kept, Loss
from store.node_drains import Owner
from tests.domain.drains import AT

GROUP = (
    "INSERT INTO correlation_groups (tenant_id, group_id, basis, region) VALUES (:tenant, 'g', 'hall', 'r')"
)
POOL = """
    INSERT INTO pools (tenant_id, pool_id, kind, state, region, hall, security_boundary, sku_family, size,
        arch, gpu_count, vram_gb, cpu_cores, ram_gb, nvme, nic_gbps, purchase_model, group_id,
        price_per_hour_usd, guaranteed_price_per_hour_usd, flavor)
    VALUES (:tenant, :pool, 'private_cloud', 'active', 'eu-north', 'eu-north-h1', 'private', 'gp', 'm',
        'x86_64', 0, 0, 8, 32, false, 10, 'reclaimable', 'g', 1, 2, 'gp.m')
"""
CAPACITY = "INSERT INTO pool_capacity (tenant_id, pool_id, capacity_instances) VALUES (:tenant, :pool, 10000)"
PARTITION = """
    INSERT INTO partitions (tenant_id, partition_id, region, scheduler)
    VALUES (:tenant, 'k8s-eu-north', 'eu-north', 'kubernetes')
"""
CONTRACT = """
    INSERT INTO contracts (tenant_id, contract_id, tier, floor_share, pool_cap_share, group_cap_share,
        tolerated_interruptions_per_hour, drain_budget_seconds, repo_commit)
    VALUES (:tenant, 'c', 'T4', 0, 0.5, 0.5, 1, 60, '')
"""
WORKLOAD = """
    INSERT INTO workloads (tenant_id, workload_id, partition_id, contract_id, owner_team)
    VALUES (:tenant, 'orders', 'k8s-eu-north', 'c', 'team')
"""
RESERVATION = """
    INSERT INTO reservations (tenant_id, workload_id, pool_id, shape_key, target_instances)
    VALUES (:tenant, 'orders', :pool, 's', 10000)
"""
SLOT = """
    INSERT INTO instances (tenant_id, slot_key, workload_id, partition_id, pool_id, region, shape_key,
        generation, batch_key, state)
    VALUES (:tenant, :server, 'orders', 'k8s-eu-north', :pool, 'eu-north', 's', 1, :server, 'planned')
"""
BIND = """
    UPDATE instances SET state = :state, server_id = :server WHERE tenant_id = :tenant AND slot_key = :server
"""


class Books(NamedTuple):
    """What stands in the three tables that a history is in."""

    events: list[tuple[Any, ...]]
    drains: list[tuple[Any, ...]]
    told: list[tuple[Any, ...]]


async def own(engine: Engine, *servers: str, tenant: str = "acme", pool: str = "eu-north-h1-gp-m") -> None:
    """Make a tenant, a pool and running instances with these servers."""
    named = {"tenant": tenant, "pool": pool}
    async with engine.begin() as connection:
        for statement in (GROUP, POOL, CAPACITY, PARTITION, CONTRACT, WORKLOAD, RESERVATION):
            await connection.execute(sa.text(statement), named)
    await run(engine, *servers, tenant=tenant, pool=pool)


async def run(engine: Engine, *servers: str, tenant: str = "acme", pool: str = "eu-north-h1-gp-m") -> None:
    """Bind running instances to servers."""
    async with engine.begin() as connection:
        for server in servers:
            named = {"tenant": tenant, "pool": pool, "server": server}
            await connection.execute(sa.text(SLOT), named)
            for state in ("building", "active"):
                await connection.execute(sa.text(BIND), named | {"state": state})


async def keep(engine: Engine, node: str, events: Sequence[Event]) -> Kept:
    """Keep events as the history writer does: one transaction."""
    async with engine.begin() as connection:
        owned = await lifecycle.owners(connection, [node])
        return await lifecycle.keep(connection, [Arrival(node, one) for one in events], owned, AT)


async def remember(engine: Engine, node: str, events: Sequence[Event], *, tenant: str) -> None:
    """Keep events of a node that is no longer recorded."""
    owner = Owner(tenant, "eu-north", "eu-north-h1", "eu-north-h1-gp-m", "k8s-eu-north", "orders-daily")
    async with engine.begin() as connection:
        await lifecycle.keep(connection, [Arrival(node, one) for one in events], {node: owner}, AT)


async def lose(engine: Engine, *nodes: str, cause: Cause = Cause.RECLAIM) -> None:
    async with engine.begin() as connection:
        await lifecycle.note_losses(connection, [Loss(node, AT, cause, "not listed") for node in nodes], AT)


async def books(engine: Engine) -> Books:
    async with engine.connect() as connection:

        async def read(query: str) -> list[tuple[Any, ...]]:
            return [tuple(row) for row in await connection.execute(sa.text(query))]

        return Books(
            await read("SELECT * FROM lifecycle_events ORDER BY instance_id, event_id, month"),
            await read("SELECT * FROM node_drains ORDER BY tenant_id, instance_id, drain_id"),
            await read("SELECT topic, key, payload->>'eventId' FROM outbox ORDER BY 1, 2, 3"),
        )

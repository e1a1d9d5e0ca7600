"""Serving pools of any tenant in a test's database, with what agents and probes say of them."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from activities.reporting import Accepted, report_utilization
from domain.pool import PoolFacts, PoolKind, PoolState, PurchaseModel, SecurityBoundary
from domain.serving.utilization import ReportedModel, UtilizationReport
from store import cached_models, registry
from store.cached_models import Settled
from store.engine import Engine
from store.serving_pools import PoolName
from tests.estates import TENANT, Clock

ENDPOINT = "https://gpu.models.example.net"


def serving_facts(
    pool_id: str = "gpu-1",
    tenant_id: str = TENANT,
    *,
    vram_gb: int = 80,
    boundary: SecurityBoundary = SecurityBoundary.SHARED,
    price: str = "2.50",
    region: str = "eu-north",
) -> PoolFacts:
    """One pool with accelerator memory."""
    return PoolFacts(
        pool_id=pool_id,
        tenant_id=tenant_id,
        kind=PoolKind.LOCAL_GPU_SERVER,
        region=region,
        hall=f"{region}-h1",
        security_boundary=boundary,
        sku_family="g2",
        size="m",
        gpu_type="a100",
        gpu_count=1,
        vram_gb=vram_gb,
        cpu_cores=16,
        ram_gb=128,
        purchase_model=PurchaseModel.GUARANTEED,
        group_id=f"{region}-h1-a3",
        price_per_hour_usd=Decimal(price),
        guaranteed_price_per_hour_usd=Decimal(price) or Decimal(1),
        flavor="g2.m",
    )


class ServingPools:
    """Fills and asks one database, at the time of one clock."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self.engine = engine
        self.clock = clock

    async def add(
        self,
        *facts: PoolFacts,
        state: PoolState = PoolState.ACTIVE,
        endpoint: str | None = ENDPOINT,
        changed_at: datetime | None = None,
    ) -> None:
        """Register pools with this endpoint; they were last changed at the clock's time."""
        async with self.engine.begin() as connection:
            await registry.register_pools(connection, list(facts), state)
        for one in facts:
            await self.rows(
                "UPDATE pools SET endpoint_ref = :endpoint, updated_at = :at"
                " WHERE tenant_id = :tenant AND pool_id = :pool",
                endpoint=endpoint,
                at=changed_at or self.clock(),
                tenant=one.tenant_id,
                pool=one.pool_id,
            )

    async def report(
        self, pool_id: str = "gpu-1", tenant_id: str = TENANT, *, at: datetime | None = None, **said: Any
    ) -> Accepted:
        """One report of a pool's agent, taken at the clock's time."""
        told = utilization(pool_id, at or self.clock(), **said)
        return await report_utilization(self.engine, tenant_id, [told], self.clock())

    async def settle(self, *models: str, pool_id: str = "gpu-1", tenant_id: str = TENANT) -> Settled:
        """What a look at a pool does with the list of its endpoint, that had these models."""
        now, patience = self.clock(), timedelta(seconds=30)
        async with self.engine.begin() as connection:
            name = PoolName(tenant_id, pool_id)
            return await cached_models.settle(
                connection, name, models, asked_at=now, at=now, patience=patience
            )

    async def capacity(self, pool_id: str = "gpu-1", tenant_id: str = TENANT) -> tuple[Any, ...]:
        """Utilization, queue depth, and the time of the last report."""
        rows = await self.rows(
            "SELECT utilization, queue_depth, reported_at FROM pool_capacity"
            " WHERE tenant_id = :tenant AND pool_id = :pool",
            tenant=tenant_id,
            pool=pool_id,
        )
        return rows[0]

    async def serving(self, what: str, pool_id: str = "gpu-1", tenant_id: str = TENANT) -> Any:
        """One column of a serving pool."""
        rows = await self.rows(
            f"SELECT {what} FROM pool_serving WHERE tenant_id = :tenant AND pool_id = :pool",
            tenant=tenant_id,
            pool=pool_id,
        )
        return rows[0][0]

    async def models(self, pool_id: str = "gpu-1", tenant_id: str = TENANT) -> dict[str, str]:
        """The models of a pool with their states."""
        rows = await self.rows(
            "SELECT model, state FROM cached_models WHERE tenant_id = :tenant AND pool_id = :pool ORDER BY 1",
            tenant=tenant_id,
            pool=pool_id,
        )
        return {model: state for model, state in rows}

    async def rows(self, query: str, **named: Any) -> list[tuple[Any, ...]]:
        async with self.engine.begin() as connection:
            answer = await connection.execute(sa.text(query), named)
            return [tuple(row) for row in answer] if answer.returns_rows else []


def utilization(
    pool_id: str,
    at: datetime,
    share: str = "0.5",
    queue_depth: int = 3,
    models: tuple[ReportedModel, ...] = (),
) -> UtilizationReport:
    return UtilizationReport(
        pool_id=pool_id, utilization=Decimal(share), queue_depth=queue_depth, models=models, reported_at=at
    )


def listed(model: str, at: datetime, vram_gb: int = 40) -> ReportedModel:
    return ReportedModel(model=model, vram_gb=vram_gb, last_used_at=at)

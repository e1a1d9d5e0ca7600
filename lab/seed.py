"""What a fresh laboratory knows: partitions, the provider's pools, and thirty days of reclaims."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from typing import Any

from activities.pool_import import pool_facts
from activities.ports import Catalog
from domain.pool import PoolFacts, PoolState, PurchaseModel
from store import observations, partitions, registry
from store.engine import Engine

TENANT = "platform"
PARTITIONS: dict[str, tuple[str, str]] = {
    "k8s-eu-north": ("eu-north", "kubernetes"),
    "slurm-eu-west": ("eu-west", "slurm"),
}
HISTORY_DAYS = 30
# Some halls and families are reclaimed more often than others; a few pools have no history at all.
CALM_EPISODES_PER_DAY = 0.1
BUSY_EPISODES_PER_DAY = 1.2
BUSY_SHARE = 0.2
UNKNOWN_SHARE = 0.05


async def seed(engine: Engine, catalog: Catalog, regions: Iterable[str], *, today: date, number: int) -> int:
    """Register partitions and the pools of `regions`; returns how many pools were new.

    Seeding again changes nothing. `number` decides the history.
    """
    facts: list[PoolFacts] = []
    for region in regions:
        offered = await asyncio.to_thread(catalog.catalog, region)
        observed = await asyncio.to_thread(catalog.observe, region)
        facts += pool_facts(TENANT, offered, observed)
    async with engine.begin() as connection:
        for partition_id, (region, scheduler) in PARTITIONS.items():
            await partitions.put_partition(
                connection, tenant_id=TENANT, partition_id=partition_id, region=region, scheduler=scheduler
            )
        added = await registry.register_pools(connection, facts, PoolState.ACTIVE)
        if added:
            await observations.record_history(connection, list(history(facts, today, random.Random(number))))
    return added


def history(facts: Iterable[PoolFacts], today: date, rng: random.Random) -> Iterator[dict[str, Any]]:
    """Daily reclaim episodes of the last thirty days, for reclaimable pools that we ever used."""
    for pool in sorted(facts, key=lambda one: one.pool_id):
        draw = rng.random()
        if pool.purchase_model is not PurchaseModel.RECLAIMABLE or draw < UNKNOWN_SHARE:
            continue
        per_day = BUSY_EPISODES_PER_DAY if draw > 1 - BUSY_SHARE else CALM_EPISODES_PER_DAY
        for back in range(1, HISTORY_DAYS + 1):
            episodes = sum(rng.random() < per_day / 4 for _ in range(4))
            yield {
                "tenant_id": TENANT,
                "pool_id": pool.pool_id,
                "day": today - timedelta(days=back),
                "episodes": episodes,
                "observed_hours": 24,
            }

"""What pools look like from outside: read anew each time, and gone when the pool is."""

from __future__ import annotations

import math

import pytest
from prometheus_client import REGISTRY
from sqlalchemy.exc import OperationalError

from activities.pool_gauges import PoolGauges
from domain.pool import PoolState
from store.engine import Engine
from tests.database import opened
from tests.estates import START, TENANT, Clock
from tests.serving_pools import ServingPools, serving_facts

POOLS = "connectsoft_factory_compute_pools_pools"
UTILIZATION = "connectsoft_factory_compute_pools_utilization"


def shown(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


def health(pool: str = "gpu-1") -> dict[str, float | None]:
    return {
        word: shown("sco_pool_health", tenant=TENANT, pool=pool, health=word)
        for word in ("unknown", "healthy", "degraded")
    }


@pytest.fixture
def pools(engine: Engine, clock: Clock) -> ServingPools:
    return ServingPools(engine, clock)


async def test_pools_are_counted_by_tenant_kind_state_and_region(pools: ServingPools) -> None:
    await pools.add(serving_facts(), serving_facts("gpu-2"), serving_facts(tenant_id="acme"))
    await pools.add(serving_facts("gpu-3"), state=PoolState.DRAFT)
    gauges = PoolGauges(pools.engine)
    await gauges.refresh()
    where = {"kind": "local_gpu_server", "region": "eu-north"}
    assert shown(POOLS, tenant=TENANT, state="active", **where) == 2
    assert shown(POOLS, tenant="acme", state="active", **where) == 1
    assert shown(POOLS, tenant=TENANT, state="draft", **where) == 1
    await pools.rows("UPDATE pools SET state = 'active'")
    await gauges.refresh()
    assert shown(POOLS, tenant=TENANT, state="active", **where) == 3
    assert shown(POOLS, tenant=TENANT, state="draft", **where) is None


async def test_a_serving_pool_shows_its_use_health_and_silence(pools: ServingPools) -> None:
    await pools.add(serving_facts(), serving_facts("gpu-2"))
    gauges = PoolGauges(pools.engine)
    await gauges.refresh()
    assert shown(UTILIZATION, tenant=TENANT, pool="gpu-1") is None, "nobody has reported it yet"
    assert health() == {"unknown": 1, "healthy": 0, "degraded": 0}
    assert shown("sco_pools_stale", tenant=TENANT) == 0
    await pools.report(share="0.25")
    await pools.rows("UPDATE pool_serving SET health = 'degraded', stale_since = :at", at=START)
    await gauges.refresh()
    assert shown(UTILIZATION, tenant=TENANT, pool="gpu-1") == 0.25
    assert health() == {"unknown": 0, "healthy": 0, "degraded": 1}
    assert shown("sco_pools_stale", tenant=TENANT) == 2
    await pools.rows("UPDATE pools SET state = 'retired'")
    await gauges.refresh()
    assert set(health().values()) == {None}
    assert shown("sco_pools_stale", tenant=TENANT) is None


async def test_while_the_database_is_away_nobody_knows(pools: ServingPools) -> None:
    await pools.add(serving_facts())
    gauges = PoolGauges(pools.engine)
    await gauges.refresh()
    async with opened("postgresql://nobody@127.0.0.1:1/none") as away:
        gauges._engine = away
        with pytest.raises(OperationalError):
            await gauges.refresh()
    assert all(value is not None and math.isnan(value) for value in health().values())
    gauges._engine = pools.engine
    await gauges.refresh()
    assert health()["unknown"] == 1

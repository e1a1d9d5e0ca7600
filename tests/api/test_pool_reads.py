"""Reads of the registry answer, field by field, what its views say that they answer, to every tenant."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import httpx2
import pytest
import pytest_asyncio

from api.deps import Deps
from api.pool_life import PoolDetail, pool_detail
from api.pools import PoolPage, PoolQuery, PoolView, pool_views
from api.shapes import View, json_text
from domain.pool import PoolKind, PoolState, SecurityBoundary
from domain.serving.health import Health
from store import pool_reads, registry
from store.engine import Engine, of_tenant
from store.roles import TENANT_ROLE
from store.tables import Standing
from tests.activities.model_placing import ServingEstate
from tests.api.door import Door, RecordingStarter
from tests.database import opened
from tests.estates import Estate

POOLS = "/factory/compute-pools"
TENANTS = ("acme", "platform", "umbra")
MODELS = ("coder-7b", "llama-70b", "vision-3b")
PER_TENANT = 7
FILTERS: tuple[dict[str, Any], ...] = (
    {},
    {"state": PoolState.DRAINING},
    {"kind": PoolKind.DGX_CLASS, "region": "eu-north"},
    {"boundary": SecurityBoundary.SHARED, "gpu_type": "a100"},
    {"health": Health.DEGRADED},
    {"stale": True},
    {"stale": False, "sku_family": "g2"},
    {"hall": "eu-south-h1", "purchase_model": "guaranteed"},
)
HOLD = """
    INSERT INTO model_placements (tenant_id, placement_id, deployment_id, model, requirements, candidates,
      outcome, pool_tenant_id, pool_id, vram_gb, state, decided_at, expires_at)
    VALUES (:tenant, :id, 'd', :model, '{}', '{}', 'placed', :owner, :pool, 20, 'held', :at, :at)
"""
STANDING = """
    UPDATE pool_capacity SET utilization = :utilization, queue_depth = :queue, reported_at = :reported_at,
      standing = :standing, hall_lost = :hall_lost, capacity_instances = :capacity
    WHERE tenant_id = :tenant AND pool_id = :pool
"""
LIFE = """
    UPDATE pools SET state = :state, draining_since = :draining_since, drained_at = :drained_at,
      version = :version, endpoint_ref = :endpoint
    WHERE tenant_id = :tenant AND pool_id = :pool
"""
SERVING = """
    UPDATE pool_serving SET health = :health, health_problem = :problem, health_changed_at = :changed_at,
      probed_at = :probed_at, stale_since = :stale_since, learned_cold_start_seconds = :learned
    WHERE tenant_id = :tenant AND pool_id = :pool
"""


class Jumble:
    """A registry of several tenants in which everything is as chance has it."""

    def __init__(self, estate: Estate, seed: int) -> None:
        self.estate = ServingEstate(estate.engine, estate.engine, estate.clock)
        self.rng = random.Random(seed)

    async def fill(self) -> None:
        for tenant in TENANTS:
            for number in range(PER_TENANT):
                # Ids are unique per tenant only.
                await self._pool(tenant, f"pool-{number}")
        await self._hold()
        for tenant in TENANTS:
            for number in range(PER_TENANT):
                await self._live(tenant, f"pool-{number}")

    async def _hold(self) -> None:
        readable = await self.estate.run(
            "SELECT tenant_id, pool_id, security_boundary FROM pools WHERE vram_gb > 0 ORDER BY 1, 2"
        )
        for owner, pool, boundary in readable:
            for tenant in TENANTS:
                is_shared = owner == "platform" and boundary != "private"
                if (owner == tenant or is_shared) and self.rng.random() < 0.6:
                    await self.estate.run(
                        HOLD,
                        tenant=tenant,
                        id=uuid4(),
                        owner=owner,
                        pool=pool,
                        model=self.rng.choice(MODELS),
                        at=self.estate.clock(),
                    )

    async def _live(self, tenant: str, pool: str) -> None:
        rng = self.rng
        since, drained = self._moment(), self._moment()
        state = rng.choice((*PoolState, PoolState.ACTIVE, PoolState.ACTIVE))
        drains = state in (PoolState.DRAINING, PoolState.RETIRED)
        await self.estate.run(
            LIFE,
            state=state,
            draining_since=since if drains else None,
            drained_at=drained if drains and since is not None else None,
            version=rng.randrange(1, 2**40),
            endpoint=rng.choice((None, "https://gpu.example.net/v1?a=b&c=%C3%A4")),
            tenant=tenant,
            pool=pool,
        )

    async def _pool(self, tenant: str, pool: str) -> None:
        rng, of = self.rng, {"tenant": tenant, "pool": pool}
        region = rng.choice(("eu-north", "eu-south"))
        serves = rng.random() < 0.75
        await self.estate.pool(
            pool,
            tenant,
            cold_start_seconds=rng.randrange(90),
            region=region,
            hall=f"{region}-h1",
            group_id=f"{region}-h1-a3",
            kind=rng.choice(list(PoolKind)),
            security_boundary=rng.choice(list(SecurityBoundary)),
            gpu_type=rng.choice((None, "a100", "l4")),
            vram_gb=160 if serves else 0,
            price_per_hour_usd=rng.choice((Decimal(0), Decimal("0.000001"), Decimal("12.5"))),
        )
        await self.estate.run(
            STANDING,
            utilization=Decimal(rng.randrange(10_001)) / 10_000,
            queue=rng.randrange(9),
            reported_at=self._moment(),
            standing=rng.choice(list(Standing)),
            hall_lost=rng.random() < 0.2,
            capacity=rng.randrange(10),
            **of,
        )
        await self.estate.run(
            SERVING,
            health=rng.choice(list(Health)),
            problem=rng.choice((None, 'it said "no" twice, ä\u2028')),
            changed_at=self._moment(),
            probed_at=self._moment(),
            stale_since=self._moment(),
            learned=rng.choice((None, 40)),
            **of,
        )
        for model in MODELS:
            if serves and rng.random() < 0.4:
                await self.estate.load(pool, tenant, model, 20)

    def _moment(self) -> datetime | None:
        """None, a whole second, or one with a fraction that may end in zeros."""
        whole = self.estate.clock().replace(microsecond=0) - timedelta(seconds=self.rng.randrange(160))
        return self.rng.choice(
            (None, whole, whole.replace(microsecond=120_000), whole.replace(microsecond=7))
        )


@pytest_asyncio.fixture
async def tenants(dsn: str) -> AsyncIterator[Engine]:
    async with opened(dsn, role=TENANT_ROLE) as engine:
        yield engine


class Reference:
    """Answers from views that were made and checked field by field, out of several statements."""

    def __init__(self, engine: Engine, estate: Estate, tenant: str) -> None:
        starter = RecordingStarter()
        self._tenant = tenant
        self._deps = Deps(
            engine=of_tenant(engine, tenant),
            starter=starter,
            temporal_reachable=starter.reachable,
            now=estate.clock,
            workflow_pages="http://localhost:8233/namespaces/default",
        )

    async def page(self, query: PoolQuery) -> str:
        async with self._deps.snapshot() as connection:
            found = await registry.list_readable(connection, self._tenant, query.filter)
            views = await pool_views(connection, self._deps, self._tenant, found)
        return exact(PoolPage(items=views, next_page_token=None))

    async def detail(self, owner: str, pool_id: str) -> str:
        async with self._deps.snapshot() as connection:
            pool = await registry.find_readable(connection, self._tenant, owner, pool_id)
            return exact(await pool_detail(connection, self._deps, self._tenant, pool))


def exact(said: View | httpx2.Response) -> str:
    """A document whose text tells 1 from 1.0 and from "1", but not the order of its fields."""
    text = said.text if isinstance(said, httpx2.Response) else json_text(said)
    return json.dumps(json.loads(text), sort_keys=True)


@pytest.mark.parametrize("seed", range(3))
async def test_every_tenant_reads_what_the_views_say(
    door: Door, estate: Estate, tenants: Engine, seed: int
) -> None:
    await Jumble(estate, seed).fill()
    for tenant in TENANTS:
        reference = Reference(tenants, estate, tenant)
        async with door.as_(tenant_id=tenant) as http:
            for filters in FILTERS:
                query = PoolQuery.model_validate(
                    {PoolQuery.model_fields[name].alias: value for name, value in filters.items()}
                )
                asked = query.model_dump(mode="json", by_alias=True, exclude_none=True)
                answer = await http.get(POOLS, params=asked)
                assert exact(answer) == await reference.page(query), (tenant, filters)
            for pool in (await http.get(POOLS)).json()["items"]:
                owner, pool_id = pool["tenantId"], pool["poolId"]
                answer = await http.get(f"{POOLS}/{pool_id}", params={"tenantId": owner})
                assert exact(answer) == await reference.detail(owner, pool_id), (tenant, owner, pool_id)
                assert answer.headers["etag"] == f'"{pool["version"]}"'


async def test_a_jumble_has_what_it_must_tell_apart(door: Door, estate: Estate) -> None:
    """Own pools, shared ones, models of others on them, and models that are held there."""
    await Jumble(estate, 0).fill()
    async with door.as_(tenant_id="acme") as http:
        seen = (await http.get(POOLS)).json()["items"]
    hidden = await estate.value("SELECT count(*) FROM cached_models WHERE tenant_id = 'platform'")
    shared = [pool for pool in seen if pool["tenantId"] == "platform"]
    told = sum(len(pool["cachedModels"]) for pool in shared)
    assert 0 < told < hidden
    assert {pool["tenantId"] for pool in seen} == {"acme", "platform"}
    assert {pool["securityBoundary"] for pool in shared} <= {"regional", "shared"}
    assert {pool["placeable"] for pool in seen} == {True, False}


async def test_pages_go_on_between_pools_of_one_name(door: Door, estate: Estate) -> None:
    await Jumble(estate, 2).fill()
    async with door.as_(tenant_id="umbra") as http:
        whole = (await http.get(POOLS)).json()["items"]
        assert len({pool["poolId"] for pool in whole}) < len(whole)
        joined: list[dict[str, Any]] = []
        query: dict[str, Any] = {"pageSize": 1}
        for _ in whole:
            page = (await http.get(POOLS, params=query)).json()
            joined += page["items"]
            query["pageToken"] = page["nextPageToken"]
    assert (joined, query["pageToken"]) == (whole, None)


async def test_what_is_told_is_what_the_description_says(read_door: Door) -> None:
    page = (await read_door.get(POOLS, pageSize=1)).json()
    assert set(page) == {field.alias for field in PoolPage.model_fields.values()}
    (pool,) = page["items"]
    detail = (await read_door.get(f"{POOLS}/{pool['poolId']}")).json()
    assert set(pool) == {field.alias for field in PoolView.model_fields.values()}
    assert set(detail) == {field.alias for field in PoolDetail.model_fields.values()}


async def test_a_pool_tells_what_is_planned_in_it(read_door: Door, shared_dsn: str) -> None:
    async with opened(shared_dsn, role=TENANT_ROLE) as engine:
        reference = Reference(engine, read_door.estate, "platform")
        units = 0
        for pool in (await read_door.get(POOLS, pageSize=1000)).json()["items"]:
            answer = await read_door.get(f"{POOLS}/{pool['poolId']}")
            held = answer.json()["held"]
            units += held["units"]
            if held["units"]:
                assert held["workloads"] == ["orders-daily"]
                assert exact(answer) == await reference.detail("platform", pool["poolId"])
        assert units == 42


async def test_nobody_reads_without_a_tenant(estate: Estate, tenants: Engine) -> None:
    """A handler that forgot to say whose rows it reads is given none, whatever it asks for."""
    await Jumble(estate, 1).fill()
    found = await pool_reads.list_readable(tenants, "platform", registry.PoolFilter(), limit=100)
    assert found == []
    with pytest.raises(registry.UnknownPool):
        await pool_reads.find_readable(tenants, "platform", "platform", "pool-0")
    other = of_tenant(tenants, "umbra")
    stolen = await pool_reads.list_readable(other, "acme", registry.PoolFilter(), limit=100)
    assert {row["tenant_id"] for row in stolen} <= {"platform"}

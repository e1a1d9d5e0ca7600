"""Probes on real HTTP and a real database: who is judged by what, and whom nobody's trouble touches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
from pydantic import SecretStr
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs
from temporalio.testing import ActivityEnvironment

from activities.probing import ProbingActivities
from activities.probing_calls import Probed, ProbeRequest
from activities.reporting import report_endpoint
from activities.secrets.ports import Credential, NoCredential, SecretsUnavailable
from activities.serving.http import HttpServing
from activities.serving.ports import Endpoint, ListedModel, ServingPort
from domain.pool import PoolState, SecurityBoundary
from domain.serving.health import HealthTerms, is_held_off
from lab.chaos.killing import Fuse as ProcessFuse
from lab.chaos.killing import FusedEngine, Killed
from store.engine import Engine, of_tenant
from store.pool_health import NoEndpoint
from store.roles import SERVICE_ROLE, TENANT_ROLE
from tests.activities.serving.model_servers import terms_for
from tests.activities.serving.moody_endpoint import Mood, MoodyEndpoint
from tests.database import opened
from tests.estates import START, TENANT, Clock
from tests.serving_pools import ServingPools, serving_facts

TERMS = HealthTerms(
    probe_timeout_seconds=1, probes_at_once=30, report_hold_seconds=60, report_every_seconds=5
)
OTHER = "acme"
ROUND_SECONDS = 20


class Vault:
    """A secrets port in any mood."""

    def __init__(self) -> None:
        self.failing: Callable[[str], Exception | None] = lambda _: None

    async def endpoint_credential(self, tenant_id: str, pool_id: str) -> Credential:
        problem = self.failing(pool_id)
        if problem is not None:
            raise problem
        return Credential(token=SecretStr("let me in"), expires_at=START)


class Prober:
    """Serving pools of one database, each at an endpoint of its own or at the usual one."""

    def __init__(self, engine: Engine, clock: Clock, endpoint: MoodyEndpoint) -> None:
        self.pools = ServingPools(engine, clock)
        self.clock = clock
        self.endpoint = endpoint
        self.vault = Vault()
        self.serving: ServingPort = HttpServing(terms_for(endpoint.port))

    async def add(self, *pool_ids: str, tenant_id: str = TENANT, **changes: Any) -> None:
        facts = [serving_facts(pool_id, tenant_id) for pool_id in pool_ids or ("gpu-1",)]
        await self.pools.add(*facts, **({"endpoint": self.endpoint.reference} | changes))

    async def probe(self, engine: Engine | None = None, only: str | None = None) -> Probed:
        """One round, twenty seconds after the last one."""
        self.clock.move(ROUND_SECONDS)
        hands = ProbingActivities(
            engine or self.pools.engine, self.serving, self.vault, terms=TERMS, now=self.clock
        )
        request = ProbeRequest(only=None if only is None else (TENANT, only))
        probed: Probed = await ActivityEnvironment().run(hands.probe_pools, request)
        return probed

    async def probes(self, mood: Mood, rounds: int) -> Probed:
        self.endpoint.mood = mood
        return [await self.probe() for _ in range(rounds)][-1]

    async def health(self, pool_id: str = "gpu-1", tenant_id: str = TENANT) -> str:
        return str(await self.pools.serving("health", pool_id, tenant_id))

    async def report(self, tenant_id: str = TENANT, pool_tenant_id: str = TENANT) -> bool:
        return await report_endpoint(
            self.pools.engine, tenant_id, pool_tenant_id, "gpu-1", "refused", self.clock(), terms=TERMS
        )

    async def held_off(self, tenant_id: str) -> set[tuple[str, str]]:
        """The pools that a tenant's own reports keep it from now."""
        rows = await self.pools.rows(
            "SELECT pool_tenant_id, pool_id, reported_at FROM endpoint_reports WHERE tenant_id = :tenant",
            tenant=tenant_id,
        )
        return {(owner, pool) for owner, pool, at in rows if is_held_off(at, self.clock(), TERMS)}


@pytest_asyncio.fixture
async def prober(engine: Engine, clock: Clock) -> AsyncIterator[Prober]:
    endpoint = MoodyEndpoint()
    await endpoint.open()
    yield Prober(engine, clock, endpoint)
    await endpoint.close()


async def test_a_pool_that_answers_twice_is_healthy(prober: Prober) -> None:
    await prober.add()
    assert (await prober.probe()).healed == ()
    assert await prober.health() == "unknown"
    assert (await prober.probe()).healed == ("platform/gpu-1",)
    assert await prober.health() == "healthy"
    assert (await prober.probe()) == Probed(probed=1)


@pytest.mark.parametrize("mood", [mood for mood in Mood if mood is not Mood.WELL])
async def test_whatever_is_wrong_with_an_endpoint_degrades_its_pool(prober: Prober, mood: Mood) -> None:
    """Within two rounds placements of all kinds avoid it, and within two answers they are back."""
    await prober.add()
    await prober.probes(Mood.WELL, 2)
    once = await prober.probes(mood, 1)
    assert (once.failing, once.degraded) == (1, ())
    assert (await prober.probes(mood, 1)).degraded == ("platform/gpu-1",)
    assert await prober.pools.rows("SELECT degraded FROM pool_capacity") == [(True,)]
    problem = await prober.pools.serving("health_problem")
    assert problem
    assert "let me in" not in problem
    assert (await prober.probes(Mood.WELL, 1)).healed == ()
    assert (await prober.probes(Mood.WELL, 1)).healed == ("platform/gpu-1",)
    assert await prober.pools.rows("SELECT degraded FROM pool_capacity") == [(False,)]
    assert await prober.pools.serving("health_problem") is None


async def test_an_endpoint_that_died_and_came_back(prober: Prober) -> None:
    await prober.add()
    await prober.probes(Mood.WELL, 2)
    await prober.endpoint.close()
    for _ in range(3):
        await prober.probe()
    assert await prober.health() == "degraded"
    assert await prober.pools.serving("failures") == 3
    await prober.endpoint.open()
    await prober.probes(Mood.WELL, 2)
    assert await prober.health() == "healthy"


async def test_one_that_hangs_keeps_no_other_waiting(prober: Prober) -> None:
    """Fifty silent endpoints, thirty at a time, cost as much as two."""
    silent = MoodyEndpoint()
    silent.mood = Mood.SILENT
    await silent.open()
    prober.serving = HttpServing(terms_for(prober.endpoint.port, silent.port))
    await prober.add("gpu-1")
    await prober.add(*(f"silent-{number:02d}" for number in range(50)), endpoint=silent.reference)
    async with asyncio.timeout(TERMS.probe_timeout_seconds * 20):
        probed = [await prober.probe() for _ in range(2)][-1]
    await silent.close()
    assert (probed.probed, probed.failing, len(probed.degraded)) == (51, 50, 50)
    assert await prober.health() == "healthy"


async def test_only_pools_in_service_with_an_endpoint_are_asked(prober: Prober) -> None:
    for state in PoolState:
        await prober.add(f"is-{state}", state=state)
    await prober.add("nowhere", endpoint=None)
    await prober.pools.add(serving_facts("no-memory", vram_gb=0), endpoint=prober.endpoint.reference)
    assert (await prober.probe()).probed == 2
    assert prober.endpoint.asked == 2


async def test_without_credentials_nothing_is_said_of_anybody(prober: Prober) -> None:
    """A secrets service that is away must not take all pools away with it."""
    await prober.add()
    await prober.probes(Mood.WELL, 2)
    prober.vault.failing = lambda _: SecretsUnavailable("away")
    prober.endpoint.mood = Mood.FAILING
    for _ in range(5):
        assert await prober.probe() == Probed(not_asked=1)
    assert await prober.health() == "healthy"


async def test_an_endpoint_that_needs_no_credential_is_asked_without(prober: Prober) -> None:
    await prober.add()
    prober.vault.failing = lambda _: NoCredential("none is stored")
    await prober.probes(Mood.WELL, 2)
    assert await prober.health() == "healthy"


class Broken:
    """A serving port with a fault of ours for one pool."""

    def __init__(self, well: ServingPort, breaks_for: str) -> None:
        self._well = well
        self._breaks_for = breaks_for

    async def probe(self, endpoint: Endpoint) -> None:
        if self._breaks_for in endpoint.url:
            raise ZeroDivisionError("a fault of ours")
        await self._well.probe(endpoint)

    async def load(self, endpoint: Endpoint, model: str) -> None:
        raise AssertionError("a probe loads nothing")

    async def unload(self, endpoint: Endpoint, model: str) -> None:
        raise AssertionError("a probe unloads nothing")

    async def list_models(self, endpoint: Endpoint) -> tuple[ListedModel, ...]:
        raise AssertionError("a probe lists nothing")


async def test_a_fault_of_ours_is_no_pools_fault_and_stops_no_round(prober: Prober) -> None:
    await prober.add()
    await prober.add("poison", endpoint=f"{prober.endpoint.reference}/poison")
    prober.serving = Broken(prober.serving, "/poison")
    with capture_logs() as said:
        probed = [await prober.probe() for _ in range(2)][-1]
    assert (probed.probed, probed.not_asked) == (1, 1)
    assert (await prober.health(), await prober.health("poison")) == ("healthy", "unknown")
    assert {one["pool"] for one in said if one["event"] == "pool_probe_broke"} == {"poison"}


async def test_an_address_that_is_not_allowed_degrades_its_pool_alone(prober: Prober) -> None:
    await prober.add()
    await prober.add("inside", endpoint="http://169.254.169.254/latest")
    probed = [await prober.probe() for _ in range(2)][-1]
    assert (probed.degraded, probed.healed) == (("platform/inside",), ("platform/gpu-1",))


async def test_a_report_keeps_its_own_tenant_away_at_once_and_nobody_else(prober: Prober) -> None:
    """However often one tenant says so: a shared pool that answers stays what it is for the others."""
    await prober.add()
    await prober.probes(Mood.WELL, 2)
    for _ in range(30):
        prober.clock.move(6)
        assert await prober.report(OTHER)
        assert await prober.held_off(OTHER) == {(TENANT, "gpu-1")}
        await prober.probe()
        assert await prober.health() == "healthy"
    assert await prober.held_off(TENANT) == set()
    prober.clock.move(61)
    assert await prober.held_off(OTHER) == set()


async def test_a_probe_that_confirms_a_report_degrades_the_pool_for_all(prober: Prober) -> None:
    await prober.add("gpu-1", "gpu-2")
    await prober.probes(Mood.WELL, 2)
    prober.clock.move(1)
    await prober.report(OTHER)
    probed = await prober.probes(Mood.FAILING, 1)
    assert probed.degraded == ("platform/gpu-1",)
    assert await prober.pools.serving("health_source") == "router"


async def test_reports_of_one_tenant_at_once_are_one(prober: Prober) -> None:
    await prober.add()
    assert [await prober.report() for _ in range(3)] == [True, False, False]
    assert await prober.report(OTHER)
    prober.clock.move(6)
    assert await prober.report()


async def test_who_may_not_place_on_a_pool_may_not_report_it(prober: Prober, dsn: str) -> None:
    """By the rule, and by the role of the API."""
    await prober.add()
    await prober.pools.add(serving_facts("own", TENANT, boundary=SecurityBoundary.PRIVATE))
    await prober.pools.add(serving_facts("plain", vram_gb=0))
    async with opened(dsn, role=TENANT_ROLE) as own:
        for engine in (prober.pools.engine, of_tenant(own, OTHER)):
            for tenant, pool in ((TENANT, "own"), (OTHER, "gpu-1"), (TENANT, "none")):
                with pytest.raises(LookupError, match=pool):
                    await report_endpoint(engine, OTHER, tenant, pool, "down", START)
            with pytest.raises(NoEndpoint):
                await report_endpoint(engine, OTHER, TENANT, "plain", "down", START)
        assert await report_endpoint(of_tenant(own, OTHER), OTHER, TENANT, "gpu-1", "down", START)
    assert await prober.pools.rows("SELECT tenant_id, pool_id FROM endpoint_reports") == [(OTHER, "gpu-1")]


async def test_one_pool_is_probed_alone_when_that_is_asked_for(prober: Prober) -> None:
    await prober.add("gpu-1", "gpu-2")
    assert (await prober.probe(only="gpu-2")).probed == 1
    assert await prober.pools.serving("probed_at", "gpu-1") is None


async def test_probes_at_once_count_as_one(prober: Prober) -> None:
    """Two processes that look at the same moment see one failure, not two."""
    await prober.add()
    prober.endpoint.mood = Mood.FAILING
    prober.clock.move(ROUND_SECONDS)
    hands = [
        ProbingActivities(prober.pools.engine, prober.serving, prober.vault, terms=TERMS, now=prober.clock)
        for _ in range(4)
    ]
    environment = ActivityEnvironment()
    await asyncio.gather(*(environment.run(one.probe_pools, ProbeRequest()) for one in hands))
    assert (await prober.health(), await prober.pools.serving("failures")) == ("unknown", 1)


async def test_a_process_that_dies_at_any_point_loses_one_round_at_most(prober: Prober) -> None:
    await prober.add()
    whole = ProcessFuse()
    counted: Any = FusedEngine(prober.pools.engine, whole)
    await prober.probe(engine=counted)
    assert whole.passed == 4
    for moment in range(1, whole.passed + 1):
        dying: Any = FusedEngine(prober.pools.engine, ProcessFuse(moment))
        with pytest.raises(Killed):
            await prober.probe(engine=dying)
        await prober.probe()
        assert await prober.health() == "healthy"


async def test_a_database_that_is_away_fails_the_round_and_no_pool(prober: Prober) -> None:
    await prober.add()
    await prober.probes(Mood.WELL, 2)
    async with opened("postgresql://nobody@127.0.0.1:1/none") as away:
        with pytest.raises(OperationalError):
            await prober.probe(engine=away)
    assert await prober.health() == "healthy"


async def test_the_workers_role_may_do_all_of_it(prober: Prober, dsn: str) -> None:
    await prober.add()
    await prober.add(tenant_id=OTHER)
    async with opened(dsn, role=SERVICE_ROLE) as service:
        for _ in range(2):
            await prober.probe(engine=service)
    assert (await prober.health(), await prober.health(tenant_id=OTHER)) == ("healthy", "healthy")

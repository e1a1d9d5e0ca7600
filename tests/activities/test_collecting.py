"""The collector on a real database: what it marks, learns, ends and counts, whoever dies when."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from temporalio.testing import ActivityEnvironment

from activities import collecting
from activities.collecting import CollectingActivities
from activities.collecting_calls import Collected, CollectRequest
from activities.usage_sinks import NoUsageSink, UsageSink, UsageUnavailable
from domain.policy import Policy
from domain.pool import PoolState
from domain.serving.usage import UsageTerms
from lab.chaos.killing import Fuse, FusedEngine, Killed
from store import model_loads, model_placements
from store.engine import Engine
from store.roles import SERVICE_ROLE
from store.usage_records import UsageRecord
from tests.database import opened
from tests.estates import START, TENANT, Clock
from tests.serving_pools import ServingPools, serving_facts

OTHER = "acme"
HOLD = """
    INSERT INTO model_placements (tenant_id, placement_id, deployment_id, model, requirements, candidates,
      outcome, pool_tenant_id, pool_id, vram_gb, state, decided_at, expires_at)
    VALUES (:tenant, gen_random_uuid(), 'chat', :model, '{}', '{}', 'placed', 'platform', 'gpu-1', 10,
      'held', :at, :until)
"""
LOADED = """
    INSERT INTO model_loads (tenant_id, load_id, pool_id, model, vram_gb, cause, started_at, finished_at,
      seconds, outcome)
    VALUES ('platform', gen_random_uuid(), 'gpu-1', 'llama', :vram, 'placement', :at, :at, :seconds, :outcome)
"""
HOURS = "SELECT hour, seconds, amount_usd FROM usage_records ORDER BY tenant_id, pool_id, hour"


class Ledger:
    """A usage service that remembers what it was told, until it is `down`."""

    def __init__(self) -> None:
        self.down: Exception | None = None
        self.told: dict[tuple[str, str, datetime], int] = {}
        self.calls = 0

    async def record(self, records: Sequence[UsageRecord]) -> None:
        self.calls += 1
        if self.down is not None:
            raise self.down
        for one in records:
            self.told[one.tenant_id, one.pool_id, one.hour.hour] = one.hour.seconds


class Collector:
    """The hand over one database, at the time of one clock."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self.pools = ServingPools(engine, clock)
        self.clock = clock
        self.policy = Policy()
        self._hands: dict[int, CollectingActivities] = {}

    def hands(self, engine: Engine | None = None, sink: UsageSink | None = None) -> CollectingActivities:
        return CollectingActivities(
            engine or self.pools.engine, sink or NoUsageSink(), policy=self.policy, now=self.clock
        )

    async def run(self, hands: CollectingActivities | None = None) -> Collected:
        known = hands or self.hands()
        done: Collected = await ActivityEnvironment().run(known.collect, CollectRequest())
        return done

    async def seconds(self) -> int:
        rows = await self.pools.rows("SELECT coalesce(sum(seconds), 0) FROM usage_records")
        return int(rows[0][0])


@pytest.fixture
def collector(engine: Engine, clock: Clock) -> Collector:
    return Collector(engine, clock)


async def test_pools_that_fall_silent_are_marked_and_heard_again_with_a_report(collector: Collector) -> None:
    pools = collector.pools
    await pools.add(serving_facts(), serving_facts("gpu-2"), serving_facts(tenant_id=OTHER))
    for pool_id, tenant_id in (("gpu-1", TENANT), ("gpu-2", TENANT), ("gpu-1", OTHER)):
        await pools.report(pool_id, tenant_id)
    assert (await collector.run()).stale == ()
    collector.clock.move(121)
    await pools.report("gpu-2")
    assert (await collector.run()).stale == ("acme/gpu-1", "platform/gpu-1")
    assert await pools.serving("stale_since") == START + timedelta(seconds=120)
    assert await pools.serving("stale_since", "gpu-2") is None
    collector.clock.move(121)
    assert (await collector.run()).stale == ("platform/gpu-2",)
    await pools.report()
    assert await pools.serving("stale_since") is None, "a report waits for no collector"


async def test_a_pool_that_never_reported_is_stale_and_one_that_left_service_is_not(
    collector: Collector,
) -> None:
    pools = collector.pools
    await pools.add(serving_facts())
    for number, state in enumerate((PoolState.DRAFT, PoolState.RETIRED)):
        await pools.add(serving_facts(f"out-{number}"), state=state)
    await pools.add(serving_facts("nowhere"), endpoint=None)
    assert (await collector.run()).stale == ("platform/gpu-1",)
    await pools.rows("UPDATE pools SET state = 'retired'")
    assert (await collector.run()).fresh == ("platform/gpu-1",)


async def test_cold_starts_are_learned_from_loads_that_succeeded(collector: Collector) -> None:
    pools = collector.pools
    await pools.add(serving_facts(), serving_facts("gpu-2"))
    for seconds, outcome in ((30, "loaded"), (32, "loaded"), (900, "failed")):
        await pools.rows(LOADED, vram=40, at=START, seconds=seconds, outcome=outcome)
    assert (await collector.run()).learned == 0
    await pools.rows(LOADED, vram=40, at=START, seconds=31, outcome="loaded")
    assert (await collector.run()).learned == 1
    assert await pools.serving("learned_cold_start_seconds") == 32
    assert await pools.serving("learned_cold_start_seconds", "gpu-2") is None
    assert (await collector.run()).learned == 0
    collector.clock.move(15 * 86_400)
    await collector.run()
    assert await pools.serving("learned_cold_start_seconds") == 32, "old loads are better than none"


async def test_placements_that_nobody_renewed_end_and_free_their_memory(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "EXPIRED_AT_ONCE", 2)
    pools = collector.pools
    await pools.add(serving_facts())
    for number in range(5):
        until = START + timedelta(seconds=60)
        await pools.rows(HOLD, tenant=OTHER, model=f"model-{number}", at=START, until=until)
    await pools.rows(HOLD, tenant=OTHER, model="kept", at=START, until=START + timedelta(hours=1))
    assert (await collector.run()).expired == 0
    collector.clock.move(61)
    assert (await collector.run()).expired == 5
    assert await pools.models() == {"kept": "promised"}
    assert await pools.serving("committed_vram_gb") == 10


async def test_pool_hours_are_counted_minute_by_minute(collector: Collector) -> None:
    pools = collector.pools
    await pools.add(serving_facts(price="3.60"), serving_facts(tenant_id=OTHER))
    await pools.add(serving_facts("draft"), state=PoolState.DRAFT)
    await pools.add(serving_facts("plain", vram_gb=0))
    for _ in range(90):
        collector.clock.move(60)
        await collector.run()
    hours = await pools.rows(HOURS)
    assert [one[1] for one in hours] == [3600, 1800] * 2
    assert hours[2][2] == Decimal("3.600000")
    assert {one[2] for one in hours} >= {Decimal("3.600000"), Decimal("1.800000")}


async def test_an_outage_leaves_no_hole_up_to_the_bound(collector: Collector) -> None:
    await collector.pools.add(serving_facts())
    collector.clock.move(60)
    await collector.run()
    collector.clock.move(5 * 3600)
    await collector.run()
    assert await collector.seconds() == 5 * 3600 + 60
    collector.policy = Policy(usage=UsageTerms(catch_up_hours=1))
    collector.clock.move(100 * 3600)
    await collector.run()
    assert await collector.seconds() == 5 * 3600 + 60 + 3600 + 60


async def test_a_retired_pool_is_counted_to_its_end_and_then_left_alone(collector: Collector) -> None:
    pools = collector.pools
    await pools.add(serving_facts())
    collector.clock.move(600)
    await collector.run()
    ended = collector.clock.at + timedelta(seconds=30)
    await pools.rows("UPDATE pools SET state = 'retired', updated_at = :at", at=ended)
    collector.clock.move(7200)
    assert (await collector.run()).hours == 1
    assert (await collector.run()).hours == 0
    assert await collector.seconds() == 630


async def test_collectors_at_once_count_and_end_once(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the pools are more than one transaction counts."""
    monkeypatch.setattr(collecting, "POOLS_AT_ONCE", 2)
    pools = collector.pools
    await pools.add(*(serving_facts(f"gpu-{number}") for number in range(1, 6)))
    for number in range(8):
        until = START + timedelta(seconds=60)
        await pools.rows(HOLD, tenant=TENANT, model=f"model-{number}", at=START, until=until)
    collector.clock.move(3600)
    done = await asyncio.gather(*(collector.run() for _ in range(6)))
    assert await collector.seconds() == 5 * 3600
    assert sum(one.expired for one in done) == 8
    assert sorted(len(one.stale) for one in done) == [0] * 5 + [5]


EVENT_SECONDS = 5400


async def eventful(collector: Collector, number: int = 0) -> None:
    """Something to do for every part: silence, loads, a placement to end, hours to count, an old report."""
    pools, at = collector.pools, collector.clock()
    if not number:
        await pools.add(serving_facts(), serving_facts("gpu-2"))
    await pools.report("gpu-2")
    for _ in range(3):
        await pools.rows(LOADED, vram=40, at=at, seconds=100 + number, outcome="loaded")
    until = at + timedelta(minutes=1)
    await pools.rows(HOLD, tenant=TENANT, model=f"model-{number}", at=at, until=until)
    await pools.rows(
        "INSERT INTO endpoint_reports VALUES ('acme', gen_random_uuid(), 'platform', 'gpu-1', 'down', :at)",
        at=at - timedelta(days=1),
    )
    collector.clock.move(EVENT_SECONDS)


async def test_a_process_may_die_at_every_point(collector: Collector) -> None:
    """Whatever was done is kept, and the next run does the rest: as if nobody had died."""
    pools = collector.pools
    deaths = 0
    for moment in range(1, 100):
        await eventful(collector, moment - 1)
        dying: Any = FusedEngine(pools.engine, Fuse(moment))
        try:
            await collector.run(collector.hands(dying))
        except Killed:
            deaths += 1
            await collector.run()
        assert await collector.seconds() == 2 * EVENT_SECONDS * moment
        assert await pools.serving("stale_since", "gpu-2") is not None
        assert await pools.models() == {}
        assert await pools.serving("learned_cold_start_seconds") is not None
        assert await pools.rows("SELECT count(*) FROM endpoint_reports") == [(0,)]
        if deaths < moment:
            break
    assert deaths == 16
    assert await pools.rows("SELECT DISTINCT state FROM model_placements") == [("expired",)]


async def test_a_part_that_fails_stops_no_other_and_is_told(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    await eventful(collector)

    async def broken(*_: Any) -> Any:
        raise RuntimeError("a fault of ours")

    with monkeypatch.context() as patched:
        patched.setattr(model_loads, "recent", broken)
        patched.setattr(model_placements, "expire", broken)
        with pytest.raises(RuntimeError, match="a fault of ours"):
            await collector.run()
    assert await collector.seconds() == 2 * EVENT_SECONDS
    assert await collector.pools.serving("stale_since") is not None
    done = await collector.run()
    assert (done.learned, done.expired, done.stale) == (1, 1, ())


async def test_a_database_that_is_away_is_told_and_costs_nothing(collector: Collector) -> None:
    await eventful(collector)
    async with opened("postgresql://nobody@127.0.0.1:1/none") as away:
        with pytest.raises(OperationalError):
            await collector.run(collector.hands(away))
    assert (await collector.run()).hours > 0


@pytest.mark.parametrize("problem", [UsageUnavailable("away"), TimeoutError(), ZeroDivisionError("a fault")])
async def test_a_usage_service_that_is_away_only_degrades_itself(
    collector: Collector, problem: Exception
) -> None:
    """Everything else is done, and what it missed is told once it listens."""
    await collector.pools.add(serving_facts(), serving_facts(tenant_id=OTHER))
    ledger = Ledger()
    hands = collector.hands(sink=ledger)
    collector.clock.move(60)
    await collector.run(hands)
    ledger.down = problem
    for _ in range(3):
        collector.clock.move(3600)
        assert (await collector.run(hands)).hours > 0
    assert sum(ledger.told.values()) == 2 * 60
    ledger.down = None
    await collector.run(hands)
    assert sum(ledger.told.values()) == await collector.seconds() == 2 * (60 + 3 * 3600)
    told = ledger.calls
    await collector.run(hands)
    assert ledger.calls == told, "what was told is not told again while nothing changed"


async def test_a_new_process_tells_the_usage_service_what_the_old_one_may_not_have(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "SENT_AT_ONCE", 3)
    await collector.pools.add(*(serving_facts(f"gpu-{number}") for number in range(4)))
    collector.clock.move(3600)
    await collector.run()
    ledger = Ledger()
    await collector.run(collector.hands(sink=ledger))
    assert sum(ledger.told.values()) == 4 * 3600
    assert len(ledger.told) == 4 * 1


async def test_the_workers_role_may_do_all_of_it(collector: Collector, dsn: str) -> None:
    await eventful(collector)
    async with opened(dsn, role=SERVICE_ROLE) as service:
        done = await collector.run(collector.hands(service))
    assert (done.learned, done.expired, len(done.stale)) == (1, 1, 2)
    assert done.hours > 0

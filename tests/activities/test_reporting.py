"""Reports of agents: the newest counts, each by itself, for own pools only, and never more than fits."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa

from activities import reporting
from activities.reporting import Accepted, report_for_tenants, report_utilization
from domain.pool import PoolState, SecurityBoundary
from domain.serving.utilization import ReportRefusal
from store.engine import Engine, of_tenant
from store.roles import TENANT_ROLE
from tests.database import opened
from tests.estates import START, TENANT, Clock
from tests.serving_pools import ServingPools, listed, serving_facts, utilization

OTHER = "acme"
HOLD = """
    INSERT INTO model_placements (tenant_id, placement_id, deployment_id, model, requirements, candidates,
      outcome, pool_tenant_id, pool_id, vram_gb, state, decided_at, expires_at)
    VALUES (:tenant, gen_random_uuid(), 'chat', :model, '{}', '{}', 'placed', 'platform', 'gpu-1', :vram,
      'held', :at, CAST(:at AS timestamptz) + interval '10 minutes')
"""


@pytest.fixture
def pools(engine: Engine, clock: Clock) -> ServingPools:
    return ServingPools(engine, clock)


def reasons(done: Accepted) -> list[tuple[str, ReportRefusal]]:
    return [(one.pool_id, one.reason) for one in done.refused]


async def test_a_report_is_what_is_known_of_a_pool(pools: ServingPools) -> None:
    await pools.add(serving_facts())
    assert await pools.report(share="0.75", queue_depth=9) == Accepted(written=1)
    assert await pools.capacity() == (Decimal("0.7500"), 9, START)


async def test_an_older_report_changes_nothing(pools: ServingPools) -> None:
    await pools.add(serving_facts())
    await pools.report(share="0.75")
    pools.clock.move(30)
    for seconds in (0, -1, -600):
        done = await pools.report(at=START + timedelta(seconds=seconds), share="0.1")
        assert done == Accepted(older=1)
    assert (await pools.capacity())[0] == Decimal("0.7500")


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_the_order_the_newest_remains(pools: ServingPools, seed: int) -> None:
    """Twenty reports from many senders at once, some twice: as if they had come in order."""
    await pools.add(serving_facts())
    pools.clock.move(100)
    rng = random.Random(seed)
    told = [utilization("gpu-1", START + timedelta(seconds=n), queue_depth=n) for n in range(20)]
    some = [rng.sample(told, 5) for _ in range(8)] + [[told[19]]]
    done = await asyncio.gather(
        *(report_utilization(pools.engine, TENANT, each, pools.clock()) for each in some)
    )
    assert (await pools.capacity())[1:] == (19, START + timedelta(seconds=19))
    assert sum(one.written + one.older for one in done) == 8 * 5 + 1


async def test_a_report_from_the_future_is_refused_and_one_slightly_ahead_counts_from_now(
    pools: ServingPools,
) -> None:
    await pools.add(serving_facts())
    refused = await pools.report(at=START + timedelta(seconds=61))
    assert reasons(refused) == [("gpu-1", ReportRefusal.FUTURE)]
    assert (await pools.capacity())[2] is None
    await pools.report(at=START + timedelta(seconds=60))
    assert (await pools.capacity())[2] == START
    pools.clock.move(1)
    assert (await pools.report()).written == 1, "a clock that was put right waits for nothing"


async def test_each_report_of_a_batch_is_judged_by_itself(pools: ServingPools) -> None:
    await pools.add(serving_facts(), serving_facts("gpu-2"))
    await pools.add(serving_facts("gone"), state=PoolState.RETIRED)
    told = [
        utilization("gpu-1", START),
        utilization("nowhere", START),
        utilization("gone", START),
        utilization("gpu-2", START + timedelta(hours=1)),
        utilization("gpu-2", START),
        utilization("gpu-1", START - timedelta(seconds=5)),
    ]
    done = await report_utilization(pools.engine, TENANT, told, START)
    assert (done.written, done.older) == (2, 1)
    assert sorted(reasons(done)) == [
        ("gone", ReportRefusal.RETIRED),
        ("gpu-2", ReportRefusal.FUTURE),
        ("nowhere", ReportRefusal.UNKNOWN_POOL),
    ]
    assert all(one.pool_id in one.text or "ahead" in one.text for one in done.refused)


@pytest.mark.parametrize("as_role", [None, TENANT_ROLE])
async def test_a_tenant_reports_its_own_pools_only(
    pools: ServingPools, dsn: str, as_role: str | None
) -> None:
    """Also a pool that it may read and place on, and also one of the same id: by rule and by role."""
    await pools.add(serving_facts(), serving_facts("private", boundary=SecurityBoundary.PRIVATE))
    await pools.add(serving_facts(tenant_id=OTHER))
    async with opened(dsn, role=as_role) as own:
        engine = of_tenant(own, OTHER) if as_role else own
        own_pool = utilization("gpu-1", START, models=(listed("llama", START),))
        done = await report_utilization(engine, OTHER, [own_pool, utilization("private", START)], START)
    assert await pools.models(tenant_id=OTHER) == {"llama": "loading"}
    assert (done.written, reasons(done)) == (1, [("private", ReportRefusal.UNKNOWN_POOL)])
    assert (await pools.capacity(tenant_id=OTHER))[2] == START
    assert (await pools.capacity())[2] is None


async def test_reports_of_many_tenants_keep_apart(pools: ServingPools) -> None:
    await pools.add(serving_facts(), serving_facts(tenant_id=OTHER), serving_facts("only-ours"))
    told = [
        (TENANT, utilization("gpu-1", START, share="0.1")),
        (OTHER, utilization("gpu-1", START, share="0.9")),
        (OTHER, utilization("only-ours", START)),
    ]
    done = await report_for_tenants(pools.engine, told, START)
    assert (done.written, [one[:3] for one in done.refused]) == (
        2,
        [(OTHER, "only-ours", ReportRefusal.UNKNOWN_POOL)],
    )
    assert (await pools.capacity())[0] == Decimal("0.1000")
    assert (await pools.capacity(tenant_id=OTHER))[0] == Decimal("0.9000")


async def test_many_reports_are_written_in_few_statements(pools: ServingPools) -> None:
    """Two hundred pools with a model each: their cost is a handful of statements, not hundreds."""
    await pools.add(*(serving_facts(f"gpu-{number:03d}") for number in range(200)))
    models = (listed("llama", START),)
    await report_utilization(
        pools.engine, TENANT, [utilization(f"gpu-{n:03d}", START, models=models) for n in range(200)], START
    )
    pools.clock.move(10)
    sent: list[str] = []

    def note(*args: Any) -> None:
        sent.append(str(args[2]))

    sa.event.listen(pools.engine.sync_engine, "before_cursor_execute", note)
    told = [utilization(f"gpu-{n:03d}", pools.clock(), models=models) for n in range(200)]
    done = await report_utilization(pools.engine, TENANT, told, pools.clock())
    assert done.written == 200
    assert len(sent) <= 4, sent


async def test_more_reports_than_a_batch_are_all_taken(
    pools: ServingPools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporting, "BATCH", 3)
    await pools.add(*(serving_facts(f"gpu-{number}") for number in range(8)))
    told = [utilization(f"gpu-{number}", START) for number in range(8)]
    assert (await report_utilization(pools.engine, TENANT, told, START)).written == 8


async def test_a_report_ends_staleness_at_once(pools: ServingPools) -> None:
    await pools.add(serving_facts(), serving_facts("gpu-2"))
    await pools.rows("UPDATE pool_serving SET stale_since = :at", at=START)
    await pools.report()
    assert await pools.serving("stale_since") is None
    assert await pools.serving("stale_since", "gpu-2") == START
    await pools.report("gpu-2", at=START - timedelta(hours=2))
    assert await pools.serving("stale_since", "gpu-2") == START, "news of two hours ago is no sign of life"


async def test_listed_models_are_noted_and_none_is_taken_away(pools: ServingPools) -> None:
    await pools.add(serving_facts())
    await pools.rows(HOLD, tenant=TENANT, model="llama", vram=40, at=START)
    pools.clock.move(60)
    used = START + timedelta(seconds=50)
    await pools.report(models=(listed("llama:latest", used),))
    assert await pools.models() == {"llama": "promised"}, "only the serving port says what is loaded"
    assert await pools.rows("SELECT last_used_at, listed_at FROM cached_models") == [(used, pools.clock())]
    pools.clock.move(60)
    await pools.report()
    assert await pools.models() == {"llama": "promised"}


async def test_a_last_use_never_goes_back_nor_into_the_future(pools: ServingPools) -> None:
    await pools.add(serving_facts())
    await pools.report(models=(listed("llama", START),))
    for seconds, expected in ((-500, 0), (+500, 10)):
        pools.clock.move(10)
        await pools.report(models=(listed("llama", START + timedelta(seconds=seconds)),))
        used = (await pools.rows("SELECT last_used_at FROM cached_models"))[0][0]
        assert START + timedelta(seconds=expected) <= used <= pools.clock()


async def test_a_model_that_only_an_agent_lists_has_memory_until_the_endpoint_says_more(
    pools: ServingPools,
) -> None:
    await pools.add(serving_facts())
    await pools.report(models=(listed("llama", START), listed("gemma", START, 20)))
    assert await pools.models() == {"gemma": "loading", "llama": "loading"}
    assert await pools.serving("committed_vram_gb") == 60
    assert await pools.rows("SELECT count(*) FROM outbox") == [(0,)]
    pools.clock.move(10)
    assert (await pools.settle("llama")).found == ("llama",)
    assert await pools.models() == {"gemma": "loading", "llama": "loaded"}, "it may be on its way"
    (event,) = await pools.rows("SELECT payload FROM outbox WHERE topic LIKE '%model-warmed'")
    assert event[0]["model"] == "llama"
    pools.clock.move(60)
    await pools.report(models=(listed("llama", START),))
    assert (await pools.settle("llama")).lost == ("gemma",)
    assert await pools.models() == {"llama": "loaded"}
    assert await pools.rows("SELECT count(*) FROM outbox") == [(1,)], "what was never warm is not evicted"


async def test_found_models_never_exceed_the_memory_and_keep_no_report_out(pools: ServingPools) -> None:
    await pools.add(serving_facts(), serving_facts("gpu-2"))
    await pools.rows(HOLD, tenant=TENANT, model="mistral", vram=50, at=START)
    told = [
        utilization("gpu-1", START, models=(listed("huge", START, 31), listed("small", START, 30))),
        utilization("gpu-2", START, models=(listed("huge", START, 31),)),
    ]
    done = await report_utilization(pools.engine, TENANT, told, START)
    assert (done.written, done.unfit) == (2, ((TENANT, "gpu-1", "huge"),))
    assert await pools.models() == {"mistral": "promised", "small": "loading"}
    assert await pools.serving("committed_vram_gb") == 80
    assert await pools.models("gpu-2") == {"huge": "loading"}


async def test_a_pool_that_drains_gets_no_model_back(pools: ServingPools) -> None:
    await pools.add(serving_facts(), state=PoolState.DRAINING)
    done = await pools.report(models=(listed("llama", START),))
    assert (done.written, await pools.models()) == (1, {})


async def test_a_pool_without_accelerator_memory_is_reported_without_its_models(pools: ServingPools) -> None:
    await pools.add(serving_facts(vram_gb=0))
    done = await pools.report(share="0.25", models=(listed("llama", START),))
    assert (done.written, await pools.models()) == (1, {})


async def test_reports_and_placements_at_once_never_overbook_nor_deadlock(pools: ServingPools) -> None:
    """Placements take memory while agents list models that nobody loaded, on the same pools."""
    await pools.add(serving_facts())

    async def place(number: int) -> None:
        with suppress(sa.exc.IntegrityError):  # no memory is left
            await pools.rows(HOLD, tenant=TENANT, model=f"model-{number % 5}", vram=15, at=START)

    async def report(number: int) -> None:
        names = [f"model-{(number + step) % 7}" for step in range(3)]
        at = START + timedelta(milliseconds=number)
        models = tuple(listed(name, START, 15) for name in names)
        await pools.report(at=at, models=models)

    await asyncio.gather(*(work(number) for number in range(40) for work in (place, report)))
    held = await pools.rows("SELECT coalesce(sum(vram_gb), 0) FROM cached_models")
    assert held[0][0] == await pools.serving("committed_vram_gb") <= 80

"""What goes on beside the queue of serving pools: reported endpoints are probed at once, and only those."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from activities.pool_gauges import PoolGauges
from activities.probing import ProbingActivities
from activities.secrets.ports import SecretsUnavailable
from store.engine import Engine
from tests.activities.serving.moody_endpoint import Mood, MoodyEndpoint
from tests.activities.test_probing import OTHER, TERMS, Prober
from tests.database import opened
from tests.estates import Clock
from tests.workers.post_office import until
from workers import serving_chores
from workers.serving_chores import FAILED, ReportedProbes, show_pools


@pytest_asyncio.fixture
async def prober(engine: Engine, clock: Clock) -> AsyncIterator[Prober]:
    """Two healthy pools of one endpoint."""
    endpoint = MoodyEndpoint()
    await endpoint.open()
    opened = Prober(engine, clock, endpoint)
    await opened.add("gpu-1", "gpu-2")
    await opened.probes(Mood.WELL, 2)
    clock.move(1)
    yield opened
    await endpoint.close()


def reported(prober: Prober) -> ReportedProbes:
    engine, now = prober.pools.engine, prober.clock
    probing = ProbingActivities(engine, prober.serving, prober.vault, terms=TERMS, now=now)
    return ReportedProbes(engine, probing, terms=TERMS, now=now)


async def test_what_was_reported_is_probed_once_and_nothing_else(prober: Prober) -> None:
    chore = reported(prober)
    assert await chore.look() == 0
    await prober.report(OTHER)
    asked = prober.endpoint.asked
    prober.clock.move(1)
    assert await chore.look() == 1
    assert prober.endpoint.asked == asked + 1
    assert await reported(prober).look() == 0, "it was answered after the report"


async def test_a_report_that_is_true_degrades_the_pool_within_one_look(prober: Prober) -> None:
    prober.endpoint.mood = Mood.FAILING
    await prober.report(OTHER)
    prober.clock.move(1)
    await reported(prober).look()
    assert (await prober.health(), await prober.health("gpu-2")) == ("degraded", "healthy")


async def test_an_endpoint_that_cannot_be_asked_is_not_asked_again_at_once(prober: Prober) -> None:
    chore = reported(prober)
    prober.vault.failing = lambda _: SecretsUnavailable("away")
    await prober.report(OTHER)
    prober.clock.move(1)
    assert [await chore.look() for _ in range(3)] == [1, 0, 0]


async def test_an_old_report_asks_for_nothing(prober: Prober) -> None:
    await prober.report(OTHER)
    prober.clock.move(61)
    assert await reported(prober).look() == 0


async def test_a_database_that_is_away_is_one_line_and_no_end(
    prober: Prober, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_chores, "LOOK_SECONDS", 0.02)
    failures = {chore: FAILED.labels(chore)._value for chore in ("show_pools", "probe_reported")}
    before = {chore: value.get() for chore, value in failures.items()}
    stop = asyncio.Event()

    async def all_failed() -> bool:
        return all(value.get() >= before[chore] + 2 for chore, value in failures.items())

    async with opened("postgresql://nobody@127.0.0.1:1/none") as away:
        chore = reported(prober)
        chore._engine = away
        with capture_logs() as said:
            tasks = [
                asyncio.create_task(chore.run(stop)),
                asyncio.create_task(show_pools(PoolGauges(away), stop, 0.02)),
            ]
            await until(all_failed)
            stop.set()
            await asyncio.wait_for(asyncio.gather(*tasks), 20)
    lines = [one["chore"] for one in said if one["event"] == "serving_chore_failed"]
    assert sorted(lines) == ["probe_reported", "show_pools"]

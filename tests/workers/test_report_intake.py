"""Reports over NATS: newest first, nonsense thrown away, and nobody stopped by what is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from decimal import Decimal
from typing import Any

import nats
import pytest
from structlog.testing import capture_logs

from lab.stack import Stack
from lab.stack.nats import taken_in
from store import pool_reports
from tests.estates import START, TENANT, Estate
from tests.serving_pools import ServingPools, serving_facts
from tests.workers.post_office import PATIENCE_SECONDS, until
from wire.reports import letter, report_subject
from workers import report_intake
from workers.report_intake import ReportIntake

OTHER = "acme.eu"


class Agents:
    """Agents of pools that report over one NATS server, and an intake that writes what they say."""

    def __init__(self, pools: ServingPools, nats_url: str) -> None:
        self.pools = pools
        self.nats_url = nats_url

    @asynccontextmanager
    async def intake(self) -> AsyncIterator[ReportIntake]:
        stop = asyncio.Event()
        intake = ReportIntake(self.pools.engine, self.nats_url, now=self.pools.clock)
        task = asyncio.create_task(intake.run(stop))
        try:
            yield intake
        finally:
            stop.set()
            done, _ = await asyncio.wait([task], timeout=PATIENCE_SECONDS)
            assert done, "the intake does not stop"
            task.result()

    async def say(self, *letters: tuple[str, bytes]) -> None:
        """Publish on subjects; returns when the server has all of it."""
        client = await nats.connect(self.nats_url)
        for subject, body in letters:
            await client.publish(subject, body)
        await taken_in(client)
        await client.close()

    async def say_until_heard(self, pool_id: str = "gpu-1", tenant_id: str = TENANT) -> None:
        """Report again and again, as an agent does, until the pool has a new report."""
        before = (await self.pools.capacity(pool_id, tenant_id))[2]

        async def heard() -> bool:
            self.pools.clock.move(1)
            await self.say(told(pool_id, tenant_id, seconds=self.seconds))
            return bool((await self.pools.capacity(pool_id, tenant_id))[2] != before)

        await until(heard)

    @property
    def seconds(self) -> float:
        return (self.pools.clock() - START).total_seconds()


def told(
    pool_id: str = "gpu-1", tenant_id: str = TENANT, *, seconds: float = 0, share: str = "0.5", depth: int = 1
) -> tuple[str, bytes]:
    body = letter(
        utilization=Decimal(share), queue_depth=depth, reported_at=START + timedelta(seconds=seconds)
    )
    return report_subject(tenant_id, pool_id), body


def refused(reason: str) -> float:
    return float(report_intake.REFUSED.labels(reason)._value.get())


@pytest.fixture
def agents(estate: Estate, own_stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Agents:
    monkeypatch.setattr(report_intake, "WRITE_EVERY_SECONDS", 0.05)
    monkeypatch.setattr(report_intake, "TROUBLE_SECONDS", 0.1)
    return Agents(ServingPools(estate.engine, estate.clock), own_stack.nats_url)


async def test_what_agents_of_all_tenants_say_is_written(agents: Agents) -> None:
    await agents.pools.add(serving_facts(), serving_facts(tenant_id=OTHER))
    async with agents.intake():
        await agents.say_until_heard()
        await agents.say_until_heard(tenant_id=OTHER)
    assert (await agents.pools.capacity())[0] == Decimal("0.5000")


async def test_only_the_newest_letter_of_a_pool_is_kept(agents: Agents) -> None:
    """A flood from one sender is one row to write."""
    await agents.pools.add(serving_facts(), serving_facts("gpu-2"))
    async with agents.intake() as intake:
        await agents.say_until_heard()
        agents.pools.clock.move(1000)
        flood = [told(seconds=100 + number / 10, depth=number) for number in range(2000)]
        await agents.say(*flood, told("gpu-2", seconds=5))

        async def last() -> bool:
            return bool((await agents.pools.capacity())[1] == 1999)

        await until(last)
        assert len(intake._waiting) <= 2
    assert (await agents.pools.capacity("gpu-2"))[2] == START + timedelta(seconds=5)


async def test_nonsense_is_counted_said_once_and_stops_nobody(agents: Agents) -> None:
    await agents.pools.add(serving_facts())
    before = {reason: refused(reason) for reason in ("subject", "body", "too_large")}
    with capture_logs() as said:
        async with agents.intake():
            await agents.say_until_heard()
            bad = [
                ("pool-reports.platform.NOT-A-POOL", b"{}"),
                ("pool-reports.platform.gpu-7", b"\xff\x00 no json"),
                ("pool-reports.platform.gpu-8", b'{"utilization": 7}'),
                ("pool-reports.platform.gpu-9", b"[" * 30_000),
                ("pool-reports.platform.gpu-6", b" " * 70_000),
                (told()[0].replace("gpu-1", "gpu-5"), told()[1].replace(b'"models":[]', MODEL_TWICE)),
            ]
            for _ in range(3):
                await agents.say(*bad)
                await agents.say_until_heard()
    after = {reason: refused(reason) for reason in before}
    assert all(after[reason] >= before[reason] + 1 for reason in before)
    lines = [one["reason"] for one in said if one["event"] == "report_letters_refused"]
    assert sorted(lines) == ["body", "subject", "too_large"], "each reason is said once in a while"


MODEL_TWICE = (
    b'"models":[{"model":"llama","vramGb":40,"lastUsedAt":"2030-01-01T12:00:00Z"},'
    b'{"model":"llama","vramGb":40,"lastUsedAt":"2030-01-01T12:00:00Z"}]'
)


async def test_unknown_pools_are_refused_and_the_others_go_through(agents: Agents) -> None:
    await agents.pools.add(serving_facts())
    with capture_logs() as said:
        async with agents.intake():
            await agents.say(*(told(f"nowhere-{number}") for number in range(50)))
            await agents.say_until_heard()
            await agents.say(*(told(f"nowhere-{number}") for number in range(50)))
            await agents.say_until_heard()
    lines = [one for one in said if one["event"] == "reports_refused"]
    assert [one["reason"] for one in lines] == ["unknown_pool"]


async def test_made_up_names_are_bounded(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_intake, "MOST_POOLS", 10)
    monkeypatch.setattr(report_intake, "WRITE_EVERY_SECONDS", 0.5)
    await agents.pools.add(serving_facts())
    before = refused("too_many")
    async with agents.intake() as intake:
        await agents.say_until_heard()

        async def too_many() -> bool:
            await agents.say(*(told(f"made-up-{number}") for number in range(500)))
            assert len(intake._waiting) <= 10
            return refused("too_many") > before

        await until(too_many)
        await agents.say_until_heard()


async def test_a_database_that_is_away_only_delays_and_nothing_piles_up(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    await agents.pools.add(serving_facts(), serving_facts("gpu-2"))
    away = True
    real = pool_reports.write

    async def write(*args: Any) -> Any:
        if away:
            raise OSError("the database is away")
        return await real(*args)

    monkeypatch.setattr(pool_reports, "write", write)
    failures = report_intake.FAILED._value.get()
    with capture_logs() as said:
        async with agents.intake() as intake:

            async def failed_twice() -> bool:
                await agents.say(told(), told("gpu-2"))
                return bool(report_intake.FAILED._value.get() >= failures + 2)

            await until(failed_twice)
            assert len(intake._waiting) <= 2
            away = False

            async def both() -> bool:
                known = [await agents.pools.capacity(pool) for pool in ("gpu-1", "gpu-2")]
                return all(one[2] is not None for one in known)

            await until(both)
            await agents.say_until_heard()
    assert [one["event"] for one in said if "intake" in one["event"]] == [
        "report_intake_failed",
        "report_intake_recovered",
    ]


async def test_connections_that_die_with_the_database_are_replaced(agents: Agents) -> None:
    await agents.pools.add(serving_facts())
    async with agents.intake():
        for _ in range(3):
            await agents.say_until_heard()
            async with agents.pools.engine.connect() as connection:
                await connection.exec_driver_sql(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
        await agents.say_until_heard()


async def test_a_nats_server_that_was_restarted_is_heard_again(agents: Agents, own_stack: Stack) -> None:
    await agents.pools.add(serving_facts())
    async with agents.intake():
        await agents.say_until_heard()
        for _ in range(2):
            await asyncio.to_thread(own_stack.kill_one, "nats")
            await asyncio.to_thread(own_stack.start_one, "nats")
            await agents.say_until_heard()


async def test_without_nats_it_waits_quietly_and_stops_when_told(agents: Agents) -> None:
    before = report_intake.FAILED._value.get()

    async def failed_twice() -> bool:
        return bool(report_intake.FAILED._value.get() >= before + 2)

    with capture_logs() as said:
        async with Agents(agents.pools, "nats://127.0.0.1:1").intake():
            await until(failed_twice)
    assert [one["event"] for one in said].count("report_intake_failed") == 1


async def test_two_intakes_share_the_letters(agents: Agents) -> None:
    await agents.pools.add(serving_facts())
    taken = report_intake.LETTERS._value
    async with agents.intake(), agents.intake():
        await agents.say_until_heard()
        await asyncio.sleep(0.2)
        before = taken.get()
        await agents.say(*(told(f"nowhere-{number}") for number in range(100)))

        async def all_taken() -> bool:
            return bool(taken.get() >= before + 100)

        await until(all_taken)
        await asyncio.sleep(0.2)
        assert taken.get() == before + 100

"""Scenes of launches and deletions at a provider that fails: each answers what was wrong."""

from __future__ import annotations

import asyncio
import time
from decimal import Decimal
from typing import Any

from temporalio.testing import ActivityEnvironment

from domain.acquisition import AcquisitionTerms
from domain.reconcile import FleetPhase
from lab.chaos import judge
from lab.chaos.killing import Fuse
from lab.chaos.lane import REGION, Lane
from lab.chaos.process import Process
from lab.chaos.terms import Terms
from lab.cloud.faults import FaultKind, FaultRule
from lab.cloud.records import Status
from lab.cloud.wire import Act, WireKind
from tests.faults.fleet import PATIENCE_SECONDS, QUICK, fault, fleet, placed

QUOTA_SECONDS, FEWER_SECONDS, LOOK_SECONDS = 12.0, 15.0, 10.0
# So often a launch looks for what does not show.
LOOKS = 8


async def fewer(lane: Lane) -> list[str]:
    """A batch comes with one server less than it was asked for: what is there goes to its own slots."""
    async with fleet(lane) as own:
        await own.first.license()
        missing = FaultRule(kind=FaultKind.NOT_CREATED, method="POST", region=REGION, times=1, count=1)
        await asyncio.to_thread(lane.cloud.admin.add_fault, missing)
        await own.within(FEWER_SECONDS, own.first.place(6))
        await asyncio.to_thread(lane.cloud.admin.clear_faults)
        own.must(len(await own.alive()) == 6, f"{len(await own.alive())} servers of 6")
        await own.at_rest()
        return own.wrong


async def slow_to_show(lane: Lane) -> list[str]:
    """Servers take their time to show, within what a launch waits: nobody asks for them again."""
    acquisition = AcquisitionTerms(
        settle_seconds=30, build_patience_seconds=60, delete_patience_seconds=1, max_attempts=4
    )
    async with fleet(lane, Terms(acquisition=acquisition)) as own:
        await own.first.license()
        late = await own.arm(fault(Act.CREATE, WireKind.CARRIED_OUT_LATE, times=None, delay_seconds=60))
        await own.first.claim(6)
        await own.first.decide()
        batches = await own.rows("SELECT count(DISTINCT batch_key) FROM instances")
        launching = asyncio.create_task(own.first.acquire())
        lane.cloud.admin.clear_requests()
        await asyncio.to_thread(_until_looked, lane)
        planned = batches[0][0]
        own.must(late.fired == planned, f"{late.fired} creates for {planned} batches")
        await own.disarm()
        await own.release_late()
        await launching
        own.must(len(await own.alive()) == 6, f"{len(await own.alive())} servers of 6")
        return own.wrong


async def failed_pages(lane: Lane) -> list[str]:
    """For longer than a launch waits for its servers a later page of every list fails."""
    async with fleet(lane) as own:
        await own.first.license()
        await own.arm(fault(Act.LIST, WireKind.FAILED_PAGE, times=None))
        placing = asyncio.create_task(own.first.place(9))
        await asyncio.sleep(3 * own.lane.terms.acquisition.settle_seconds)
        await own.disarm()
        await placing
        await own.cycles_until(FleetPhase.NORMAL)
        creates = [deed for deed in await own.deeds() if deed.what == "create"]
        own.must(len(creates) == 9, f"{len(creates)} servers were made for 9 units")
        await own.at_rest()
        return own.wrong


async def two_workers(lane: Lane) -> list[str]:
    """Two workers launch for one workload: both have looked before either asks."""
    async with fleet(lane, Terms()) as own:
        await own.first.license()
        await own.first.claim(6)
        await own.first.decide()
        both = [own.first.new_process(Fuse()) for _ in range(2)]
        met = asyncio.Barrier(2)
        for process in both:
            _wait_after_first_look(process, met)
        request = own.first.of_region()
        await asyncio.gather(
            *(ActivityEnvironment().run(one.acquiring.acquire_region, request) for one in both)
        )
        await own.cycles_until(FleetPhase.NORMAL)
        creates = [deed for deed in await own.deeds() if deed.what == "create"]
        own.must(len(creates) == 6, f"{len(creates)} servers were made for 6 units")
        return own.wrong


def _wait_after_first_look(process: Process, met: asyncio.Barrier) -> None:
    look, looked = process.acquiring._look, False

    async def waiting(*asked: Any, **named: Any) -> Any:
        nonlocal looked
        seen = await look(*asked, **named)
        if not looked:
            looked = True
            await met.wait()
        return seen

    process.acquiring._look = waiting  # type: ignore[method-assign]


async def tight_budget(lane: Lane) -> list[str]:
    """Few calls are allowed, and more are wanted."""
    terms = Terms(burst=4, calls_per_second=Decimal(6))
    async with fleet(lane, terms) as own:
        began = time.monotonic()
        await own.first.license()
        for units in (6, 10, 3):
            await own.first.place(units)
        used = await asyncio.to_thread(judge.rate_used, lane, began)
        own.must(used > 0.5, f"only {used:.2f} of the budget was wanted")
        own.must(used <= 1, f"{used:.2f} times the budget was used")
        return own.wrong


async def over_quota(lane: Lane) -> list[str]:
    """The quota is used up: it is asked once, and not again and again."""
    async with fleet(lane, Terms()) as own:
        await own.first.license()
        limits = {"instances": len(own.foreign)}
        await asyncio.to_thread(lane.cloud.admin.set_quota, REGION, **limits)
        lane.cloud.admin.clear_requests()
        await own.within(QUOTA_SECONDS, own.first.place(6))
        asked = await asyncio.to_thread(_asked, lane, "POST", "/servers")
        own.must(asked == 1, f"the provider was asked {asked} times for what the quota refused")
        await asyncio.to_thread(lane.cloud.admin.set_quota, REGION, instances=20_000)
        return own.wrong


async def errored_quota(lane: Lane) -> list[str]:
    """Servers in ERROR hold the quota: they have to go before the rest can be launched."""
    async with fleet(lane, Terms()) as own:
        await own.first.license()
        room = len(own.foreign) + 6
        await asyncio.to_thread(lane.cloud.admin.set_quota, REGION, instances=room)
        lane.cloud.admin.add_fault(
            FaultRule(kind=FaultKind.BUILD_ERROR, method="POST", region=REGION, times=3)
        )
        await own.first.place(6)
        lane.cloud.admin.clear_faults()
        for _ in range(8):
            await own.rows("UPDATE provider_budgets SET quota_until = NULL, quota_refusals = 0")
            await own.cycles_until(FleetPhase.NORMAL)
            await own.first.place()
            if len(await own.alive()) == 6:
                break
            await asyncio.sleep(0.3)
        alive = await own.alive()
        own.must(len(alive) == 6, f"{len(alive)} servers of 6")
        own.must(all(one.status is Status.ACTIVE for one in alive), "servers in ERROR were left")
        await asyncio.to_thread(lane.cloud.admin.set_quota, REGION, instances=20_000)
        await own.at_rest()
        return own.wrong


async def late_for_good(lane: Lane) -> list[str]:
    """Servers turn up when their placement has long ended without them."""
    acquisition = AcquisitionTerms(
        settle_seconds=0.2, build_patience_seconds=1, delete_patience_seconds=1, max_attempts=1
    )
    often = QUICK.model_copy(update={"pace_window_seconds": 0.1})
    async with fleet(lane, Terms(acquisition=acquisition, reconcile=often)) as own:
        await own.first.license()
        late = await own.arm(fault(Act.CREATE, WireKind.CARRIED_OUT_LATE, times=None, delay_seconds=60))
        await own.first.place(3)
        own.must(late.fired > 0, "nothing came late")
        await own.disarm()
        own.must(not await own.alive(), "servers were there before the placement ended")
        await own.release_late()
        await own.first.place(2)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(await own.alive()) > 2 and time.monotonic() < deadline:
            await own.cycles_until(FleetPhase.NORMAL)
            await own.first.place()
        own.must(len(await own.alive()) == 2, f"{len(await own.alive())} servers of 2")
        await own.at_rest()
        return own.wrong


async def untagged(lane: Lane) -> list[str]:
    """Servers that are to be given back lose their tags first: no list of ours shows them any more."""
    async with fleet(lane) as own:
        await placed(own, 6)
        await own.lose_tags(6)
        await own.first.place(2)
        await own.cycles_until(FleetPhase.NORMAL)
        own.must(len(await own.alive()) == 2, f"{len(await own.alive())} servers of 2")
        await own.at_rest()
        return own.wrong


async def stuck_delete(lane: Lane) -> list[str]:
    """Deletions are accepted and hang: their slots stay booked, and end when the servers do."""
    acquisition = AcquisitionTerms(
        settle_seconds=0.4, build_patience_seconds=1, delete_patience_seconds=0.3, max_attempts=4
    )
    async with fleet(lane, Terms(acquisition=acquisition)) as own:
        await placed(own, 6)
        stuck = await own.arm(fault(Act.DELETE, WireKind.CARRIED_OUT_LATE, times=None, delay_seconds=2))
        await own.first.place(2)
        booked = await own.rows("SELECT count(*) FROM instances WHERE state = 'releasing'")
        await own.disarm()
        own.must(stuck.fired > 0, "no deletion hung")
        own.must(booked[0][0] > 0, "slots ended before their servers did")
        for _ in range(12):
            if await own.rows("SELECT 1 FROM instances WHERE state = 'releasing'") == []:
                break
            await asyncio.sleep(0.3)
            await own.first.place()
        await own.cycles_until(FleetPhase.NORMAL)
        own.must(len(await own.alive()) == 2, f"{len(await own.alive())} servers of 2")
        await own.at_rest()
        return own.wrong


def _asked(lane: Lane, method: str, ending: str) -> int:
    return lane.cloud.call(
        lambda cloud: sum(
            each.method == method and each.path.endswith(ending) for each in cloud.requests.recent(10_000)
        )
    )


def _until_looked(lane: Lane) -> None:
    """Until the launch has looked often enough to be tempted, or as long as that may take."""
    deadline = time.monotonic() + LOOK_SECONDS
    while _asked(lane, "GET", "/servers/detail") < LOOKS and time.monotonic() < deadline:
        time.sleep(0.05)

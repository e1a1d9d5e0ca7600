"""Single scenes with the real hands, each answering what was wrong; nothing when all went well."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal
from typing import Any

from temporalio.testing import ActivityEnvironment

from domain.acquisition import AcquisitionTerms
from domain.contract import Tier
from domain.reconcile import FleetPhase
from lab.chaos import judge
from lab.chaos.judge import most_within
from lab.chaos.killing import Fuse
from lab.chaos.lane import REGION, Lane
from lab.chaos.process import Process
from lab.chaos.promises import Promises
from lab.chaos.terms import Terms
from lab.cloud.faults import FaultKind, FaultRule
from lab.cloud.records import Status
from lab.cloud.wire import Act, WireFault, WireKind
from tests.faults.fleet import FORGET_CLAIMS, PATIENCE_SECONDS, QUICK, Fleet, fleet

Scene = Callable[[Lane], Awaitable[list[str]]]
QUOTA_SECONDS = 12.0


async def _placed(own: Fleet, units: int = 6) -> None:
    """Every workload placed and nothing to put right."""
    await own.first.license()
    for promises in own.of.values():
        await promises.place(units)
    await own.cycles_until(FleetPhase.NORMAL)


async def outage(lane: Lane) -> list[str]:
    """Nobody looks for longer than a look is good for: then nothing is done before two looks agree."""
    async with fleet(lane) as own:
        await _placed(own)
        await own.leave_over(2)
        taken = await own.take_away(1)
        await own.lapse()
        before = await own.deeds()
        await own.first.claim(9)
        await own.first.decide()
        launching = asyncio.create_task(own.first.acquire())
        own.must(await own.log("lose") == [], "a server was given up before anybody looked")
        await asyncio.sleep(0.3)
        own.must(await own.deeds() == before, "the provider was changed without a licence")
        first = await own.first.cycle()
        own.must(first is not None and first.phase is FleetPhase.READ_ONLY, "one look was enough to act")
        await asyncio.sleep(0.2)
        own.must(await own.deeds() == before, "the provider was changed after one look")
        await own.cycles_until(FleetPhase.NORMAL)
        await launching
        await own.first.place()
        await own.cycles_until(FleetPhase.NORMAL)
        own.must(len(await own.alive()) == 9, f"{len(await own.alive())} servers of 9")
        own.must(len(await own.log("lose")) == len(taken), "what the provider took was not given up once")
        await own.at_rest()
        return own.wrong


async def disagreement(lane: Lane) -> list[str]:
    """After an outage two looks that differ in more than what was deleted begin anew."""
    async with fleet(lane) as own:
        await _placed(own)
        await own.lapse()
        await own.first.cycle()
        await own.leave_over(1)
        second = await own.first.cycle()
        own.must(second is not None and second.phase is FleetPhase.READ_ONLY, "looks that differ agreed")
        await own.take_away(1)
        third = await own.first.cycle()
        own.must(third is not None and third.phase is FleetPhase.PACING, "a deletion counted as a difference")
        await own.cycles_until(FleetPhase.NORMAL)
        await own.at_rest()
        return own.wrong


async def recovery(lane: Lane) -> list[str]:
    """Much is missing and left over after an outage: it is put right in small steps, tier 1 first."""
    async with fleet(lane, gold=Tier.T1, lead=Tier.T5, idle=Tier.T3) as own:
        await _placed(own, 20)
        gold, lead, idle = (one.workload_id for one in own.of.values())
        for workload_id in (gold, lead):
            await own.take_away(4, workload_id)
        await own.leave_over(4, idle)
        await own.lapse()
        began = len(await own.deeds())
        await own.cycles_until(FleetPhase.PACING, quiet=False)
        await own.cycles_until(FleetPhase.NORMAL)
        limit = 3  # five of a hundred of 60, and of the 4 left over
        paced = [row[0].timestamp() for row in await own.log("lose", "delete") if row[3]]
        window = QUICK.pace_window_seconds
        own.must(len(paced) == 12, f"{len(paced)} paced steps for 8 lost and 4 left over")
        own.must(most_within(paced, window) <= limit, f"{most_within(paced, window)} steps in one window")
        deletes = [deed.at for deed in (await own.deeds())[began:] if deed.what == "delete"]
        # Half a window, because a call arrives a little after it is written down.
        own.must(most_within(deletes, window / 2) <= limit, f"{deletes} deleted at once")
        creates = [deed.at for deed in (await own.deeds())[began:] if deed.what == "create"]
        own.must(most_within(creates, window / 2) <= limit, f"{creates} launched at once")
        lost = [row[2] for row in await own.log("lose")]
        own.must(lost == sorted(lost, key=[gold, lead].index), "a lower tier came before tier 1")
        await own.at_rest()
        return own.wrong


async def amnesia(lane: Lane) -> list[str]:
    """The records of the fleet are from before it was: they are written anew from the servers' labels."""
    async with fleet(lane) as own:
        await _placed(own, 12)
        before = sorted(one.server_id for one in await own.alive())
        await own.forget()
        await own.cycles_until(FleetPhase.NORMAL)
        await own.first.place()
        await own.cycles_until(FleetPhase.NORMAL)
        own.must(sorted(one.server_id for one in await own.alive()) == before, "servers were exchanged")
        own.must(not [deed for deed in await own.deeds() if deed.what == "delete"], "servers were deleted")
        own.must(len(await own.log("adopt")) == 12, "not every server was adopted once")
        await own.at_rest()
        return own.wrong


async def strangers(lane: Lane) -> list[str]:
    """Nothing is known of any server, not even its workload: nothing is deleted while it may come back."""
    async with fleet(lane) as own:
        await _placed(own, 12)
        await own.forget(*FORGET_CLAIMS)
        for _ in range(12):
            await own.first.cycle()
            await asyncio.sleep(0.05)
        own.must(len(await own.alive()) == 12, "servers of a forgotten workload were deleted")
        patience = 0.2
        own.lane.terms = Terms(reconcile=QUICK.model_copy(update={"stranger_patience_seconds": patience}))
        impatient = Promises(lane, own.partition_id, own.first.workload_id, random.Random(1))
        own.of = {"impatient": impatient}
        for _ in range(12):
            await impatient.cycle()
            await asyncio.sleep(0.05)
        deletes = [deed.at for deed in await own.deeds() if deed.what == "delete"]
        own.must(deletes, "strangers stay for ever")
        most = most_within(deletes, QUICK.pace_window_seconds / 2)
        own.must(most <= 1, f"{most} of 12 strangers were deleted at once")
        return own.wrong


async def lying_list(lane: Lane) -> list[str]:
    """A list says that the whole fleet is gone, again and again: nobody believes it."""
    async with fleet(lane) as own:
        await _placed(own, 12)
        before = await own.deeds()
        lie = await own.arm(fault(Act.LIST, WireKind.EMPTY_LIST, times=6))
        while not lie.spent:
            await own.first.cycle()
            await own.place_poked()
        await own.cycles_until(FleetPhase.NORMAL)
        own.must(await own.log("lose") == [], "servers that served were given up")
        own.must(await own.deeds() == before, "a lie changed the fleet")
        await own.at_rest()
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


async def bound_meanwhile(lane: Lane) -> list[str]:
    """A server that nobody claimed is about to be deleted when somebody else gives it a slot."""
    async with fleet(lane) as own:
        await _placed(own, 4)
        await own.rows("DELETE FROM instances WHERE slot_key = (SELECT min(slot_key) FROM instances)")
        await own.rows("UPDATE reservations SET units = instances, target_instances = instances")
        await own.first.claim(3)
        before = len(await own.alive())
        repairs = own.first.process().repairs
        settle = repairs._settle
        other = own.first.new_process(Fuse())

        async def late(place: Any, due: Sequence[Any]) -> Any:
            if due:
                await own.first.claim(4)
                await ActivityEnvironment().run(other.reconciling.reconcile_region, own.look)
            return await settle(place, due)

        repairs._settle = late  # type: ignore[method-assign]
        for _ in range(3):
            await own.first.cycle()
        repairs._settle = settle  # type: ignore[method-assign]
        adopted = await own.log("adopt")
        own.must(len(adopted) == 1, f"{len(adopted)} servers were adopted, and one should be")
        own.must(len(await own.alive()) == before, "a server that had a slot was deleted")
        await own.cycles_until(FleetPhase.NORMAL)
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
        try:
            async with asyncio.timeout(QUOTA_SECONDS):
                await own.first.place(6)
        except TimeoutError:
            own.wrong.append(f"the placement did not end within {QUOTA_SECONDS:g} s")
        asked = await _asked(lane, "POST", "/servers")
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
        await _placed(own, 6)
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
        await _placed(own, 6)
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


async def _asked(lane: Lane, method: str, ending: str) -> int:
    return await asyncio.to_thread(
        lane.cloud.call,
        lambda cloud: sum(
            each.method == method and each.path.endswith(ending) for each in cloud.requests.recent(10_000)
        ),
    )


def fault(act: Act, kind: WireKind, *, times: int | None, delay_seconds: float = 1.0) -> WireFault:
    return WireFault(act=act, kind=kind, times=times, delay_seconds=delay_seconds, region=REGION)

"""Scenes of what is and what is recorded, after an outage, a lie or a loss: each answers what was wrong."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from temporalio.testing import ActivityEnvironment

from domain.contract import Tier
from domain.reconcile import FleetPhase
from lab.chaos.judge import most_within
from lab.chaos.killing import Fuse
from lab.chaos.lane import Lane
from lab.chaos.promises import Promises
from lab.chaos.terms import Terms
from lab.cloud.wire import Act, WireKind
from tests.faults.fleet import FORGET_CLAIMS, QUICK, fault, fleet, placed


async def outage(lane: Lane) -> list[str]:
    """Nobody looks for longer than a look is good for: then nothing is done before two looks agree."""
    async with fleet(lane) as own:
        await placed(own)
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
        await placed(own)
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
        await placed(own, 20)
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
        await placed(own, 12)
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
        await placed(own, 12)
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
        await placed(own, 12)
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


async def bound_meanwhile(lane: Lane) -> list[str]:
    """A server that nobody claimed is about to be deleted when somebody else gives it a slot."""
    async with fleet(lane) as own:
        await placed(own, 4)
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


async def neighbours(lane: Lane) -> list[str]:
    """Nothing fails: what is ours is placed, shrunk and written down, what is not ours is left alone."""
    async with fleet(lane) as own:
        await placed(own, 4)
        await own.first.place(2)
        for _ in range(10):
            await own.first.cycle()
            await asyncio.sleep(0.05)
        own.must(len(await own.alive()) == 2, f"{len(await own.alive())} servers of 2")
        await own.at_rest()
        return own.wrong

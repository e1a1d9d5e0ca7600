"""What a licence grants, and the moment at which it does."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest

from domain.reconcile import FleetPhase, FleetState, ReconcileTerms
from store import licences, partitions
from store.engine import Engine
from store.licences import Grant, Place
from tests.estates import PARTITION, REGION, START, TENANT, Clock

PLACE = Place(TENANT, PARTITION, REGION)
TERMS = ReconcileTerms()


async def licensed(engine: Engine, until: datetime) -> None:
    state = FleetState(FleetPhase.PACING, 2, until, START, unattended=False)
    async with engine.begin() as connection:
        await partitions.put_partition(
            connection, tenant_id=TENANT, partition_id=PARTITION, region=REGION, scheduler="kubernetes"
        )
        await licences.open_cycle(connection, PLACE)
        await licences.write_cycle(connection, PLACE, state, view=None, fleet=60, backlog=4, at=START)


async def deletion(engine: Engine, clock: Clock) -> Grant | None:
    async with engine.begin() as connection:
        return await licences.delete_grant(connection, PLACE, wanted=9, clock=clock, terms=TERMS)


async def launch(engine: Engine, clock: Clock) -> Grant | None:
    planned_at = START - timedelta(minutes=1)
    async with engine.begin() as connection:
        granted = await licences.launch_grant(
            connection, PLACE, wanted=9, planned_at=planned_at, tier="T1", clock=clock, terms=TERMS
        )
    return granted if granted.instances else None


@pytest.mark.parametrize("ask", [deletion, launch])
@pytest.mark.parametrize(("held_seconds", "granted"), [(5, True), (601, False)])
async def test_a_grant_is_of_the_moment_at_which_its_turn_came(
    engine: Engine, ask: object, held_seconds: float, granted: bool
) -> None:
    """Who waits for another's grant is neither dated back to before it nor granted what ran out meanwhile."""
    assert callable(ask)
    clock = Clock(START)
    await licensed(engine, START + timedelta(seconds=600))
    async with engine.begin() as other:
        await licences.open_cycle(other, PLACE, lock=True)
        waiting = asyncio.create_task(ask(engine, clock))
        done, _ = await asyncio.wait([waiting], timeout=0.3)
        assert not done
        clock.move(held_seconds)
    expected = Grant(3, True, START + timedelta(seconds=held_seconds)) if granted else None
    assert await waiting == expected

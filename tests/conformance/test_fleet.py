"""The hands on a real provider: whatever it does, a fleet has what it should and nothing is left over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from activities.ports import BatchSpec, Server
from domain.acquisition import ServerStatus
from domain.audit import Verdict
from domain.pool import Arch
from domain.reconcile import FleetPhase
from store.engine import Engine
from tests.conformance.fleet import Fleet, RealClock
from tests.conformance.hands import Hands, until
from tests.conformance.provider import FLAVOR, IMAGES, REGION, Provider
from tests.estates import Estate

CREATE, LIST = r"/servers$", r"/servers/detail$"


@pytest.fixture
async def fleet(engine: Engine, hands: Hands, provider: Provider, workload: str) -> AsyncIterator[Fleet]:
    """A fleet without servers; whatever a test leaves is gone after it."""
    opened = Fleet(Estate(engine, RealClock()), hands)
    await opened.open(workload)
    yield opened
    provider.heals()
    for server_id in alive(hands, workload):
        hands.compute.delete(REGION, server_id)
    until(lambda: hands.compute.list_workload(REGION, workload), lambda listed: not listed)


def alive(hands: Hands, workload_id: str) -> dict[str, Server]:
    """What the provider has of a workload and nobody has asked to delete."""
    return {
        one.server_id: one
        for one in hands.compute.list_workload(REGION, workload_id)
        if one.status is not ServerStatus.DELETING
    }


def foreign(provider: Provider) -> str:
    """A running server of somebody else in the same project, with metadata much like ours."""
    compute = provider.own.compute
    flavor = next(one.id for one in compute.flavors() if one.name == FLAVOR)
    made = compute.create_server(
        name="theirs",
        flavor_id=flavor,
        image_id=str(IMAGES[Arch.X86_64]),
        networks="none",
        metadata={"sco_workload": "theirs"},
        tags=["team:data"],
    )
    return str(compute.wait_for_server(made, interval=0.2, wait=60).id)


def copy_of(hands: Hands, server: Server, hall: str) -> None:
    """One more server that says the same of itself."""
    spec = BatchSpec(
        batch_key=server.batch_key or "",
        region=REGION,
        hall=hall,
        flavor=FLAVOR,
        name_prefix="late",
        metadata=dict(server.metadata),
        tags=tuple(server.tags),
        user_data="#cloud-config\n{}\n",
    )
    hands.compute.create_batch(spec, 1)


async def is_clean(fleet: Fleet, workload: str, instances: int) -> None:
    report = await fleet.audit()
    assert (report.verdict, report.findings) == (Verdict.CLEAN, ())
    # A server that is deleted while Nova still builds it shows as running once more, for a moment.
    left = until(lambda: alive(fleet.hands, workload), lambda found: len(found) == instances)
    assert len(left) == instances


async def test_a_first_launch_waits_for_two_looks(fleet: Fleet, workload: str) -> None:
    placing = asyncio.create_task(fleet.place(workload, 3))
    await asyncio.sleep(1)
    assert alive(fleet.hands, workload) == {}
    assert (await fleet.cycle()).phase is FleetPhase.READ_ONLY
    await fleet.settle()
    finished = await placing
    assert (finished.phase, finished.active_instances) == ("placed", 3)
    await is_clean(fleet, workload, 3)
    await fleet.place(workload, 0)
    await is_clean(fleet, workload, 0)


async def test_faults_on_the_way_neither_lose_nor_double_a_server(
    fleet: Fleet, provider: Provider, workload: str
) -> None:
    await fleet.settle()
    provider.fails("POST", CREATE, 504, works=True)
    await fleet.place(workload, 4)
    provider.fails("GET", LIST, 503)
    provider.drops("POST", CREATE, works=True)
    await fleet.place(workload, 6)
    provider.end_token(fleet.hands.token())
    provider.fails("DELETE", r"/servers/[^/]+$", 500, works=True)
    finished = await fleet.place(workload, 3)
    assert (finished.phase, finished.active_instances) == ("placed", 3)
    await fleet.settle()
    await is_clean(fleet, workload, 3)
    await fleet.place(workload, 0)
    await is_clean(fleet, workload, 0)


async def test_what_the_provider_takes_breaks_or_relabels_is_put_right(
    fleet: Fleet, provider: Provider, workload: str
) -> None:
    await fleet.settle()
    await fleet.place(workload, 5)
    ours = sorted(alive(fleet.hands, workload))
    theirs = foreign(provider)
    taken, stopped, bare = ours[:3]
    provider.take(taken)
    provider.stop_server(stopped)
    fleet.hands.compute.set_tags(REGION, bare, ["nothing:left"])
    done = await fleet.settle()
    assert sum(one.lost for one in done) == 2
    assert sum(one.retagged for one in done) >= 1
    assert {taken, stopped} & set(alive(fleet.hands, workload)) == set()
    assert bare in alive(fleet.hands, workload)
    await is_clean(fleet, workload, 5)
    await fleet.place(workload, 0)
    assert provider.own.compute.get_server(theirs).status == "ACTIVE"
    provider.own.compute.delete_server(theirs)


async def test_a_server_that_comes_late_is_removed(fleet: Fleet, workload: str) -> None:
    """As an answer that was lost would make it: one more of a batch whose slots all have servers."""
    await fleet.settle()
    await fleet.place(workload, 2)
    before = alive(fleet.hands, workload)
    model = next(iter(before.values()))
    hall = str(await fleet.estate.value("SELECT hall FROM pools WHERE pool_id = :p", p=model.pool_id))
    copy_of(fleet.hands, model, hall)
    assert len(alive(fleet.hands, workload)) == 3
    done = await fleet.settle()
    assert sum(one.deleted for one in done) >= 1
    assert set(alive(fleet.hands, workload)) == set(before)
    await is_clean(fleet, workload, 2)
    await fleet.place(workload, 0)


async def test_lost_records_are_rebuilt_from_the_servers(fleet: Fleet, workload: str) -> None:
    await fleet.settle()
    await fleet.place(workload, 4)
    before = alive(fleet.hands, workload)
    for statement in (
        "DELETE FROM reconciles",
        "DELETE FROM instances",
        "DELETE FROM reservations",
        "DELETE FROM plan_generations",
        "DELETE FROM placement_decisions",
        "UPDATE workloads SET planned_version = 0, generation = 0, phase = 'requested'",
    ):
        await fleet.estate.rows(statement)
    done = await fleet.settle()
    assert sum(one.adopted for one in done) == 4
    finished = await fleet.place(workload)
    assert (finished.phase, finished.active_instances) == ("placed", 4)
    assert set(alive(fleet.hands, workload)) == set(before)
    await is_clean(fleet, workload, 4)
    await fleet.place(workload, 0)


async def test_the_api_ends_in_the_middle_of_a_launch(
    fleet: Fleet, provider: Provider, workload: str
) -> None:
    await fleet.settle()
    placing = asyncio.create_task(fleet.place(workload, 12))
    await asyncio.sleep(0.6)
    await asyncio.to_thread(provider.crash_and_restart)
    finished = await placing
    deadline = time.monotonic() + 60
    while finished.active_instances < 12 and time.monotonic() < deadline:
        await fleet.settle()
        finished = await fleet.place(workload)
    assert (finished.phase, finished.active_instances) == ("placed", 12)
    await fleet.settle()
    await is_clean(fleet, workload, 12)
    await fleet.place(workload, 0)
    await is_clean(fleet, workload, 0)

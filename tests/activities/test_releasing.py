"""Giving back: servers are deleted, slots end when they are gone, and nothing else is touched."""

from __future__ import annotations

from collections import deque

import pytest
import pytest_asyncio
from temporalio.exceptions import ApplicationError

from activities.finishing import FinishingActivities
from activities.placement_calls import WorkloadRequest
from activities.ports import ProviderError, ProviderErrorKind
from tests.activities.acquiring import Acquirer
from tests.activities.deciding import halls
from tests.activities.provider import Crashed, Create, Fuse
from tests.estates import TENANT, Estate, contract


@pytest_asyncio.fixture(scope="module")
async def pools(shared_estate: Estate) -> Estate:
    await shared_estate.open(halls(2, per_hall=1), free=5000)
    return shared_estate


async def shrunk(pools: Estate, name: str, *, before: int = 6, after: int = 2) -> Acquirer:
    """Instances run, the claim shrinks, and what is too many is marked to be given back."""
    await pools.report(5000)
    await pools.workload(name, contract("halves", pool="0.5", group="0.5"))
    acquirer = Acquirer(pools)
    await acquirer.placer.place(before, name)
    await acquirer.acquire(name)
    assert (await acquirer.placer.place(after, name)).releases
    plan = await FinishingActivities(pools.engine).plan_release(
        WorkloadRequest(tenant_id=TENANT, workload_id=name)
    )
    assert plan.regions == ("eu-north",)
    assert await acquirer.placer.slots(name) == {"active": after, "releasing": before - after}
    return acquirer


async def gave_back(acquirer: Acquirer, name: str, *, before: int = 6, after: int = 2) -> None:
    assert await acquirer.placer.slots(name) == {"active": after, "gone": before - after}
    await acquirer.ended_well(name)


async def test_what_is_too_many_is_deleted(pools: Estate) -> None:
    acquirer = await shrunk(pools, "calm")
    released = await acquirer.release("calm")
    assert (released.region, released.released) == ("eu-north", 4)
    assert len(acquirer.compute.deleted) == 4
    assert acquirer.heartbeats
    await gave_back(acquirer, "calm")
    assert (await acquirer.release("calm")).released == 0
    assert len(acquirer.compute.deleted) == 4


async def test_a_server_that_is_gone_already_is_given_back(pools: Estate) -> None:
    acquirer = await shrunk(pools, "gone-already")
    for server_id in await acquirer.servers_of("gone-already", "releasing"):
        acquirer.compute.vanish(server_id)
    assert (await acquirer.release("gone-already")).released == 4
    assert acquirer.compute.deleted == []
    await gave_back(acquirer, "gone-already")


async def test_a_refused_deletion_is_asked_for_again(pools: Estate) -> None:
    acquirer = await shrunk(pools, "refused")
    stuck = min(await acquirer.servers_of("refused", "releasing"))
    busy = ProviderError(ProviderErrorKind.CONFLICT, "a task is running on it")
    acquirer.compute.delete_answers = {stuck: deque([busy, busy, busy])}
    for _ in range(3):
        with pytest.raises(ApplicationError, match="a task is running") as failed:
            await acquirer.release("refused")
        assert not failed.value.non_retryable
    assert await acquirer.servers_of("refused", "releasing") == {stuck}
    await acquirer.release("refused")
    await gave_back(acquirer, "refused")


async def test_a_list_that_fails_ends_no_slot(pools: Estate) -> None:
    acquirer = await shrunk(pools, "no-list")
    acquirer.compute.list_answers = deque([ProviderError(ProviderErrorKind.UNAVAILABLE, "no list")])
    with pytest.raises(ApplicationError, match="no list"):
        await acquirer.release("no-list")
    assert await acquirer.placer.slots("no-list") == {"active": 2, "releasing": 4}
    await acquirer.release("no-list")
    await gave_back(acquirer, "no-list")


async def test_a_slot_without_a_server_is_given_back_too(pools: Estate) -> None:
    acquirer = await shrunk(pools, "no-server")
    await acquirer.placer.place(4, "no-server")
    await pools.rows(
        "UPDATE instances SET state = 'releasing' WHERE workload_id = 'no-server' AND state = 'planned'"
    )
    planned = 6 - sum((await acquirer.placer.slots("no-server")).values())
    assert planned < 0, "new slots were planned"
    released = await acquirer.release("no-server")
    assert released.released == 4 - planned
    await acquirer.ended_well("no-server")


async def test_surplus_that_was_never_launched_is_gone_at_once(pools: Estate) -> None:
    await pools.report(5000)
    await pools.workload("unlaunched", contract("halves", pool="0.5", group="0.5"))
    acquirer = Acquirer(pools)
    await acquirer.placer.place(6, "unlaunched")
    await acquirer.placer.place(2, "unlaunched")
    hand = FinishingActivities(pools.engine)
    plan = await hand.plan_release(WorkloadRequest(tenant_id=TENANT, workload_id="unlaunched"))
    assert plan.regions == ()
    assert await acquirer.placer.slots("unlaunched") == {"gone": 4, "planned": 2}
    await acquirer.acquire("unlaunched")
    assert sum(number for _, number in acquirer.compute.creates) == 2


async def test_surplus_that_was_asked_for_is_given_back_once_it_has_shown(pools: Estate) -> None:
    """The launch ended in doubt and the claim shrank: the servers that show late are not forgotten."""
    await pools.report(5000)
    await pools.workload("in-doubt", contract("halves", pool="0.5", group="0.5"))
    acquirer = Acquirer(pools)
    await acquirer.placer.place(6, "in-doubt")
    acquirer.compute.script = deque([Create(delay_seconds=3)] * 2)
    requested = ["after create", "after create"]
    with pytest.raises(Crashed):
        await acquirer.acquire("in-doubt", Fuse(after=requested))
    await acquirer.placer.place(2, "in-doubt")
    hand = FinishingActivities(pools.engine)
    request = WorkloadRequest(tenant_id=TENANT, workload_id="in-doubt")
    assert (await hand.plan_release(request)).regions == ()
    assert await acquirer.placer.slots("in-doubt") == {"planned": 6}
    assert (await acquirer.acquire("in-doubt")).active == 6
    assert (await hand.plan_release(request)).regions == ("eu-north",)
    assert (await acquirer.release("in-doubt")).released == 4
    await gave_back(acquirer, "in-doubt")


async def test_a_run_may_end_at_every_point(pools: Estate) -> None:
    whole = Fuse()
    acquirer = await shrunk(pools, "whole", before=4)
    await acquirer.release("whole", whole)
    await gave_back(acquirer, "whole", before=4)
    for point in range(1, len(whole.points) + 1):
        name = f"ends-{point}"
        acquirer = await shrunk(pools, name, before=4)
        with pytest.raises(Crashed):
            await acquirer.release(name, Fuse(point))
        await acquirer.release(name)
        await gave_back(acquirer, name, before=4)

"""Launches at a provider that answers, doubts, delays, breaks and forgets."""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import timedelta

import pytest
import pytest_asyncio
from temporalio.exceptions import ApplicationError

from activities.placement_calls import PoolFailure
from activities.ports import ProviderError, ProviderErrorKind
from domain.acquisition import ServerStatus
from domain.ids import server_prefix
from domain.placement.scoring import PoolInputs
from domain.pool import PurchaseModel
from tests.activities.acquiring import TERMS, Acquirer
from tests.activities.deciding import halls
from tests.activities.provider import Create, in_doubt, refused
from tests.domain.worlds import facts
from tests.estates import Estate, contract

FIRST, SECOND = "eu-north-h1-p1", "eu-north-h2-p1"
BUILDS, BREAKS = ServerStatus.ACTIVE, ServerStatus.ERROR


@pytest_asyncio.fixture(scope="module")
async def pools(shared_estate: Estate) -> Estate:
    await shared_estate.open(halls(2, per_hall=1), free=1000)
    return shared_estate


@pytest_asyncio.fixture
async def acquirer(pools: Estate, request: pytest.FixtureRequest) -> Acquirer:
    """Six instances are planned for a workload named after the test: three in each of two pools."""
    await pools.report(1000)
    acquirer = Acquirer(pools)
    await pools.workload(name_of(request), contract("halves", pool="0.5", group="0.5"))
    decided = await acquirer.placer.place(6, name_of(request))
    assert (decided.placed_units, decided.acquire_regions) == (6, ("eu-north",))
    return acquirer


def name_of(request: pytest.FixtureRequest) -> str:
    spelt: str = request.node.name
    return spelt.replace("_", "-").replace("[", "-").replace("]", "")[-63:].strip("-").lower()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return name_of(request)


async def backoffs(acquirer: Acquirer, name: str) -> list[tuple[str, int, str]]:
    query = "SELECT pool_id, failures, problem FROM pool_backoffs WHERE workload_id = :w ORDER BY 1"
    return [tuple(row) for row in await acquirer.estate.rows(query, w=name)]


async def test_a_calm_launch(acquirer: Acquirer, name: str) -> None:
    acquired = await acquirer.acquire(name)
    assert (acquired.region, acquired.active, acquired.failures) == ("eu-north", 6, ())
    assert [number for _, number in acquirer.compute.creates] == [3, 3]
    assert acquirer.compute.deleted == []
    assert len(acquirer.heartbeats) >= 3
    await acquirer.ended_well(name)
    assert (await acquirer.acquire(name)).active == 6
    assert len(acquirer.compute.creates) == 2


async def test_every_server_is_kept_with_a_name_of_its_own(acquirer: Acquirer, name: str) -> None:
    await acquirer.acquire(name)
    kept = await acquirer.estate.rows(
        "SELECT server_id, server_name FROM instances WHERE workload_id = :w", w=name
    )
    made = {one.server.server_id: one.server.name for one in acquirer.compute.made.values()}
    assert set(kept) == set(made.items())
    assert len(set(made.values())) == 6


async def test_what_a_launch_tells_the_provider(acquirer: Acquirer, name: str) -> None:
    await acquirer.acquire(name)
    spec, _ = min(acquirer.compute.creates, key=lambda one: one[0].hall)
    assert (spec.region, spec.hall, spec.flavor) == ("eu-north", "eu-north-h1", "gp.m.reclaimable")
    assert spec.name_prefix == server_prefix(name, 1, spec.batch_key, 0)
    assert spec.metadata == {
        "sco_batch": spec.batch_key,
        "sco_tenant": "platform",
        "sco_partition": "k8s-eu-north",
        "sco_workload": name,
        "sco_generation": "1",
        "sco_pool": FIRST,
        "sco_purchase_model": "reclaimable",
        "sco_shape": "4000m-16384Mi",
        "sco_units": "1",
    }
    assert {"sco:managed", "sco:purchase-model=reclaimable"} <= set(spec.tags)
    assert spec.user_data.startswith("#cloud-config\n")
    assert spec.reservation_id is None


async def test_a_create_in_doubt_that_built_all_the_same(acquirer: Acquirer, name: str) -> None:
    acquirer.compute.script = deque([Create(answer=in_doubt(), delay_seconds=2), Create()])
    acquired = await acquirer.acquire(name)
    assert (acquired.active, acquired.failures) == (6, ())
    assert len(acquirer.compute.creates) == 2, "what is in doubt is looked for, not asked for again"
    await acquirer.ended_well(name)


async def test_a_create_that_built_some_is_completed(acquirer: Acquirer, name: str) -> None:
    acquirer.compute.script = deque([Create(made=1, answer=in_doubt())])
    acquired = await acquirer.acquire(name)
    assert (acquired.active, acquired.failures) == (6, ())
    assert sorted(number for _, number in acquirer.compute.creates) == [2, 3, 3]
    await acquirer.ended_well(name)


async def test_servers_that_show_after_they_were_asked_for_again_are_deleted(
    acquirer: Acquirer, name: str
) -> None:
    late = TERMS.settle_seconds + 2
    acquirer.compute.script = deque([Create(answer=in_doubt(), delay_seconds=late)])
    acquired = await acquirer.acquire(name)
    assert (acquired.active, acquired.failures) == (6, ())
    assert len(acquirer.compute.deleted) == 3
    await acquirer.ended_well(name)


async def test_servers_in_error_end_their_slots_and_rest_their_pool(acquirer: Acquirer, name: str) -> None:
    fault = "No valid host was found."
    acquirer.compute.script = deque([Create(fates=(BUILDS, BREAKS, BREAKS), fault=fault)])
    acquired = await acquirer.acquire(name)
    assert acquired.active == 4
    (failure,) = acquired.failures
    assert (failure.instances, failure.problem, failure.kind) == (2, fault, "no_valid_host")
    assert await backoffs(acquirer, name) == [(failure.pool_id, 1, fault)]
    until = await acquirer.estate.value("SELECT max(until) FROM pool_backoffs WHERE workload_id = :w", w=name)
    assert timedelta(seconds=200) < until - acquirer.estate.clock() <= timedelta(seconds=300)
    assert (await acquirer.placer.held(name))[failure.pool_id] == (1, 1)
    await acquirer.ended_well(name)


async def test_a_refused_create_fails_its_slots_at_once(acquirer: Acquirer, name: str) -> None:
    acquirer.compute.script = deque([Create(made=0, answer=refused())])
    acquired = await acquirer.acquire(name)
    assert acquired.active == 3
    (failure,) = acquired.failures
    assert failure == PoolFailure(
        pool_id=failure.pool_id, kind="quota", problem="eu-north: Quota exceeded", instances=3
    )
    assert len(acquirer.compute.creates) == 2
    await acquirer.ended_well(name)


async def test_what_never_shows_is_given_up_after_three_attempts(acquirer: Acquirer, name: str) -> None:
    acquirer.compute.script = deque([Create(made=0)] * 6)
    acquired = await acquirer.acquire(name)
    assert acquired.active == 0
    assert [(one.pool_id, one.instances, one.problem) for one in acquired.failures] == [
        (pool, 3, "no server appeared after 3 requests") for pool in (FIRST, SECOND)
    ]
    assert len(acquirer.compute.creates) == 6
    await acquirer.ended_well(name)


async def test_a_stuck_build_is_given_up(acquirer: Acquirer, name: str) -> None:
    acquirer.compute.script = deque([Create(fates=(BUILDS, ServerStatus.BUILDING, BUILDS))])
    acquired = await acquirer.acquire(name)
    (failure,) = acquired.failures
    assert (failure.instances, failure.problem) == (1, "its server was still building after 15 s")
    assert acquired.active == 5
    await acquirer.ended_well(name)


async def test_a_server_that_vanishes_while_it_is_built(acquirer: Acquirer, name: str) -> None:
    acquirer.compute.script = deque([Create(fates=(ServerStatus.BUILDING, BUILDS, BUILDS))])
    lists = 0
    plain = acquirer.compute.list_workload

    def list_workload(region: str, workload_id: str) -> object:
        nonlocal lists
        lists += 1
        if lists == 3:
            acquirer.compute.vanish(min(acquirer.compute.made))
        return plain(region, workload_id)

    acquirer.compute.list_workload = list_workload  # type: ignore[assignment, method-assign]
    acquired = await acquirer.acquire(name)
    assert acquired.active == 5
    assert [one.problem for one in acquired.failures] == ["its server vanished while it was built"]
    await acquirer.ended_well(name)


async def test_strange_servers_are_left_alone_and_surplus_is_deleted(acquirer: Acquirer, name: str) -> None:
    strange = [
        acquirer.compute.add({"sco_workload": name}, Create()),
        acquirer.compute.add({"sco_workload": name, "sco_batch": "b-unknown"}, Create()),
    ]
    await acquirer.acquire(name)
    spec, _ = acquirer.compute.creates[0]
    surplus = acquirer.compute.add(spec.metadata, Create())
    await acquirer.acquire(name)
    assert acquirer.compute.deleted == [surplus]
    for one in strange:
        acquirer.compute.vanish(one)
    await acquirer.ended_well(name)


@pytest.mark.parametrize(
    ("kind", "final"), [(ProviderErrorKind.UNAVAILABLE, False), (ProviderErrorKind.BAD_REQUEST, True)]
)
async def test_a_list_that_fails_decides_nothing(
    acquirer: Acquirer, name: str, kind: ProviderErrorKind, final: bool
) -> None:
    await acquirer.acquire(name)
    acquirer.compute.list_answers = deque([ProviderError(kind, "no list", retry_after_seconds=3)])
    with pytest.raises(ApplicationError, match="no list") as failed:
        await acquirer.acquire(name)
    assert (failed.value.type, failed.value.non_retryable) == (kind.value, final)
    assert failed.value.next_retry_delay == timedelta(seconds=3)
    await acquirer.ended_well(name)


async def test_a_delete_that_is_refused_holds_up_no_other_and_is_asked_again(
    acquirer: Acquirer, name: str
) -> None:
    acquirer.compute.script = deque([Create(fates=(BREAKS,), fault="broken")])
    stuck = ProviderError(ProviderErrorKind.CONFLICT, "a task is running on it")
    acquirer.compute.delete_answers = {acquirer.compute.id_of(1): deque([stuck])}
    with pytest.raises(ApplicationError, match="a task is running"):
        await acquirer.acquire(name)
    assert acquirer.compute.deleted == [acquirer.compute.id_of(place) for place in (1, 2, 3)]
    acquired = await acquirer.acquire(name)
    assert [(one.instances, one.problem) for one in acquired.failures] == [(3, "broken")]
    assert acquirer.compute.deleted.count(acquirer.compute.id_of(1)) == 2
    await acquirer.ended_well(name)


async def test_a_throttled_create_waits_as_long_as_it_was_told_to(acquirer: Acquirer, name: str) -> None:
    later = ProviderError(ProviderErrorKind.THROTTLED, "too many", retry_after_seconds=0.01)
    acquirer.compute.script = deque([Create(made=0, answer=later)])
    acquired = await acquirer.acquire(name)
    assert (acquired.active, acquired.failures) == (6, ())
    assert len(acquirer.compute.creates) == 3
    await acquirer.ended_well(name)


async def test_a_cancelled_launch_is_taken_up_again(acquirer: Acquirer, name: str) -> None:
    acquirer.compute.script = deque([Create(fates=(ServerStatus.BUILDING,))])
    running = asyncio.create_task(acquirer.acquire(name))
    for _ in range(2000):
        if len(acquirer.compute.creates) == 2:
            break
        await asyncio.sleep(0.005)
    acquirer.environment.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    acquired = await acquirer.acquire(name)
    assert (acquired.active, sum(one.instances for one in acquired.failures)) == (3, 3)
    await acquirer.ended_well(name)


async def test_two_runs_at_once_ask_for_every_server_once(acquirer: Acquirer, name: str) -> None:
    """A run that was given up for lost goes on beside the one that replaced it.

    Both move the clock while they look, so a request needs longer to settle than they look in all.
    """
    acquirer.terms = TERMS.model_copy(update={"settle_seconds": 1_000})
    both = await asyncio.gather(acquirer.acquire(name), acquirer.acquire(name))
    assert [one.active for one in both] == [6, 6]
    assert sum(number for _, number in acquirer.compute.creates) == 6
    await acquirer.ended_well(name)


async def test_failures_are_told_until_there_is_another_plan(acquirer: Acquirer, name: str) -> None:
    acquirer.compute.script = deque([Create(made=0, answer=refused())])
    first = await acquirer.acquire(name)
    assert (await acquirer.acquire(name)).failures == first.failures
    await acquirer.placer.decide(name)
    acquired = await acquirer.acquire(name)
    assert acquired.failures == ()
    await acquirer.ended_well(name)


async def test_committed_capacity_runs_in_its_lease_or_not_at_all(estate: Estate) -> None:
    pools = [
        facts(
            f"lease-{number}",
            hall=f"eu-north-h{number}",
            group=f"g{number}",
            cores=4,
            model=PurchaseModel.COMMITTED,
        )
        for number in range(1, 4)
    ]
    await estate.open([PoolInputs(facts=one, free_instances=40) for one in pools], free=10)
    await estate.workload("orders", contract("floor", floor="1"))
    flavor = pools[0].flavor
    acquirer = Acquirer(
        estate, leases={("eu-north-h1", flavor): "lease-a", ("eu-north-h2", flavor): "lease-b"}
    )
    await acquirer.placer.place(6)
    acquired = await acquirer.acquire()
    assert acquired.active == 4
    (failure,) = acquired.failures
    assert (failure.pool_id, failure.instances) == ("lease-3", 2)
    assert failure.problem == f"no active lease holds {flavor} in eu-north-h3"
    told = {spec.hall: spec.reservation_id for spec, _ in acquirer.compute.creates}
    assert told == {"eu-north-h1": "lease-a", "eu-north-h2": "lease-b"}
    await acquirer.ended_well()

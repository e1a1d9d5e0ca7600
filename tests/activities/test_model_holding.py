"""The hand that holds a placement for its workflow, and the sweep that makes up for lost starts."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
import pytest_asyncio
from prometheus_client import REGISTRY
from temporalio.exceptions import ApplicationError

from activities.model_holding import ModelHoldingActivities
from activities.model_placement_calls import LoadRecord, PlacementFailure, PlacementLook, PlacementRequest
from activities.model_placement_sweep import start_lost
from domain.pool import SecurityBoundary
from domain.serving.requirements import ModelRequirements
from store.engine import Engine
from store.model_leases import LET_GO
from tests.activities.model_placing import ACME, MODEL, PLATFORM, ServingEstate
from tests.domain.serving.pools import wanted
from tests.estates import Clock


class Reports:
    """Remembers what was reported."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str, str]] = []

    async def __call__(self, tenant_id: str, pool_tenant_id: str, pool_id: str, problem: str) -> None:
        self.told.append((tenant_id, pool_tenant_id, pool_id, problem))


@pytest_asyncio.fixture
async def serving(engine: Engine, tenant_engine: Engine, clock: Clock) -> ServingEstate:
    own = ServingEstate(engine, tenant_engine, clock)
    await own.pool()
    return own


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture
def hold(serving: ServingEstate, service_engine: Engine, reports: Reports) -> ModelHoldingActivities:
    return ModelHoldingActivities(service_engine, reports, now=serving.clock)


async def placed(serving: ServingEstate, **options: Any) -> UUID:
    return (await serving.place(**options)).record.placement_id


def of(placement_id: UUID, tenant_id: str = ACME) -> PlacementRequest:
    return PlacementRequest(tenant_id=tenant_id, placement_id=placement_id)


def loaded(placement_id: UUID, *, caused: bool = True) -> LoadRecord:
    return LoadRecord(tenant_id=ACME, placement_id=placement_id, caused=caused)


def failed(placement_id: UUID, kind: str = "unreachable") -> PlacementFailure:
    return PlacementFailure(tenant_id=ACME, placement_id=placement_id, kind=kind, problem="nobody answers")


def counter(name: str, **labels: str) -> Callable[[], float]:
    """How far a counter moved since this was called."""
    before = REGISTRY.get_sample_value(name, labels) or 0
    return lambda: (REGISTRY.get_sample_value(name, labels) or 0) - before


async def test_a_look_tells_what_the_placement_is(
    serving: ServingEstate, hold: ModelHoldingActivities
) -> None:
    name = await placed(serving)
    assert await hold.look(of(name)) == PlacementLook(state="held", expires_at=serving.later(600))
    await serving.hand.release(ACME, name)
    assert (await hold.look(of(name))).state == "released"


async def test_a_look_at_the_end_gives_the_memory_back(
    serving: ServingEstate, hold: ModelHoldingActivities
) -> None:
    name = await placed(serving)
    serving.clock.move(599)
    assert (await hold.look(of(name))).held
    serving.clock.move(1)
    assert (await hold.look(of(name))).state == "expired"
    assert await serving.committed() == 0
    assert (await hold.look(of(name))).state == "expired"


async def test_a_renewed_placement_outlives_its_first_end(
    serving: ServingEstate, hold: ModelHoldingActivities
) -> None:
    name = await placed(serving)
    serving.clock.move(590)
    await serving.hand.renew(ACME, name)
    serving.clock.move(60)
    look = await hold.look(of(name))
    assert (look.held, look.expires_at) == (True, serving.later(540))


async def test_a_placement_that_is_not_there_ends_its_workflow(hold: ModelHoldingActivities) -> None:
    with pytest.raises(ApplicationError) as refused:
        await hold.look(of(uuid4()))
    assert (refused.value.type, refused.value.non_retryable) == ("unknown_placement", True)


async def test_a_load_that_a_placement_caused_is_counted_once(
    serving: ServingEstate, hold: ModelHoldingActivities
) -> None:
    name = await placed(serving)
    cold_starts = counter("connectsoft_factory_compute_pools_cold_starts_total", tenant=ACME, pool="gpu-1")
    for _ in range(3):
        assert (await hold.record_load(loaded(name))).held
    assert cold_starts() == 1
    assert await serving.run("SELECT caused_load FROM model_placements") == [(True,)]


async def test_a_model_that_was_there_already_caused_no_load(
    serving: ServingEstate, hold: ModelHoldingActivities
) -> None:
    name = await placed(serving)
    await hold.record_load(loaded(name, caused=False))
    assert await serving.run("SELECT caused_load FROM model_placements") == [(False,)]


async def test_a_failed_load_gives_the_placement_back_and_reports_the_endpoint(
    serving: ServingEstate, hold: ModelHoldingActivities, reports: Reports
) -> None:
    name = await placed(serving)
    look = await hold.fail(failed(name))
    assert (look.state, look.problem) == ("released", "unreachable: nobody answers")
    assert await serving.committed() == 0
    assert reports.told == [(ACME, ACME, "gpu-1", "nobody answers")]
    assert (await hold.look(of(name))).problem == "unreachable: nobody answers"


@pytest.mark.parametrize("kind", ["unknown_model", "no_memory", "refused", "failed"])
async def test_what_is_wrong_with_a_model_takes_no_pool_from_others(
    serving: ServingEstate, hold: ModelHoldingActivities, reports: Reports, kind: str
) -> None:
    name = await placed(serving)
    assert (await hold.fail(failed(name, kind))).state == "released"
    assert reports.told == []


async def test_a_pool_where_a_model_did_not_load_is_left_alone_for_a_while(
    serving: ServingEstate, hold: ModelHoldingActivities
) -> None:
    """By that tenant, for that model: a pool that fails every load would be chosen again and again."""
    shared: dict[str, Any] = {"security_boundary": SecurityBoundary.SHARED}
    await serving.pool("cheap", PLATFORM, price_per_hour_usd=Decimal("0.01"), **shared)
    await serving.pool("dear", PLATFORM, price_per_hour_usd=Decimal(9), **shared)
    asked = wanted(boundary=SecurityBoundary.SHARED)

    async def chosen(asked: ModelRequirements = asked, tenant: str = "others") -> str | None:
        record = (await serving.place(asked, tenant=tenant)).record
        await serving.hand.release(tenant, record.placement_id)
        return record.pool_id

    lost = await placed(serving, asked=asked, tenant="others")
    assert await chosen() == "cheap"
    await hold.fail(failed(lost, "failed").model_copy(update={"tenant_id": "others"}))
    assert await chosen() == "dear"
    assert await chosen(wanted(boundary=SecurityBoundary.SHARED, model="qwen")) == "cheap"
    assert await chosen(tenant="third") == "cheap"
    serving.clock.move(60)
    assert await chosen() == "cheap"


async def test_a_pool_that_drained_and_took_its_memory_back_is_not_one_where_a_model_did_not_load(
    serving: ServingEstate,
) -> None:
    await placed(serving)
    await serving.run(
        "UPDATE model_placements SET state = 'released', ended_at = :at, problem = :problem",
        at=serving.clock(),
        problem=LET_GO,
    )
    assert (await serving.place()).record.pool_id == "gpu-1"


async def test_a_failure_after_the_release_leaves_the_release_as_it_was(
    serving: ServingEstate, hold: ModelHoldingActivities
) -> None:
    name = await placed(serving)
    await serving.hand.release(ACME, name)
    look = await hold.fail(failed(name))
    assert (look.state, look.problem) == ("released", None)


async def test_lost_starts_are_made_up_for(serving: ServingEstate, service_engine: Engine) -> None:
    await serving.pool("shared", PLATFORM, security_boundary=SecurityBoundary.SHARED)
    serving.starts.down = True
    names = {await placed(serving)}
    names.add(
        await placed(serving, asked=wanted(boundary=SecurityBoundary.SHARED, model="qwen"), tenant="others")
    )
    released = await placed(serving, asked=wanted(model="gemma"))
    await serving.hand.release(ACME, released)
    await serving.hand.settle()
    serving.starts.down = False
    assert await start_lost(service_engine, serving.starts, now=serving.clock) == 0
    serving.clock.move(15)
    assert await start_lost(service_engine, serving.starts, now=serving.clock) == 2
    assert {one.placement_id for one in serving.starts.started} == names
    await serving.load()
    await serving.load("shared", PLATFORM, "qwen")
    assert await start_lost(service_engine, serving.starts, now=serving.clock) == 0


async def test_what_somebody_loads_is_started_once_that_failed(
    serving: ServingEstate, service_engine: Engine
) -> None:
    await placed(serving)
    await serving.hand.settle()
    serving.starts.started.clear()
    serving.clock.move(20)
    leased = "UPDATE cached_models SET state = 'loading', load_key = gen_random_uuid(), load_until = :until"
    await serving.run(leased, until=serving.later(10))
    assert await start_lost(service_engine, serving.starts, now=serving.clock) == 0
    serving.clock.move(11)
    assert await start_lost(service_engine, serving.starts, now=serving.clock) == 1


async def test_what_is_warm_or_over_is_not_started(serving: ServingEstate, service_engine: Engine) -> None:
    await serving.load(model=MODEL)
    await placed(serving)
    await placed(serving, asked=wanted(model="qwen"))
    serving.clock.move(700)
    assert await start_lost(service_engine, serving.starts, now=serving.clock) == 0

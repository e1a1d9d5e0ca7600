"""The hand that places models: what it stores, keeps and answers, on a real database under row security."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from activities import model_placement_telling
from activities.model_placement_calls import ModelPlacementInput
from activities.model_placing import PlaceRefusal, Refused
from domain.policy import Policy
from domain.pool import SecurityBoundary
from domain.reasons import Reason
from domain.serving.placement_terms import ModelPlacementTerms
from domain.serving.placing import PlacementOutcome
from domain.serving.record import candidates
from domain.serving.requirements import LatencyClass
from store.engine import Engine
from store.tables import PlacementState
from tests.activities.model_placing import ACME, MODEL, PLATFORM, ServingEstate
from tests.domain.serving.pools import wanted
from tests.estates import Clock


@pytest_asyncio.fixture
async def serving(engine: Engine, tenant_engine: Engine, clock: Clock) -> ServingEstate:
    return ServingEstate(engine, tenant_engine, clock)


def reasons(placed: Any) -> dict[str, Reason | None]:
    record = placed.record
    return {one.pool_id: one.reason for one in candidates(record.candidates, record.tenant_id)}


async def test_the_70_gb_example_is_decided_and_stored_with_both_exclusions(serving: ServingEstate) -> None:
    """70 GB private task; local GPU too small, cloud A fits, cloud B cheaper in a forbidden region -> A."""
    await serving.pool("local-gpu", vram_gb=24, price_per_hour_usd=Decimal(0))
    await serving.pool("cloud-a", vram_gb=80, price_per_hour_usd=Decimal("3.50"))
    await serving.pool("cloud-b", vram_gb=80, price_per_hour_usd=Decimal("1.20"), region="us-east")
    asked = wanted(vram_gb=70, boundary=SecurityBoundary.PRIVATE, regions=("eu-north", "eu-west"))
    placed = await serving.place(asked)
    assert placed.record.outcome is PlacementOutcome.PLACED
    assert (placed.record.pool_tenant_id, placed.record.pool_id) == (ACME, "cloud-a")
    assert reasons(placed) == {"cloud-a": None, "cloud-b": Reason.REGION, "local-gpu": Reason.MEMORY}
    stored = (await serving.run("SELECT outcome, pool_id, state, candidates FROM model_placements"))[0]
    assert stored[:3] == ("placed", "cloud-a", "held")
    assert stored[3] == placed.record.candidates
    assert await serving.committed("cloud-a") == 70


async def test_an_answer_carries_endpoint_credential_and_expiry(serving: ServingEstate) -> None:
    await serving.pool()
    placed = await serving.place()
    assert placed.endpoint_ref == "https://gpu-1.example.net"
    assert placed.credential is not None
    assert placed.credential.token.get_secret_value() == "secret-1-of-gpu-1"
    assert serving.vault.asked == [(ACME, "gpu-1")]
    assert placed.record.expires_at == serving.later(600)
    assert (placed.record.warm, placed.record.cold_start_seconds) == (False, 40)


async def test_a_credential_is_in_no_row_and_no_text(serving: ServingEstate) -> None:
    await serving.pool()
    placed = await serving.place()
    assert "secret-1" not in repr(placed)
    for table in ("model_placements", "outbox", "cached_models"):
        assert "secret-1" not in str(await serving.run(f"SELECT to_jsonb(t) FROM {table} t"))


async def test_the_decision_is_announced_in_its_transaction(serving: ServingEstate) -> None:
    await serving.pool()
    placed = await serving.place()
    denied = await serving.place(wanted(regions=("us-east",)))
    rows = await serving.run("SELECT tenant_id, topic, payload FROM outbox ORDER BY sequence")
    assert [(tenant, topic) for tenant, topic, _ in rows] == [
        (ACME, "compute-pools.placement.v1.placement-decided")
    ] * 2
    first, second = (payload for _, _, payload in rows)
    assert first["placementId"] == str(placed.record.placement_id)
    assert (first["tenantId"], first["deploymentId"]) == (ACME, "assistant")
    assert (first["chosenPoolId"], first["outcome"]) == ("gpu-1", "placed")
    assert (second["placementId"], second["outcome"]) == (str(denied.record.placement_id), "policy_denied")
    assert second.get("chosenPoolId") is None


async def test_own_and_shared_pools_are_candidates_and_nobody_elses(serving: ServingEstate) -> None:
    await serving.pool("own")
    await serving.pool("regional", PLATFORM, security_boundary=SecurityBoundary.REGIONAL)
    await serving.pool("shared", PLATFORM, security_boundary=SecurityBoundary.SHARED)
    await serving.pool("not-shared", PLATFORM, security_boundary=SecurityBoundary.PRIVATE)
    await serving.pool("strange", "others", security_boundary=SecurityBoundary.SHARED)
    placed = await serving.place(wanted(boundary=SecurityBoundary.SHARED))
    assert set(reasons(placed)) == {"own", "regional", "shared"}
    assert "others" not in str(placed.record)
    theirs = await serving.place(wanted(boundary=SecurityBoundary.SHARED), tenant="others")
    assert set(reasons(theirs)) == {"strange", "regional", "shared"}


async def test_an_owner_sees_all_rows_and_still_places_on_the_tenants_pools_alone(
    engine: Engine, clock: Clock
) -> None:
    serving = ServingEstate(engine, engine, clock)
    await serving.pool("own")
    await serving.pool("not-shared", PLATFORM)
    await serving.pool("strange", "others")
    assert set(reasons(await serving.place())) == {"own"}


async def test_memory_of_a_shared_pool_is_kept_for_whoever_asks(serving: ServingEstate) -> None:
    await serving.pool("big", PLATFORM, security_boundary=SecurityBoundary.SHARED)
    open_to_all = wanted(boundary=SecurityBoundary.SHARED)
    mine = await serving.place(open_to_all)
    theirs = await serving.place(wanted(boundary=SecurityBoundary.SHARED, model="qwen3:32b"), tenant="others")
    assert (mine.record.pool_id, theirs.record.pool_id) == ("big", "big")
    assert await serving.committed("big", PLATFORM) == 140
    again = await serving.place(wanted(boundary=SecurityBoundary.SHARED, model="mistral"), tenant="others")
    assert (again.record.outcome, reasons(again)) == (
        PlacementOutcome.NO_CAPACITY,
        {"big": Reason.CAPACITY},
    )
    await serving.memory_is_right()


async def test_a_model_on_a_shared_pool_is_warm_for_every_tenant(serving: ServingEstate) -> None:
    shared: dict[str, Any] = {"security_boundary": SecurityBoundary.SHARED}
    await serving.pool("a-cold", PLATFORM, **shared)
    await serving.pool("b-warm", PLATFORM, loaded=MODEL, **shared)
    placed = await serving.place(wanted(boundary=SecurityBoundary.SHARED))
    assert (placed.record.pool_id, placed.record.warm, placed.record.cold_start_seconds) == (
        "b-warm",
        True,
        0,
    )


async def test_placements_of_one_model_share_its_memory(serving: ServingEstate) -> None:
    await serving.pool(vram_gb=80)
    placed = [await serving.place() for _ in range(5)]
    assert {one.record.pool_id for one in placed} == {"gpu-1"}
    assert await serving.committed() == 70
    assert (await serving.place(wanted(vram_gb=80))).record.state is PlacementState.HELD
    assert await serving.committed() == 80
    await serving.memory_is_right()


async def test_no_pool_is_a_decision_too(serving: ServingEstate) -> None:
    await serving.pool(vram_gb=24)
    full, denied = await serving.place(), await serving.place(wanted(regions=("us-east",)))
    assert (full.record.outcome, full.record.state) == (PlacementOutcome.NO_CAPACITY, PlacementState.NONE)
    assert denied.record.outcome is PlacementOutcome.POLICY_DENIED
    for one in (full, denied):
        assert (one.record.pool_id, one.record.expires_at, one.endpoint_ref, one.credential) == (None,) * 4
    assert serving.vault.asked == []


async def test_what_a_pool_is_now_decides(serving: ServingEstate) -> None:
    await serving.pool("draining")
    await serving.pool("silent", reported=False)
    await serving.pool("no-endpoint", endpoint=False)
    await serving.pool("degraded")
    await serving.pool("lost")
    await serving.pool("retired")
    await serving.run("UPDATE pools SET state = 'draining' WHERE pool_id = 'draining'")
    await serving.run("UPDATE pools SET state = 'retired' WHERE pool_id = 'retired'")
    await serving.run("UPDATE pool_serving SET health = 'degraded' WHERE pool_id = 'degraded'")
    await serving.run("UPDATE pool_capacity SET hall_lost = true WHERE pool_id = 'lost'")
    placed = await serving.place()
    assert reasons(placed) == {
        "draining": Reason.STATE,
        "no-endpoint": Reason.STATE,
        "silent": Reason.STALE,
        "degraded": Reason.DEGRADED,
        "lost": Reason.EXCLUDED,
    }
    assert placed.record.outcome is PlacementOutcome.NO_CAPACITY


async def test_an_endpoint_that_a_tenant_reported_is_down_for_that_tenant_for_a_while(
    serving: ServingEstate,
) -> None:
    shared: dict[str, Any] = {"security_boundary": SecurityBoundary.SHARED}
    await serving.pool("reported", PLATFORM, price_per_hour_usd=Decimal(1), **shared)
    await serving.pool("other", PLATFORM, **shared)
    await serving.run(
        "INSERT INTO endpoint_reports (tenant_id, report_id, pool_tenant_id, pool_id, problem, reported_at)"
        " VALUES ('acme', gen_random_uuid(), 'platform', 'reported', 'connection refused', :at)",
        at=serving.clock(),
    )
    asked = wanted(boundary=SecurityBoundary.SHARED)
    assert reasons(await serving.place(asked)) == {"other": None, "reported": Reason.DEGRADED}
    assert (await serving.place(asked, tenant="others")).record.pool_id == "reported"
    serving.clock.move(60)
    assert (await serving.place(asked)).record.pool_id == "reported"


async def test_reports_grow_stale_with_the_clock(serving: ServingEstate) -> None:
    await serving.pool()
    serving.clock.move(120)
    assert (await serving.place()).record.held
    serving.clock.move(1)
    assert reasons(await serving.place()) == {"gpu-1": Reason.STALE}
    await serving.report()
    assert (await serving.place()).record.held


async def test_a_learned_cold_start_counts_before_the_one_that_was_told(serving: ServingEstate) -> None:
    await serving.pool("told", cold_start_seconds=50)
    await serving.pool("learned", cold_start_seconds=5, price_per_hour_usd=Decimal(1))
    await serving.pool("unknown", cold_start_seconds=0, price_per_hour_usd=Decimal(3))
    await serving.run("UPDATE pool_serving SET learned_cold_start_seconds = 75 WHERE pool_id = 'learned'")
    placed = await serving.place()
    told = candidates(placed.record.candidates, ACME)
    assert {one.pool_id: one.cold_start_seconds for one in told} == {
        "told": 50,
        "learned": 75,
        "unknown": 120,
    }
    quick = await serving.place(wanted(latency_class=LatencyClass.INTERACTIVE))
    assert reasons(quick) == {"told": None, "learned": Reason.LATENCY, "unknown": Reason.LATENCY}


async def test_changed_weights_count_from_the_next_decision_on(serving: ServingEstate) -> None:
    await serving.pool("cheap", price_per_hour_usd=Decimal(1))
    await serving.pool("warm", price_per_hour_usd=Decimal(4), loaded=MODEL)
    assert (await serving.place()).record.pool_id == "warm"
    weights = ModelPlacementTerms(
        warm_weight=Decimal(0), price_weight=Decimal("0.9"), utilization_weight=Decimal(0)
    )
    serving.policy = Policy(model_placement=weights)
    assert (await serving.place()).record.pool_id == "cheap"


async def test_the_same_request_has_the_same_answer(serving: ServingEstate) -> None:
    await serving.pool()
    name = uuid4()
    first = await serving.place(placement_id=name)
    serving.clock.move(30)
    again = await serving.place(placement_id=name)
    assert again.record == first.record
    assert (first.again, again.again) == (False, True)
    assert again.endpoint_ref == first.endpoint_ref
    assert again.credential is not None
    assert again.credential.token.get_secret_value() == "secret-2-of-gpu-1"
    assert await serving.run("SELECT count(*) FROM outbox") == [(1,)]
    assert len(serving.starts.started) == 1


async def test_the_same_id_for_another_request_is_refused(serving: ServingEstate) -> None:
    await serving.pool()
    name = uuid4()
    await serving.place(placement_id=name)
    other = await serving.hand.place(ACME, wanted(vram_gb=71), placement_id=name)
    assert isinstance(other, Refused)
    assert other.reason is PlaceRefusal.PLACEMENT_DIFFERS
    assert str(name) in other.text
    theirs = await serving.place(tenant="others", placement_id=name)
    assert theirs.record.outcome is PlacementOutcome.POLICY_DENIED


async def test_what_was_released_stays_released_when_asked_again(serving: ServingEstate) -> None:
    await serving.pool()
    name = uuid4()
    await serving.place(placement_id=name)
    await serving.hand.release(ACME, name)
    again = await serving.place(placement_id=name)
    assert (again.record.state, again.credential, again.endpoint_ref) == (PlacementState.RELEASED, None, None)


async def test_a_placement_whose_time_is_over_opens_nothing_when_asked_again(serving: ServingEstate) -> None:
    """Whether or not the collector has come by: who may not renew gets no credential either."""
    await serving.pool()
    name = uuid4()
    first = await serving.place(placement_id=name)
    assert first.record.expires_at is not None
    serving.clock.move((first.record.expires_at - serving.clock()).total_seconds() - 1)
    assert (await serving.place(placement_id=name)).credential is not None
    serving.clock.move(1)
    again = await serving.place(placement_id=name)
    assert (again.record.state, again.credential, again.endpoint_ref) == (PlacementState.EXPIRED, None, None)
    renewed = await serving.hand.renew(ACME, name)
    assert renewed is not None
    assert renewed.expires_at == again.record.expires_at
    await serving.memory_is_right()


async def test_without_secrets_a_placement_fails_at_once_and_keeps_nothing(serving: ServingEstate) -> None:
    await serving.pool()
    serving.vault.down = True
    name = uuid4()
    refused = await serving.hand.place(ACME, wanted(), placement_id=name)
    assert isinstance(refused, Refused)
    assert refused.reason is PlaceRefusal.SECRETS_UNAVAILABLE
    assert await serving.committed() == 0
    assert await serving.run("SELECT count(*) FROM model_placements") == [(0,)]
    assert await serving.run("SELECT count(*) FROM outbox") == [(0,)]
    serving.vault.down = False
    assert (await serving.place(placement_id=name)).record.held


async def test_a_cold_placement_is_started_and_a_warm_one_needs_nothing(serving: ServingEstate) -> None:
    await serving.pool()
    cold = await serving.place()
    await serving.load()
    warm = await serving.place()
    await serving.hand.settle()
    assert (cold.record.warm, warm.record.warm) == (False, True)
    (started,) = serving.starts.started
    assert (started.tenant_id, started.placement_id) == (ACME, cold.record.placement_id)
    assert (started.pool_tenant_id, started.pool_id, started.model) == (ACME, "gpu-1", MODEL)


async def test_a_model_that_somebody_loads_already_is_started_for_nobody_else(
    serving: ServingEstate,
) -> None:
    await serving.pool()
    await serving.place()
    await serving.run(
        "UPDATE cached_models SET state = 'loading', load_key = gen_random_uuid(), load_started_at = :now,"
        " load_until = :until",
        now=serving.clock(),
        until=serving.later(10),
    )
    counting_on_it = await serving.place()
    assert (counting_on_it.record.held, counting_on_it.record.warm) == (True, False)
    serving.clock.move(11)
    after_the_lease = await serving.place()
    await serving.hand.settle()
    started = [one.placement_id for one in serving.starts.started]
    assert counting_on_it.record.placement_id not in started
    assert after_the_lease.record.placement_id in started
    assert len(started) == 2


async def test_a_model_that_leaves_at_this_moment_is_loaded_for_whoever_is_placed(
    serving: ServingEstate,
) -> None:
    await serving.pool(loaded=MODEL)
    await serving.run(
        "UPDATE cached_models SET state = 'loading', loaded_at = NULL, load_key = gen_random_uuid(),"
        " load_until = :until",
        until=serving.later(10),
    )
    placed = await serving.place()
    assert (placed.record.held, placed.record.warm, placed.record.cold_start_seconds) == (True, False, 40)
    await serving.hand.settle()
    assert [one.placement_id for one in serving.starts.started] == [placed.record.placement_id]


async def test_a_release_is_told_to_the_workflow_that_there_is(serving: ServingEstate) -> None:
    await serving.pool()
    cold = await serving.place()
    await serving.load()
    warm = await serving.place()
    for one in (cold, cold, warm):
        await serving.hand.release(ACME, one.record.placement_id)
    await serving.hand.settle()
    assert [one.placement_id for one in serving.starts.told] == [cold.record.placement_id]


async def test_starts_under_way_are_bounded(serving: ServingEstate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_placement_telling, "MAX_UNDER_WAY", 1)
    await serving.pool()
    release = asyncio.Event()

    async def slow(request: ModelPlacementInput) -> str:
        await release.wait()
        serving.starts.started.append(request)
        return "started"

    monkeypatch.setattr(serving.starts, "start_model_placement", slow)
    for number in range(2):
        assert (await serving.place(wanted(model=f"model-{number}"))).record.held
    release.set()
    await serving.hand.settle()
    assert [one.model for one in serving.starts.started] == ["model-0"]


async def test_a_start_that_is_lost_loses_no_placement(serving: ServingEstate) -> None:
    await serving.pool()
    serving.starts.down = True
    placed = await serving.place()
    await serving.hand.settle()
    assert (placed.record.held, serving.starts.started) == (True, [])


async def test_a_release_gives_memory_back_once(serving: ServingEstate) -> None:
    await serving.pool()
    first, second = await serving.place(), await serving.place()
    await serving.hand.release(ACME, first.record.placement_id)
    assert await serving.committed() == 70
    serving.clock.move(5)
    ended = await serving.hand.release(ACME, second.record.placement_id)
    again = await serving.hand.release(ACME, second.record.placement_id)
    assert ended is not None
    assert ended == again
    assert (ended.state, ended.ended_at) == (PlacementState.RELEASED, serving.clock())
    assert await serving.committed() == 0
    await serving.memory_is_right()
    assert await serving.hand.release(ACME, uuid4()) is None


async def test_a_placement_of_another_tenant_cannot_be_released_or_renewed(serving: ServingEstate) -> None:
    await serving.pool()
    placed = await serving.place()
    assert await serving.hand.release("others", placed.record.placement_id) is None
    assert await serving.hand.renew("others", placed.record.placement_id) is None
    assert await serving.committed() == 70


async def test_a_renewal_holds_longer_and_wakes_nothing_that_ended(serving: ServingEstate) -> None:
    await serving.pool()
    placed = await serving.place()
    serving.clock.move(300)
    renewed = await serving.hand.renew(ACME, placed.record.placement_id)
    assert renewed is not None
    assert renewed.expires_at == serving.later(600)
    serving.clock.move(600)
    over = await serving.hand.renew(ACME, placed.record.placement_id)
    assert over is not None
    assert over.expires_at == serving.clock()
    await serving.hand.release(ACME, placed.record.placement_id)
    ended = await serving.hand.renew(ACME, placed.record.placement_id)
    assert ended is not None
    assert ended.state is PlacementState.RELEASED


async def test_a_price_limit_and_the_decimal_places_of_prices_are_exact(serving: ServingEstate) -> None:
    await serving.pool(price_per_hour_usd=Decimal("1.000001"))
    assert reasons(await serving.place(wanted(max_price_per_hour_usd=Decimal(1)))) == {"gpu-1": Reason.PRICE}
    assert (await serving.place(wanted(max_price_per_hour_usd=Decimal("1.000001")))).record.held

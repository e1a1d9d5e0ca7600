"""Observing: what the provider says of a region is what the registry holds, and never less than is booked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import cast

import psycopg
import pytest
import pytest_asyncio
from prometheus_client import REGISTRY
from structlog.testing import capture_logs
from temporalio.exceptions import ApplicationError

from activities.observing import ObservingActivities
from activities.ports import Catalog, PoolObservation, ProviderError, ProviderErrorKind, QuotaState
from activities.scoring_calls import Observed, ObserveRequest
from domain.placement.scoring import PoolInputs
from domain.policy import ScoringPolicy
from store import quota_holds
from tests.activities.deciding import Placer, counts_are_right, halls
from tests.estates import TENANT, Estate, contract

POOL, OTHER = "eu-north-h1-p1", "eu-north-h2-p1"
BOUNDLESS = QuotaState(None, 0, None, 0, None, 0)


@dataclass
class TalkingCatalog:
    """The part of the port `Catalog` that an observation asks."""

    pools: Sequence[PoolInputs]
    free: int = 10
    free_24h: int = 8
    quota_now: QuotaState = BOUNDLESS
    refused_meanwhile: Callable[[], None] | None = None
    lost: frozenset[str] = frozenset()
    silent_about: tuple[str, ...] = ()
    price: str | None = None
    refusal: ProviderError | None = None
    asked: list[str] = field(default_factory=list)

    def observe(self, region: str) -> Sequence[PoolObservation]:
        self.asked.append(region)
        if self.refusal is not None:
            raise self.refusal
        spoken = [
            PoolObservation(
                region=region,
                hall=one.facts.hall,
                flavor=one.facts.flavor,
                purchase_model=one.facts.purchase_model.value,
                total_instances=100,
                free_instances=self.free,
                free_24h_instances=self.free_24h,
                price_per_hour_usd=self.price or str(one.facts.price_per_hour_usd),
                guaranteed_price_per_hour_usd=str(one.facts.guaranteed_price_per_hour_usd),
            )
            for one in self.pools
            if one.facts.pool_id not in self.silent_about
        ]
        return [*spoken, replace(spoken[0], flavor="unheard.of")]

    def quota(self, region: str) -> QuotaState:
        if self.refused_meanwhile is not None:
            self.refused_meanwhile()
        return self.quota_now

    def lost_halls(self, region: str) -> frozenset[str]:
        return self.lost


class Observer:
    def __init__(self, estate: Estate) -> None:
        self.estate = estate
        self.catalog = TalkingCatalog([one for one in estate.pools if one.facts.region == "eu-north"])

    async def observe(self, **said: object) -> Observed:
        for name, value in said.items():
            setattr(self.catalog, name, value)
        hands = ObservingActivities(
            self.estate.engine, cast(Catalog, self.catalog), policy=ScoringPolicy(), now=self.estate.clock
        )
        return await hands.observe_region(ObserveRequest(tenant_id=TENANT, region="eu-north"))

    async def budget(self) -> None:
        await self.estate.rows(
            "INSERT INTO provider_budgets (tenant_id, region, tokens, burst, refill_per_second)"
            " VALUES (:tenant, 'eu-north', 5, 5, 1)",
            tenant=TENANT,
        )

    async def hold(self) -> datetime | None:
        async with self.estate.engine.begin() as connection:
            return await quota_holds.hold(connection, TENANT, "eu-north", "no cores", self.estate.clock())

    async def held_until(self) -> datetime | None:
        async with self.estate.engine.connect() as connection:
            return await quota_holds.held_until(connection, TENANT, "eu-north")

    async def known(self, column: str, pool_id: str = POOL) -> object:
        query = f"SELECT {column} FROM pools JOIN pool_capacity USING (tenant_id, pool_id) WHERE pool_id = :p"
        return await self.estate.value(query, p=pool_id)


@pytest_asyncio.fixture
async def observer(estate: Estate) -> Observer:
    """Two pools observed, one of another region that is not, and six units that run in the two."""
    await estate.open([*halls(2, per_hall=1), *halls(1, per_hall=1, region="eu-west")], free=10)
    await estate.workload("orders", contract("halves", pool="0.5", group="0.5"))
    placer = Placer(estate)
    await placer.place(6)
    await placer.run()
    return Observer(estate)


async def test_capacity_is_what_is_free_and_what_runs_there(observer: Observer) -> None:
    seen = await observer.observe(free=7, free_24h=5)
    assert (seen.region, seen.pools, seen.lost_halls) == ("eu-north", 2, ())
    assert await observer.known("capacity_instances") == 7 + 3
    assert await observer.known("free_24h_instances") == 5
    assert await observer.known("reported_at") == observer.estate.clock()
    assert await observer.known("reported_at", "eu-west-h1-p1") != observer.estate.clock()


async def test_capacity_is_never_less_than_what_is_promised(observer: Observer) -> None:
    placer = Placer(observer.estate)
    await placer.place(20)
    await observer.observe(free=0)
    assert await observer.known("capacity_instances - reserved_instances") == 0
    await counts_are_right(observer.estate)
    assert (await placer.place(24)).shortfall_reason == "capacity"


async def test_a_pool_that_the_provider_does_not_speak_of_grows_stale(observer: Observer) -> None:
    before = await observer.known("reported_at")
    observer.estate.clock.move(60)
    assert (await observer.observe(silent_about=(POOL,))).pools == 1
    assert await observer.known("reported_at") == before
    assert await observer.known("reported_at", OTHER) == observer.estate.clock()


async def test_an_observation_is_no_report_of_an_endpoint(observer: Observer) -> None:
    """A pool that serves models is heard of by its agent, whatever the provider lists."""
    await observer.estate.rows(
        "UPDATE pools SET endpoint_ref = 'https://gpu.example.net', vram_gb = 80 WHERE pool_id = :p", p=POOL
    )
    before = await observer.known("reported_at")
    observer.estate.clock.move(60)
    await observer.observe(free=7)
    assert await observer.known("reported_at") == before
    assert await observer.known("capacity_instances") == 7 + 3


async def test_prices_follow_the_rate_card(observer: Observer) -> None:
    await observer.observe(price="0.123456")
    assert await observer.known("price_per_hour_usd") == Decimal("0.123456")
    assert await observer.known("version") == 1


@pytest.mark.parametrize(
    ("quota", "room", "left", "alarm"),
    [
        (BOUNDLESS, None, 1.0, 0.0),
        (QuotaState(400, 200, None, 0, None, 0), 50, 0.5, 0.0),
        (QuotaState(400, 320, 16 * 1024 * 1000, 0, 100, 6), 20, 0.2, 1.0),
        (QuotaState(None, 0, None, 0, 6, 6), 0, 0.0, 1.0),
        (QuotaState(None, 0, None, 0, 6, 9), 0, 0.0, 1.0),
    ],
)
async def test_the_quota_bounds_pools_and_sounds_an_alarm(
    observer: Observer, quota: QuotaState, room: int | None, left: float, alarm: float
) -> None:
    await observer.observe(quota_now=quota)
    assert await observer.known("quota_instances") == room
    region = {"region": "eu-north"}
    assert REGISTRY.get_sample_value("sco_quota_left_ratio", region) == pytest.approx(left)
    assert REGISTRY.get_sample_value("sco_quota_alarm", region) == alarm


async def test_what_is_planned_and_not_launched_is_taken_from_the_quota(observer: Observer) -> None:
    quota = QuotaState(None, 0, None, 0, 20, 6)
    await observer.observe(quota_now=quota)
    assert await observer.known("quota_instances") == 14
    await Placer(observer.estate).place(10)
    await observer.observe(quota_now=quota)
    assert await observer.known("quota_instances") == 10


async def test_a_lost_hall_closes_its_pools_until_it_is_back(observer: Observer) -> None:
    seen = await observer.observe(lost=frozenset({"eu-north-h1"}))
    assert seen.lost_halls == ("eu-north-h1",)
    assert (await observer.known("hall_lost"), await observer.known("hall_lost", OTHER)) == (True, False)
    decided = await Placer(observer.estate).decide()
    assert (decided.releases, decided.shortfall_units) == (True, 3)
    await observer.observe(lost=frozenset())
    assert await observer.known("hall_lost") is False
    assert (await Placer(observer.estate).decide()).shortfall_units == 0


async def test_a_hall_that_returns_forgives_no_exclusion(observer: Observer) -> None:
    await observer.observe(lost=frozenset({"eu-north-h1"}))
    await observer.estate.rows("UPDATE pool_capacity SET standing = 'excluded' WHERE pool_id = :p", p=POOL)
    await observer.observe(lost=frozenset())
    assert (await observer.known("hall_lost"), await observer.known("standing")) == (False, "excluded")


async def test_a_provider_that_does_not_answer_changes_nothing(observer: Observer) -> None:
    before = await observer.known("reported_at")
    observer.estate.clock.move(60)
    with pytest.raises(ApplicationError, match="no answer") as failed:
        await observer.observe(refusal=ProviderError(ProviderErrorKind.UNAVAILABLE, "no answer"))
    assert (failed.value.type, failed.value.non_retryable) == ("unavailable", False)
    assert await observer.known("reported_at") == before


NEARLY_FULL, EASY = QuotaState(400, 330, None, 0, 100, 6), QuotaState(400, 100, None, 0, 100, 6)


async def test_an_errored_server_and_a_planned_slot_are_each_counted_once(observer: Observer) -> None:
    """The provider counts six that run, one in error and one just asked for; three more are planned."""
    await Placer(observer.estate).place(10)
    await observer.estate.rows(
        "UPDATE instances SET requested_at = :at WHERE slot_key ="
        " (SELECT min(slot_key) FROM instances WHERE state = 'planned')",
        at=observer.estate.clock(),
    )
    await observer.observe(quota_now=QuotaState(100, 8 * 4, None, 0, 20, 8))
    rows = await observer.estate.rows(
        "SELECT resource, quota_limit, used, pending, alarm FROM quota_reports ORDER BY 1"
    )
    assert rows == [
        ("cores", 100, 32, 12, False),
        ("instances", 20, 8, 3, False),
        ("ram_mib", None, 0, 3 * 16 * 1024, False),
    ]
    assert await observer.known("quota_instances") == 9


async def test_a_low_quota_is_told_once_until_it_was_better(observer: Observer) -> None:
    async def told(quota: QuotaState) -> list[tuple[object, ...]]:
        with capture_logs() as logs:
            await observer.observe(quota_now=quota)
        return [
            (one["region"], one["resource"], one["limit"], one["left"])
            for one in logs
            if one["event"] == "quota_low"
        ]

    assert await told(EASY) == []
    assert await told(NEARLY_FULL) == [("eu-north", "cores", 400, 70)]
    assert await told(NEARLY_FULL) == []
    assert await told(EASY) == []
    assert await told(NEARLY_FULL) == [("eu-north", "cores", 400, 70)]


async def test_a_quota_hold_lasts_while_a_quota_is_low_and_ends_with_room(observer: Observer) -> None:
    hold_of = {"region": "eu-north"}
    await observer.budget()
    until = await observer.hold()
    observer.estate.clock.move(10)
    await observer.observe(quota_now=NEARLY_FULL)
    assert await observer.held_until() == until
    assert REGISTRY.get_sample_value("sco_quota_hold_seconds", hold_of) == 50
    await observer.observe(quota_now=EASY)
    assert await observer.held_until() is None
    assert REGISTRY.get_sample_value("sco_quota_hold_seconds", hold_of) == 0


async def test_a_refusal_while_the_provider_is_asked_stays_held(observer: Observer, dsn: str) -> None:
    await observer.budget()
    await observer.hold()
    observer.estate.clock.move(3600)

    def refused() -> None:
        with psycopg.connect(dsn) as connection:
            connection.execute(
                "UPDATE provider_budgets SET quota_refusals = 2, quota_until = quota_until + interval '1 day'"
            )

    await observer.observe(quota_now=EASY, refused_meanwhile=refused)
    assert await observer.held_until() is not None
    await observer.observe(quota_now=EASY, refused_meanwhile=None)
    assert await observer.held_until() is None

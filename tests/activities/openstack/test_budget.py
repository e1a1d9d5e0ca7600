"""Waiting for tokens: bounded, jittered, refusing when the bucket cannot be used."""

from __future__ import annotations

import random
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy.exc import OperationalError

from activities.openstack.budget import SHORTEST_SLEEP_SECONDS, StoreTokenBudget
from activities.openstack.metrics import ProviderMetrics
from activities.ports import ProviderErrorKind
from store.budget import BudgetStore, Taken
from tests.activities.openstack.hands import REGION, caught, store_budget


class ScriptedStore(BudgetStore):
    """A bucket that answers from a script, then always lets wait."""

    def __init__(self, answers: Iterable[Taken | Exception]) -> None:
        self._answers = iter(answers)

    def try_take(self, region: str) -> Taken:
        answer = next(self._answers, Taken(False, 3.0))
        if isinstance(answer, Exception):
            raise answer
        return answer


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def waiting(
    answers: Iterable[Taken | Exception], max_wait_seconds: float = 10.0
) -> tuple[StoreTokenBudget, Clock, CollectorRegistry]:
    clock, registry = Clock(), CollectorRegistry()
    budget = StoreTokenBudget(
        ScriptedStore(answers),
        ProviderMetrics(registry),
        max_wait_seconds=max_wait_seconds,
        rng=random.Random(1),
        sleep=clock.sleep,
        monotonic=lambda: clock.now,
    )
    return budget, clock, registry


def test_a_token_that_is_there_is_taken_without_sleep() -> None:
    budget, clock, registry = waiting([Taken(True, 0.0)])
    budget.take(REGION)
    assert clock.slept == []
    assert registry.get_sample_value("sco_provider_budget_wait_seconds_count", {"region": REGION}) == 1


def test_it_sleeps_what_the_bucket_says_and_up_to_as_much_again() -> None:
    budget, clock, registry = waiting([Taken(False, 2.0), Taken(False, 1.0), Taken(True, 0.0)])
    budget.take(REGION)
    first, second = clock.slept
    assert 2.0 <= first < 4.0
    assert 1.0 <= second < 2.0
    assert first != 2 * second
    waited = registry.get_sample_value("sco_provider_budget_wait_seconds_sum", {"region": REGION})
    assert waited == pytest.approx(first + second)


def test_it_never_spins() -> None:
    budget, clock, _ = waiting([Taken(False, 0.0), Taken(True, 0.0)])
    budget.take(REGION)
    assert clock.slept == [SHORTEST_SLEEP_SECONDS]


def test_it_gives_up_after_the_most_it_may_wait_with_one_last_try() -> None:
    budget, clock, _ = waiting([], max_wait_seconds=10.0)
    error = caught(budget.take, REGION)
    assert (error.kind, error.in_doubt) == (ProviderErrorKind.THROTTLED, False)
    assert error.retry_after_seconds == 3.0
    assert clock.now == pytest.approx(10.0)
    assert "within 10 s" in str(error)
    late, _, _ = waiting([Taken(False, 20.0), Taken(True, 0.0)], max_wait_seconds=10.0)
    late.take(REGION)


def test_a_bucket_that_cannot_be_read_refuses_and_shows_no_address() -> None:
    failure = OperationalError("select", {}, Exception("postgresql://sco:hunter2@db/sco"))
    error = caught(waiting([failure])[0].take, REGION)
    assert error.kind is ProviderErrorKind.UNAVAILABLE
    assert "OperationalError" in str(error)
    assert "hunter2" not in str(error)


def test_a_region_without_a_bucket_is_refused_by_name(budgets: BudgetStore) -> None:
    error = caught(store_budget(budgets).take, "eu-moon")
    assert error.kind is ProviderErrorKind.UNAVAILABLE
    assert "no provider budget is set for region 'eu-moon'" in str(error)


def test_waiters_of_one_real_bucket_all_get_a_token(budgets: BudgetStore) -> None:
    budgets.set_budget(REGION, burst=2, refill_per_second=Decimal(50))
    budget = store_budget(budgets)
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(budget.take, REGION) for _ in range(24)]:
            done.result(60)
    budgets.set_budget(REGION, burst=2, refill_per_second=Decimal("0.001"))
    for _ in range(2):
        budgets.try_take(REGION)
    assert budgets.try_take(REGION).taken is False

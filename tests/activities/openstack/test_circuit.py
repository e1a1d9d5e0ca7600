"""A region that is unwell, on the wire: the calls stop for every worker, one tries, and all go on."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal

import psycopg
import pytest

from activities.ports import ProviderErrorKind
from lab.cloud.faults import FaultKind, FaultRule
from lab.cloud.server import CloudHandle
from store.budget import BudgetStore
from tests.activities.openstack.hands import REGION, Hands, caught, seen_by, spec, store_budget

LISTS = "/servers"


@pytest.fixture
def workers(cloud: CloudHandle, budgets: BudgetStore, budget_dsn: str) -> Iterator[tuple[Hands, Hands]]:
    """Two workers, signed in, that share nothing but the database."""
    second = BudgetStore(budget_dsn, tenant_id="platform")
    budgets.set_budget("eu-west", burst=1_000, refill_per_second=Decimal("0.001"))
    made = tuple(Hands(cloud, store_budget(store, max_wait_seconds=0.2)) for store in (budgets, second))
    for hands in made:
        hands.compute.list_managed(REGION)
    yield made[0], made[1]
    for hands in made:
        hands.connections.close()
    second.close()


def change(dsn: str, what: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(f"UPDATE provider_budgets SET {what} WHERE region = %s", (REGION,))


@contextmanager
def unwell(cloud: CloudHandle, **rule: object) -> Iterator[None]:
    cloud.admin.add_fault(FaultRule.model_validate({"region": REGION, "times": None, **rule}))
    try:
        yield
    finally:
        cloud.admin.clear_faults()


def test_a_region_that_fails_is_left_alone_by_every_worker_until_one_call_is_answered(
    cloud: CloudHandle, workers: tuple[Hands, Hands], budget_dsn: str
) -> None:
    first, second = workers
    with unwell(cloud, kind=FaultKind.ERROR_BEFORE):
        for hands in (first, second, first, second, first):
            assert "HTTP 503" in str(caught(hands.compute.list_managed, REGION))
        received = seen_by(cloud)
        for hands in workers:
            error = caught(hands.compute.create_batch, spec(), 2)
            assert (error.kind, error.in_doubt) == (ProviderErrorKind.UNAVAILABLE, False)
            assert error.retry_after_seconds is not None
            assert 0 < error.retry_after_seconds <= 15
            assert "eu-north: the circuit is open since" in str(error)
            assert "the region answered with a server error (5xx)" in str(error)
        assert seen_by(cloud) == received
        assert second.compute.list_managed("eu-west") == []
        change(budget_dsn, "circuit_until = now()")
        with ThreadPoolExecutor(8) as pool:
            told = list(pool.map(lambda _: str(caught(first.compute.list_managed, REGION)), range(8)))
        assert sum("HTTP 503" in one for one in told) == 1
    change(budget_dsn, "circuit_until = now()")
    assert second.compute.list_managed(REGION) == []
    assert first.compute.list_managed(REGION) == []
    assert first.calls()["circuit_open"] + second.calls()["circuit_open"] == 2 + 7


def test_a_silent_region_opens_it_too(cloud: CloudHandle, budgets: BudgetStore) -> None:
    hands = Hands(cloud, store_budget(budgets), read_timeout_seconds=0.2)
    hands.compute.list_managed(REGION)
    with unwell(cloud, kind=FaultKind.TIMEOUT_BEFORE, delay_seconds=1):
        for _ in range(5):
            caught(hands.compute.list_managed, REGION)
        assert "the region did not answer in time" in str(caught(hands.compute.list_managed, REGION))
    hands.connections.close()


def test_refusals_never_open_it(cloud: CloudHandle, workers: tuple[Hands, Hands]) -> None:
    hands, _ = workers
    with unwell(cloud, kind=FaultKind.QUOTA_EXCEEDED):
        kinds = [caught(hands.compute.create_batch, spec(f"b-{number}"), 1).kind for number in range(8)]
    assert set(kinds) == {ProviderErrorKind.QUOTA}
    assert hands.compute.list_managed(REGION) == []


def test_a_throttled_answer_pauses_every_worker_for_as_long_as_the_provider_asks(
    cloud: CloudHandle, workers: tuple[Hands, Hands], budget_dsn: str
) -> None:
    first, second = workers
    with unwell(cloud, kind=FaultKind.RATE_LIMITED, retry_after_seconds=40):
        assert caught(first.compute.list_managed, REGION).retry_after_seconds == 40
    received = seen_by(cloud)
    for hands in workers:
        error = caught(hands.compute.list_managed, REGION)
        assert error.kind is ProviderErrorKind.THROTTLED
        assert error.retry_after_seconds is not None
        assert 30 < error.retry_after_seconds <= 40
        assert hands.calls()["paused"] == 1
    assert seen_by(cloud) == received
    change(budget_dsn, "paused_until = now()")
    assert second.compute.list_managed(REGION) == []


def test_a_create_that_failed_is_in_doubt_and_one_that_was_not_sent_is_not(
    cloud: CloudHandle, workers: tuple[Hands, Hands]
) -> None:
    hands, _ = workers
    with unwell(cloud, kind=FaultKind.ERROR_AFTER, method="POST"):
        doubts = [caught(hands.compute.create_batch, spec(f"b-{number}"), 1).in_doubt for number in range(6)]
    assert doubts == [True] * 5 + [False]

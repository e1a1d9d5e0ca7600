"""Connections: every call costs a token, signing in included; threads share; secrets stay inside."""

from __future__ import annotations

import socket
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from threading import Event

import psycopg
import pytest
from pydantic import SecretStr

from activities.ports import ProviderErrorKind
from lab.cloud.faults import FaultKind, FaultRule
from lab.cloud.server import CloudHandle
from store.budget import BudgetStore
from tests.activities.openstack.hands import (
    REGION,
    CountingBudget,
    Hands,
    caught,
    seen_by,
    spec,
    store_budget,
)

NOBODY = "00000000-0000-4000-8000-000000000000"
THREADS = 8


def tokens_left(dsn: str) -> Decimal:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "SELECT tokens FROM provider_budgets WHERE region = %s", (REGION,)
        ).fetchone()
    assert row is not None
    return Decimal(row[0])


def test_tokens_taken_are_exactly_the_requests_that_the_cloud_received(
    cloud: CloudHandle, budgets: BudgetStore, budget_dsn: str
) -> None:
    hands = Hands(cloud, store_budget(budgets))
    before = tokens_left(budget_dsn)
    hands.catalog.catalog(REGION)
    hands.catalog.observe(REGION)
    hands.compute.create_batch(spec(), 3)
    cloud.admin.load(REGION, 1_500, tags=("sco:managed",))
    cloud.admin.add_fault(FaultRule(kind=FaultKind.LIST_PAGE_ERROR))
    caught(hands.compute.list_managed, REGION)
    hands.compute.list_managed(REGION)
    cloud.admin.add_fault(FaultRule(kind=FaultKind.RATE_LIMITED, path="/limits$"))
    caught(hands.catalog.quota, REGION)
    cloud.admin.expire_tokens()
    hands.compute.delete(REGION, NOBODY)
    received = sum(seen_by(cloud).values())
    assert received == round(before - tokens_left(budget_dsn))
    assert received == sum(hands.calls().values())
    assert received > 15
    hands.connections.close()


def test_the_first_call_signs_in_and_discovers_once_for_all_threads(cloud: CloudHandle, hands: Hands) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(hands.compute.list_managed, REGION) for _ in range(THREADS)]:
            assert done.result(30) == []
    asked = [each["path"].rsplit("/", 1)[-1] for each in cloud.admin.requests(recent=50)["recent"]]
    assert (asked.count("tokens"), asked.count("v2.1"), asked.count("detail")) == (1, 1, THREADS)
    assert hands.counted.taken == {REGION: len(asked)}


def test_nobody_waits_for_ever_behind_a_login(cloud: CloudHandle) -> None:
    reached, released = Event(), Event()

    class StuckBudget(CountingBudget):
        def take(self, region: str) -> None:
            reached.set()
            released.wait(30)

    hands = Hands(cloud, StuckBudget(), read_timeout_seconds=0.2)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(hands.compute.list_managed, REGION)
        assert reached.wait(30)
        error = caught(hands.compute.create_batch, spec(), 1)
        released.set()
        assert first.result(30) == []
    assert (error.kind, error.in_doubt) == (ProviderErrorKind.UNAVAILABLE, False)
    assert "still signing in" in str(error)
    hands.connections.close()


def test_an_expired_token_costs_the_refusal_the_login_and_the_second_try(
    cloud: CloudHandle, hands: Hands
) -> None:
    hands.compute.list_managed(REGION)
    before = hands.counted.taken[REGION]
    cloud.admin.clear_requests()
    cloud.admin.expire_tokens()
    assert hands.compute.list_managed(REGION) == []
    assert hands.counted.taken[REGION] - before == 3
    assert seen_by(cloud) == {REGION: 2, "identity": 1}


def test_identity_calls_count_to_the_region_they_are_for(cloud: CloudHandle, hands: Hands) -> None:
    hands.catalog.lost_halls("eu-north")
    hands.catalog.lost_halls("eu-west")
    assert hands.counted.taken == {"eu-north": 3, "eu-west": 3}
    assert seen_by(cloud) == {"eu-north": 2, "eu-west": 2, "identity": 2}


def test_threads_cannot_exceed_the_budget(cloud: CloudHandle, budgets: BudgetStore) -> None:
    burst, refill, calls_per_thread = 5, 40, 8
    hands = Hands(cloud, store_budget(budgets))
    hands.compute.list_managed(REGION)
    cloud.admin.clear_requests()
    full_at = time.monotonic()
    budgets.set_budget(REGION, burst=burst, refill_per_second=Decimal(refill))

    def hammer() -> None:
        for _ in range(calls_per_thread):
            hands.compute.delete(REGION, NOBODY)

    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(hammer) for _ in range(THREADS)]:
            done.result(60)
    arrivals = sorted(each["at"] for each in cloud.admin.requests(recent=1_000)["recent"])
    assert len(arrivals) == THREADS * calls_per_thread
    for number, at in enumerate(arrivals, start=1):
        assert number <= burst + refill * (at - full_at)
    hands.connections.close()


def test_without_a_token_nothing_is_sent(cloud: CloudHandle, budgets: BudgetStore) -> None:
    hands = Hands(cloud, store_budget(budgets, max_wait_seconds=0.1))
    hands.compute.list_managed(REGION)
    budgets.set_budget(REGION, burst=1, refill_per_second=Decimal("0.001"))
    hands.compute.delete(REGION, NOBODY)
    received = seen_by(cloud)
    error = caught(hands.compute.create_batch, spec(), 2)
    assert (error.kind, error.in_doubt) == (ProviderErrorKind.THROTTLED, False)
    assert error.retry_after_seconds is not None
    assert error.retry_after_seconds > 100
    assert seen_by(cloud) == received
    assert hands.calls()["no_budget"] == 1
    hands.connections.close()


def test_a_login_that_failed_is_tried_again_by_the_next_call(cloud: CloudHandle, hands: Hands) -> None:
    cloud.admin.add_fault(FaultRule(kind=FaultKind.ERROR_BEFORE, path="/auth/tokens$"))
    error = caught(hands.compute.create_batch, spec(), 1)
    assert (error.kind, error.in_doubt) == (ProviderErrorKind.UNAVAILABLE, False)
    hands.compute.create_batch(spec(), 1)


@pytest.mark.parametrize("fault", [FaultKind.ERROR_BEFORE, FaultKind.RATE_LIMITED])
def test_a_discovery_that_failed_leaves_the_address_of_the_catalog(
    cloud: CloudHandle, hands: Hands, fault: FaultKind
) -> None:
    cloud.admin.add_fault(FaultRule(kind=fault, path="/compute/v2.1/?$", times=None))
    hands.compute.create_batch(spec(), 2)
    assert len(hands.compute.list_managed(REGION)) == 2
    assert sum(seen_by(cloud).values()) == hands.counted.taken[REGION]


def test_a_refused_connection_is_unavailable_and_never_in_doubt(cloud: CloudHandle) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v3"
        hands = Hands(cloud, auth_url=url)
        error = caught(hands.compute.create_batch, spec(), 1)
    assert (error.kind, error.in_doubt) == (ProviderErrorKind.UNAVAILABLE, False)
    assert hands.calls() == {"unreachable": 1}


def test_a_cloud_that_went_away_refuses_a_create_without_doubt() -> None:
    with CloudHandle.start_in_thread() as cloud:
        hands = Hands(cloud)
        hands.catalog.catalog(REGION)
    error = caught(hands.compute.create_batch, spec(), 1)
    assert (error.kind, error.in_doubt) == (ProviderErrorKind.UNAVAILABLE, False)
    hands.connections.close()


def test_silence_is_bounded_on_every_call(cloud: CloudHandle) -> None:
    hands = Hands(cloud, read_timeout_seconds=0.3)
    for path in ("/auth/tokens$", "/halls$"):
        cloud.admin.add_fault(FaultRule(kind=FaultKind.TIMEOUT_BEFORE, path=path))
        error = caught(hands.catalog.lost_halls, REGION)
        assert (error.kind, error.in_doubt) == (ProviderErrorKind.UNAVAILABLE, False)
        assert "timed out" in str(error)
    assert hands.calls()["timeout"] == 2
    hands.connections.close()


def test_an_application_credential_signs_in(cloud: CloudHandle) -> None:
    known = cloud.credentials
    hands = Hands(
        cloud,
        username=None,
        password=None,
        project=None,
        application_credential_id=known.application_credential_id,
        application_credential_secret=SecretStr(known.application_credential_secret),
    )
    assert hands.catalog.lost_halls(REGION) == frozenset()
    hands.connections.close()


def test_a_wrong_password_says_so_and_shows_no_secret(cloud: CloudHandle) -> None:
    hands = Hands(cloud, password=SecretStr("wrong-horse-battery"))
    error = caught(hands.compute.list_managed, REGION)
    assert error.kind is ProviderErrorKind.UNAVAILABLE
    assert "HTTP 401" in str(error)
    shown = "".join(traceback.format_exception(error))
    assert "wrong-horse-battery" not in shown


def test_errors_show_no_token(cloud: CloudHandle, hands: Hands) -> None:
    hands.compute.list_managed(REGION)
    tokens = cloud.call(lambda inner: list(inner.identity._tokens))
    assert tokens
    for kind in (FaultKind.ERROR_BEFORE, FaultKind.RATE_LIMITED):
        cloud.admin.add_fault(FaultRule(kind=kind))
        shown = "".join(traceback.format_exception(caught(hands.compute.list_managed, REGION)))
        assert not [token for token in tokens if token in shown]


def test_an_unknown_region_is_refused_with_those_that_are_known(hands: Hands) -> None:
    error = caught(hands.compute.list_managed, "eu-moon")
    assert error.kind is ProviderErrorKind.BAD_REQUEST
    assert "eu-north, eu-west, eu-south" in str(error)
    assert hands.counted.taken == {}


def test_the_environment_does_not_redirect_calls(cloud: CloudHandle, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    hands = Hands(cloud)
    assert hands.compute.list_managed(REGION) == []
    hands.connections.close()

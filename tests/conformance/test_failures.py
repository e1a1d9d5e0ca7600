"""Answers that are lost, late or refusals: what each means, and what the next list then shows."""

from __future__ import annotations

import pytest

from activities.ports import ProviderErrorKind
from store.budget import BudgetStore
from tests.conformance.hands import Hands, caught, spec
from tests.conformance.provider import REGION, Provider

CREATE, LIST, ONE = r"/servers$", r"/servers/detail$", r"/servers/[0-9a-f-]{36}$"


@pytest.mark.parametrize("status", [500, 502, 503, 504])
@pytest.mark.parametrize("works", [False, True], ids=["before", "after"])
def test_a_create_that_ends_in_5xx_is_in_doubt_and_the_list_tells(
    provider: Provider, hands: Hands, workload: str, status: int, works: bool
) -> None:
    hands.warm()
    provider.fails("POST", CREATE, status, works=works)
    error = caught(hands.compute.create_batch, spec(workload), 2)
    assert (error.kind, error.in_doubt) == (ProviderErrorKind.UNAVAILABLE, True)
    assert f"HTTP {status}" in str(error)
    assert len(hands.compute.list_workload(REGION, workload)) == (2 if works else 0)


@pytest.mark.parametrize("works", [False, True], ids=["before", "after"])
def test_a_create_whose_connection_is_lost_is_in_doubt(
    provider: Provider, hands: Hands, workload: str, works: bool
) -> None:
    hands.warm()
    provider.drops("POST", CREATE, works=works)
    error = caught(hands.compute.create_batch, spec(workload), 2)
    assert (error.kind, error.in_doubt) == (ProviderErrorKind.UNAVAILABLE, True)
    assert "the call failed" in str(error)
    assert len(hands.compute.list_workload(REGION, workload)) == (2 if works else 0)


def test_a_create_that_is_not_answered_in_time_is_in_doubt_and_its_servers_are_found(
    provider: Provider, budgets: BudgetStore, workload: str
) -> None:
    hands = Hands(provider.settings(read_timeout_seconds=4), budgets)
    hands.warm()
    provider.holds("POST", CREATE)
    error = caught(hands.compute.create_batch, spec(workload), 2)
    assert (error.kind, error.in_doubt) == (ProviderErrorKind.UNAVAILABLE, True)
    assert "timed out" in str(error)
    assert len(hands.compute.list_workload(REGION, workload)) == 2
    hands.close()


def test_429_says_when_to_come_back_and_nothing_was_created(
    provider: Provider, hands: Hands, workload: str
) -> None:
    hands.warm()
    provider.throttles("POST", CREATE, 1)
    error = caught(hands.compute.create_batch, spec(workload), 2)
    assert (error.kind, error.in_doubt) == (ProviderErrorKind.THROTTLED, False)
    assert error.retry_after_seconds == 1
    assert hands.compute.list_workload(REGION, workload) == []


@pytest.mark.parametrize("works", [False, True], ids=["before", "after"])
def test_a_failed_delete_is_repeated_without_harm(
    provider: Provider, hands: Hands, workload: str, works: bool
) -> None:
    [server_id] = hands.running(workload, 1)
    provider.fails("DELETE", ONE, 503, works=works)
    assert caught(hands.compute.delete, REGION, server_id).kind is ProviderErrorKind.UNAVAILABLE
    hands.compute.delete(REGION, server_id)
    assert hands.settled(workload) == []


@pytest.mark.parametrize(("status", "works"), [(503, False), (504, True)])
def test_a_list_or_a_look_that_fails_is_no_list(
    provider: Provider, hands: Hands, workload: str, status: int, works: bool
) -> None:
    [server_id] = hands.running(workload, 1)
    provider.fails("GET", LIST, status, works=works)
    assert caught(hands.compute.list_managed, REGION).kind is ProviderErrorKind.UNAVAILABLE
    provider.fails("GET", LIST, status, works=works)
    assert caught(hands.compute.deleted_since, REGION, provider.now()).kind is ProviderErrorKind.UNAVAILABLE
    provider.fails("GET", ONE, status, works=works)
    assert caught(hands.compute.find, REGION, server_id).kind is ProviderErrorKind.UNAVAILABLE
    assert hands.compute.find(REGION, server_id) is not None

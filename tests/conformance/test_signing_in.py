"""Signing in: with a password or an application credential, and again when a token ends."""

from __future__ import annotations

from pydantic import SecretStr

from activities.ports import ProviderErrorKind
from store.budget import BudgetStore
from tests.conformance.hands import Hands, caught, spec
from tests.conformance.provider import REGION, Provider


def test_an_application_credential_is_enough(provider: Provider, budgets: BudgetStore, workload: str) -> None:
    hands = Hands(provider.settings(provider.application_credential()), budgets)
    [server_id] = hands.running(workload, 1)
    hands.compute.delete(REGION, server_id)
    hands.close()


def test_a_token_that_ends_in_mid_session_is_replaced(
    provider: Provider, hands: Hands, workload: str
) -> None:
    hands.running(workload, 1)
    first = hands.token()
    provider.end_token(first)
    assert len(hands.compute.list_workload(REGION, workload)) == 1
    assert hands.token() != first


def test_a_create_with_an_ended_token_is_carried_out_once(
    provider: Provider, hands: Hands, workload: str
) -> None:
    hands.warm()
    provider.end_token(hands.token())
    hands.compute.create_batch(spec(workload), 2)
    assert len(hands.settled(workload)) == 2


def test_a_refused_login_stops_the_region_and_names_no_secret(
    provider: Provider, budgets: BudgetStore
) -> None:
    unknown = {
        "application_credential_id": "nobody",
        "application_credential_secret": SecretStr("wrong-horse-battery"),
    }
    wrong = {**provider.credential(), "password": SecretStr("wrong-horse-battery")}
    for credential, status in ((wrong, 401), (unknown, 404)):
        hands = Hands(provider.settings(credential), budgets)
        for act, args in ((hands.compute.list_managed, ()), (hands.compute.find, ("some-id",))):
            error = caught(act, REGION, *args)
            assert (error.kind, error.in_doubt) == (ProviderErrorKind.UNAVAILABLE, False)
            assert f"HTTP {status}" in str(error)
            assert "wrong-horse-battery" not in str(error)
        hands.close()

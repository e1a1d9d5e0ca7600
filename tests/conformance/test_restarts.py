"""The provider's API ends in the middle of a batch: nothing is lost and nothing is made twice."""

from __future__ import annotations

import threading

from activities.ports import ProviderError, ProviderErrorKind
from domain.acquisition import ServerStatus
from tests.conformance.hands import Hands, spec, until
from tests.conformance.provider import REGION, Provider

CREATE = r"/servers$"


def test_a_batch_is_whole_after_the_api_ended_before_its_answer(
    provider: Provider, hands: Hands, workload: str
) -> None:
    hands.running(f"{workload}-before", 1)
    provider.holds("POST", CREATE)
    failures: list[ProviderError] = []

    def create() -> None:
        try:
            hands.compute.create_batch(spec(workload), 4)
        except ProviderError as error:
            failures.append(error)

    asking = threading.Thread(target=create)
    asking.start()
    asked = until(lambda: hands.compute.list_workload(REGION, workload), lambda listed: len(listed) == 4)
    provider.crash_and_restart()
    asking.join(60)

    [error] = failures
    assert (error.kind, error.in_doubt) == (ProviderErrorKind.UNAVAILABLE, True)
    provider.heals()
    listed = hands.compute.list_workload(REGION, workload)
    assert {each.server_id for each in listed} == {each.server_id for each in asked}
    assert {each.batch_key for each in listed} == {f"{workload}-b1"}
    [survivor] = hands.compute.list_workload(REGION, f"{workload}-before")
    assert survivor.status is ServerStatus.ACTIVE

    hands.compute.create_batch(spec(workload, f"{workload}-b2"), 1)
    assert until(
        lambda: hands.compute.list_workload(REGION, workload),
        lambda found: any(
            each.batch_key == f"{workload}-b2" and each.status is ServerStatus.ACTIVE for each in found
        ),
    )
    for each in hands.compute.list_workload(REGION, workload):
        hands.compute.delete(REGION, each.server_id)
    assert until(lambda: hands.compute.list_workload(REGION, workload), lambda found: not found) == []

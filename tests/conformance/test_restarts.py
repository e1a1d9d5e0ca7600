"""The provider's API ends in the middle of a batch: nothing is lost and nothing is made twice."""

from __future__ import annotations

import threading
import time

from activities.ports import ProviderError, ProviderErrorKind
from domain.acquisition import ServerStatus
from tests.conformance.hands import Hands, caught, spec, until
from tests.conformance.provider import REGION, Provider

CREATE = r"/servers$"
BATCH = 20
# Nova takes about half a second to write down a batch of 20.
CRASH_SECONDS = 0.35


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


def test_what_a_crash_in_mid_batch_left_out_can_be_asked_for_again(
    provider: Provider, hands: Hands, workload: str
) -> None:
    """However many were made before the end: as many more make the batch whole, and no more turn up."""
    hands.warm()
    asking = threading.Thread(target=lambda: caught(hands.compute.create_batch, spec(workload), BATCH))
    provider.fails("POST", CREATE, 504, works=True)
    asking.start()
    time.sleep(CRASH_SECONDS)
    provider.crash_and_restart()
    asking.join(60)
    provider.heals()

    first = hands.compute.list_workload(REGION, workload)
    assert len(first) <= BATCH
    if len(first) < BATCH:
        hands.compute.create_batch(spec(workload), BATCH - len(first))
    listed = hands.compute.list_workload(REGION, workload)
    assert len({each.server_id for each in listed}) == BATCH == len(listed)
    assert {each.batch_key for each in listed} == {f"{workload}-b1"}
    assert {each.server_id for each in first} <= {each.server_id for each in listed}
    for each in listed:
        hands.compute.delete(REGION, each.server_id)
    assert until(lambda: hands.compute.list_workload(REGION, workload), lambda found: not found) == []

"""How a provider's failure reaches Temporal: what is retried, when, and what the workflow can read."""

from __future__ import annotations

from datetime import timedelta

import pytest
from temporalio.api.failure.v1 import Failure
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ApplicationError

from activities.errors import application_error
from activities.ports import ProviderError, ProviderErrorKind

FINAL = {ProviderErrorKind.QUOTA, ProviderErrorKind.BAD_REQUEST, ProviderErrorKind.NO_VALID_HOST}


@pytest.mark.parametrize("kind", list(ProviderErrorKind))
def test_the_type_is_the_kind_and_final_kinds_are_not_retried(kind: ProviderErrorKind) -> None:
    error = application_error(ProviderError(kind, "eu-north: could not create"))
    assert error.type == kind.value
    assert error.non_retryable == (kind in FINAL)
    assert error.next_retry_delay is None
    assert error.message == "eu-north: could not create"


def test_the_providers_wait_is_the_next_delay() -> None:
    error = application_error(ProviderError(ProviderErrorKind.THROTTLED, "later", retry_after_seconds=7.5))
    assert error.next_retry_delay == timedelta(seconds=7.5)


async def test_doubt_survives_the_way_through_temporal() -> None:
    sent = application_error(ProviderError(ProviderErrorKind.UNAVAILABLE, "silence", in_doubt=True))
    failure = Failure()
    await pydantic_data_converter.encode_failure(sent, failure)
    received = await pydantic_data_converter.decode_failure(failure)
    assert isinstance(received, ApplicationError)
    assert (received.type, list(received.details)) == ("unavailable", [{"in_doubt": True}])

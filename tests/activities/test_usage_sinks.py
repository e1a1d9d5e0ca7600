"""The usage service over HTTP: what is sent, and that every failure is one that the collector lives with."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

import httpx2
import pytest

from activities.usage_sinks import HttpUsageSink, UsageUnavailable
from domain.serving.usage import PoolHour
from store.usage_records import UsageRecord
from tests.estates import START

RECORD = UsageRecord("acme", "gpu-1", PoolHour(START, 1800, Decimal("2.5"), START + timedelta(minutes=30)))
Answer = Callable[[httpx2.Request], httpx2.Response]


async def send(answer: Answer) -> list[httpx2.Request]:
    """What reaches a service that answers so."""
    seen: list[httpx2.Request] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return answer(request)

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(handle)) as client:
        await HttpUsageSink(client, "http://usage.example.net/hours").record([RECORD])
    return seen


async def test_hours_are_sent_with_their_key_and_exact_amounts() -> None:
    (request,) = await send(lambda _: httpx2.Response(202))
    assert (request.method, str(request.url)) == ("POST", "http://usage.example.net/hours")
    assert json.loads(request.content) == {
        "poolHours": [
            {
                "tenantId": "acme",
                "poolId": "gpu-1",
                "hour": "2030-01-01T12:00:00+00:00",
                "seconds": 1800,
                "pricePerHour": "2.5",
                "amount": "1.250000",
                "currency": "USD",
            }
        ]
    }


@pytest.mark.parametrize("status", [301, 400, 404, 429, 500, 503])
async def test_an_answer_that_is_no_success_is_a_failure(status: int) -> None:
    with pytest.raises(UsageUnavailable, match=str(status)):
        await send(lambda _: httpx2.Response(status))


@pytest.mark.parametrize("error", [httpx2.ConnectError, httpx2.ReadTimeout, httpx2.RemoteProtocolError])
async def test_a_service_that_cannot_be_reached_is_a_failure(error: type[httpx2.RequestError]) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        raise error("away", request=request)

    with pytest.raises(UsageUnavailable, match=error.__name__):
        await send(answer)

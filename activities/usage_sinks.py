"""The usage port: where pool hours are told besides our own records. Its failure never stops anything."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Protocol

import httpx2

from domain.serving.usage import CURRENCY
from store.usage_records import UsageRecord

SEND_SECONDS = 5.0


class UsageUnavailable(Exception):
    """The usage service did not take what it was told; the text says why."""


class UsageSink(Protocol):
    """Takes hours as they are now. An hour may come again, with more seconds: the last word counts."""

    async def record(self, records: Sequence[UsageRecord]) -> None:
        """Returns once the records are taken; `UsageUnavailable` where they are not."""
        ...


class NoUsageSink:
    """Nobody is told: the records in the database are all there is."""

    async def record(self, records: Sequence[UsageRecord]) -> None:
        del records


class HttpUsageSink:
    """Posts hours as JSON to one address."""

    def __init__(self, client: httpx2.AsyncClient, url: str) -> None:
        self._client = client
        self._url = url

    async def record(self, records: Sequence[UsageRecord]) -> None:
        body = {"poolHours": [_document(one) for one in records]}
        try:
            answer = await self._client.post(self._url, json=body, timeout=SEND_SECONDS)
        except httpx2.HTTPError as error:
            raise UsageUnavailable(f"the usage service cannot be asked ({type(error).__name__})") from error
        if answer.status_code >= HTTPStatus.MULTIPLE_CHOICES:
            raise UsageUnavailable(f"the usage service answered {answer.status_code}")


def _document(record: UsageRecord) -> dict[str, object]:
    """One hour as it is sent; the three names together are its key."""
    hour = record.hour
    return {
        "tenantId": record.tenant_id,
        "poolId": record.pool_id,
        "hour": hour.hour.isoformat(),
        "seconds": hour.seconds,
        "pricePerHour": str(hour.price_per_hour_usd),
        "amount": str(hour.amount_usd),
        "currency": CURRENCY,
    }

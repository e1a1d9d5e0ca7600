"""The instance metadata service: what the provider lays down for this instance, and the provider's time."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.bounded import bounded
from agent.clock import Clock, ProviderClock

if TYPE_CHECKING:
    import httpx2

VENDOR_DATA = "/openstack/latest/vendor_data2.json"
META_DATA = "/openstack/latest/meta_data.json"
LIMIT_SECONDS = 4.0
MAX_BYTES = 512 * 1024
MAX_NOTICES = 64
OK = 200


class Laid(NamedTuple):
    """What lies there: signed notices, and what the orchestrator gave the instance at its first start."""

    notices: tuple[bytes, ...]
    own: dict[str, Any]


class Metadata:
    """Reads the service. Each answer is bounded in time and size, and its date is taken."""

    def __init__(self, url: str, clock: Clock, provider: ProviderClock, measured: Callable[[], None]) -> None:
        self._url, self._clock, self._provider, self._measured = url, clock, provider, measured
        self._client: httpx2.AsyncClient | None = None

    async def laid(self) -> Laid:
        """What is laid down for this instance. Raises OSError when nobody answered usably."""
        data = await self._json(VENDOR_DATA)
        reclaimer, own = data.get("reclaimer"), data.get("sco")
        notices = reclaimer.get("notices") if isinstance(reclaimer, dict) else None
        letters = [one for one in notices if isinstance(one, str)] if isinstance(notices, list) else []
        raw = tuple(letter.encode(errors="replace") for letter in letters[-MAX_NOTICES:])
        return Laid(raw, own if isinstance(own, dict) else {})

    async def instance_id(self) -> str:
        """The id that the provider gave this instance. Raises OSError when nobody answered usably."""
        found = (await self._json(META_DATA)).get("uuid")
        if not isinstance(found, str):
            raise OSError(f"{META_DATA} has no uuid")
        return found

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _json(self, path: str) -> dict[str, Any]:
        body = await bounded(self._get(path), LIMIT_SECONDS)
        try:
            data = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise OSError(f"{path} is not JSON") from error
        if not isinstance(data, dict):
            raise OSError(f"{path} is not a JSON object")
        return data

    async def _get(self, path: str) -> bytes:
        import httpx2  # noqa: PLC0415 - loaded once something is asked, and not by those that only wire

        if self._client is None:
            # Neither proxies nor redirects: the service is on the link, or it is not the service.
            # A plain address needs no certificates, which would take 5 MB.
            verify = self._url.startswith("https://")
            self._client = httpx2.AsyncClient(
                trust_env=False, verify=verify, timeout=LIMIT_SECONDS, follow_redirects=False
            )
        body = bytearray()
        asked_at = self._clock.boot()
        try:
            async with self._client.stream("GET", self._url + path) as answer:
                self._take_date(answer.headers.get("date", ""), asked_at)
                if answer.status_code != OK:
                    raise OSError(f"{path} answers {answer.status_code}")
                async for part in answer.aiter_bytes():
                    body += part
                    if len(body) > MAX_BYTES:
                        raise OSError(f"{path} is larger than {MAX_BYTES} bytes")
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise OSError(f"{path}: {type(error).__name__}") from error
        return bytes(body)

    def _take_date(self, text: str, asked_at: float) -> None:
        date = _date(text)
        if date is not None:
            self._provider.measure(date, asked_at, self._clock.boot())
            self._measured()


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    return date if date.tzinfo is not None else None

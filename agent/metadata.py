"""The instance metadata service: what the provider lays down for this instance, and the provider's time."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from agent.bounded import bounded
from agent.clock import Clock, ProviderClock
from agent.http import Http, Request

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
        self._url, self._provider, self._measured = url, provider, measured
        self._http = Http(clock.boot, LIMIT_SECONDS, MAX_BYTES)

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
        reply = await self._http.ask(Request("GET", self._url, urlsplit(self._url).path + path))
        if reply.date is not None:
            self._provider.measure(reply.date, reply.asked_at, reply.answered_at)
            self._measured()
        if reply.status != OK:
            raise OSError(f"{path} answers {reply.status}")
        if reply.body is None:
            raise OSError(f"{path} is larger than {MAX_BYTES} bytes")
        return reply.body

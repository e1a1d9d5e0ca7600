"""The metadata service of a laboratory: `vendor_data2.json` per instance, as Nova composes it.

Nova asks each dynamic vendordata target about the instance and puts the answer below the target's name.
Here the whole can be kept for a while, as by a cache before a metadata service, so that a notice is that
much later than the poll. A real cloud knows an instance by its address; here the path says who asks:
an agent's metadata URL is `http://127.0.0.1:<port>/<instance>`.
"""

from __future__ import annotations

import asyncio
import email.utils
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lab.stack.ports import LOOPBACK, listen_on

REPEATED_SECONDS = 15.0
HANG_SECONDS = 60.0
START_SECONDS = 20.0
STOP_SECONDS = 1
POLL_SECONDS = 0.005
# What Nova waits for a target before it leaves its key empty.
TARGET_SECONDS = 5.0
# What a target answers about an instance, given its id.
Target = Callable[[str], Awaitable[Mapping[str, Any]]]


@dataclass
class MetadataFaults:
    """How the service misbehaves from now on, for all instances or for those that are named."""

    only: frozenset[str] = frozenset()
    hang: bool = False
    status: int | None = None
    garbage: bool = False
    date_offset_seconds: float = 0.0

    def concern(self, instance_id: str) -> bool:
        return not self.only or instance_id in self.only


@dataclass
class _Kept:
    body: bytes
    until: float


@dataclass
class MetadataService:
    """Answers for every instance of one laboratory. They are repeated for `cache_seconds`; 0 for none."""

    targets: Mapping[str, Target]
    cache_seconds: float = REPEATED_SECONDS
    faults: MetadataFaults = field(default_factory=MetadataFaults)
    clock: Callable[[], float] = time.time
    answered: int = 0
    _cache: dict[str, _Kept] = field(default_factory=dict)

    def app(self) -> Starlette:
        below = "/{instance}/openstack/latest"
        return Starlette(
            routes=[
                Route(f"{below}/vendor_data2.json", self.vendor_data, methods=["GET"]),
                Route(f"{below}/meta_data.json", self.meta_data, methods=["GET"]),
            ]
        )

    async def vendor_data(self, request: Request) -> Response:
        return await self._answer(request.path_params["instance"], self._vendor_data)

    async def meta_data(self, request: Request) -> Response:
        return await self._answer(request.path_params["instance"], self._meta_data)

    async def _answer(self, instance_id: str, body_of: Callable[[str], Awaitable[bytes]]) -> Response:
        faults = self.faults if self.faults.concern(instance_id) else MetadataFaults()
        if faults.hang:
            await asyncio.sleep(HANG_SECONDS)
        date = email.utils.formatdate(self.clock() + faults.date_offset_seconds, usegmt=True)
        self.answered += 1
        if faults.status is not None:
            return Response(b"", faults.status, {"Date": date})
        body = b"<html>not JSON" if faults.garbage else await body_of(instance_id)
        return Response(body, headers={"Date": date}, media_type="application/json")

    async def _meta_data(self, instance_id: str) -> bytes:
        return orjson.dumps({"uuid": instance_id})

    async def _vendor_data(self, instance_id: str) -> bytes:
        kept = self._cache.get(instance_id)
        now = time.monotonic()
        if kept is not None and now < kept.until:
            return kept.body
        content = {name: await _ask(target, instance_id) for name, target in self.targets.items()}
        body = orjson.dumps({"static": {}, **content})
        if self.cache_seconds > 0:
            self._cache[instance_id] = _Kept(body, now + self.cache_seconds)
        return body


def http_target(url: str) -> Target:
    """A target that answers over HTTP, asked as Nova asks it; a secret in the address goes as Basic."""

    async def ask(instance_id: str) -> Mapping[str, Any]:
        async with httpx2.AsyncClient(trust_env=False, timeout=TARGET_SECONDS) as client:
            answer = await client.post(url, json={"instance-id": instance_id})
            answer.raise_for_status()
            found: Mapping[str, Any] = answer.json()
            return found

    return ask


async def _ask(target: Target, instance_id: str) -> Mapping[str, Any]:
    """Nova's way: a target that fails leaves its key empty, and the instance still gets its answer."""
    try:
        async with asyncio.timeout(TARGET_SECONDS):
            return await target(instance_id)
    except Exception:
        return {}


class MetadataServer:
    """The service on a loopback port, which is known before it serves."""

    def __init__(self, service: MetadataService, port: int = 0) -> None:
        self.service = service
        self._socket = listen_on(port)
        self.base_url = f"http://{LOOPBACK}:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(
            service.app(),
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            # The service writes the date itself: it is what nodes tell the provider's time by.
            date_header=False,
            timeout_graceful_shutdown=STOP_SECONDS,
        )
        self.server = uvicorn.Server(config)

    def url_of(self, instance_id: str) -> str:
        """What the agent of an instance is told as its metadata URL."""
        return f"{self.base_url}/{instance_id}"

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[MetadataServer]:
        """The service in this event loop, until left; RuntimeError when it does not come up."""
        task = asyncio.create_task(self.server.serve(sockets=[self._socket]))
        try:
            async with asyncio.timeout(START_SECONDS):
                while not self.server.started:
                    if task.done():
                        raise RuntimeError(f"the metadata service at {self.base_url} did not start")
                    await asyncio.sleep(POLL_SECONDS)
            yield self
        finally:
            self.server.should_exit = True
            # Answers that hang on purpose are not waited for.
            self.server.force_exit = True
            await task

"""The wire before every service: it loses, spoils and delays requests as faults say that are armed."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lab.cloud.cloud import Cloud
from lab.cloud.web.wire_exchange import Answer, Exchange
from lab.cloud.web.wire_faults import HANDLERS
from lab.cloud.wire import WirePlan, act_of


class Wire:
    """The layer. It answers like the services themselves while nothing is armed."""

    def __init__(self, app: ASGIApp, cloud: Cloud) -> None:
        self._app = app
        self.cloud = cloud
        self.plan = WirePlan()
        self._late: set[asyncio.Task[Answer]] = set()
        self._released = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self.plan.armed:
            await self._app(scope, receive, send)
            return
        act = act_of(scope["method"], scope["path"], scope["query_string"].decode())
        region = self.cloud.regions.get(scope["path"].split("/", 2)[1])
        armed = self.plan.meets(act, region.name if region is not None else None)
        if armed is None:
            await self._app(scope, receive, send)
            return
        body = await _read(receive)
        await HANDLERS[armed.fault.kind](Exchange(self, armed, scope, body, receive, send, region))

    async def answer_of(self, scope: Scope, body: bytes) -> Answer:
        """The services' whole answer to a request."""
        messages: list[Message] = []

        async def keep(message: Message) -> None:
            messages.append(message)

        async def once() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, once, keep)
        content = b"".join(message.get("body", b"") for message in messages[1:])
        return Answer(messages[0]["status"], list(messages[0]["headers"]), content)

    def carry_out_later(self, scope: Scope, body: bytes, seconds: float) -> None:
        async def later() -> Answer:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._released.wait(), seconds)
            return await self.answer_of(scope, body)

        task = asyncio.ensure_future(later())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    def release(self) -> None:
        """Carry out at once what is late."""
        self._released.set()
        self._released = asyncio.Event()

    @property
    def late(self) -> int:
        """Requests that are accepted and not yet carried out."""
        return len(self._late)


async def _read(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)

"""One request that a fault met, and the services' answer to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lab.cloud.cloud import Cloud
from lab.cloud.errors import CloudError
from lab.cloud.region import Region
from lab.cloud.request_log import IDENTITY
from lab.cloud.web.respond import nova_error
from lab.cloud.wire import ArmedFault, WireFault


@dataclass(slots=True)
class Answer:
    """A whole answer, kept back to be changed or lost."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    @property
    def refused(self) -> bool:
        return self.status >= HTTPStatus.BAD_REQUEST

    def with_body(self, body: bytes) -> Answer:
        """The same answer with other content, and the length that belongs to it."""
        kept = [(name, value) for name, value in self.headers if name.lower() != b"content-length"]
        return Answer(self.status, [*kept, (b"content-length", str(len(body)).encode())], body)

    async def send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})


class Services(Protocol):
    """What stands behind the wire."""

    cloud: Cloud

    async def answer_of(self, scope: Scope, body: bytes) -> Answer:
        """The whole answer to a request."""

    def carry_out_later(self, scope: Scope, body: bytes, seconds: float) -> None:
        """Do the work after `seconds` of real time; nobody hears the answer."""


@dataclass(slots=True)
class Exchange:
    """One request that a fault met."""

    services: Services
    armed: ArmedFault
    scope: Scope
    body: bytes
    receive: Receive
    send: Send
    region: Region | None

    @property
    def fault(self) -> WireFault:
        return self.armed.fault

    async def carry_out(self, **changed: Any) -> Answer:
        """Let the services do the work; their answer."""
        return await self.services.answer_of({**self.scope, **changed}, self.body)

    def note(self) -> None:
        """Log a request that the services will not see."""
        service = self.scope["path"].split("/", 2)[1]
        if self.region is not None or service == IDENTITY:
            self.services.cloud.requests.record(service, self.scope["method"], self.scope["path"])

    async def refuse(self, error: CloudError) -> None:
        await self.respond(nova_error(error))

    async def respond(self, response: Response) -> None:
        await response(self.scope, self.receive, self.send)

    async def drop(self) -> None:
        """Close the connection in the middle of whatever it was doing."""
        transport = getattr(getattr(self.send, "__self__", None), "transport", None)
        assert transport is not None, "the server shows no connection that could be dropped"
        transport.abort()
        while (await self.receive())["type"] != "http.disconnect":
            continue


Handler = Callable[[Exchange], Awaitable[None]]

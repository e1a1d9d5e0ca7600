"""What may happen to a request on its way: a layer before every service that loses, spoils and delays.

Faults of the services themselves are in `lab.cloud.faults`; these are the network's, the gateway's, and
the provider's who changes servers while a request is under way.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import urlencode

import orjson
from pydantic import Field
from starlette.datastructures import Headers, QueryParams
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from domain.model import Frozen
from lab.cloud.cloud import Cloud
from lab.cloud.errors import CloudError
from lab.cloud.records import Server, ServerFault, Status, Step
from lab.cloud.region import Region
from lab.cloud.request_log import IDENTITY
from lab.cloud.web.respond import nova_error

MAX_LATE_SECONDS = 60.0


class Act(StrEnum):
    """What a request does, as far as faults tell requests apart."""

    CREATE = "create"
    LIST = "list"
    DELETE = "delete"
    TOKEN = "token"  # noqa: S105 - no secret
    FIND = "find"
    DELETED_SINCE = "deleted_since"
    TAG = "tag"


class WireKind(StrEnum):
    """What goes wrong. `before` and `after` say whether the work has been done by then."""

    THROTTLED = "throttled"
    ERROR_BEFORE = "error_before"
    ERROR_AFTER = "error_after"
    SILENT_BEFORE = "silent_before"
    SILENT_AFTER = "silent_after"
    DROPPED_BEFORE = "dropped_before"
    DROPPED_AFTER = "dropped_after"
    DROPPED_MID_BODY = "dropped_mid_body"
    MALFORMED = "malformed"
    TRUNCATED = "truncated"
    EMPTY_LIST = "empty_list"
    FAILED_PAGE = "failed_page"
    PARTIAL_LIST = "partial_list"
    UNFILTERED = "unfiltered"
    CARRIED_OUT_LATE = "carried_out_late"
    TAKEN_AWAY = "taken_away"
    TURNS_TO_ERROR = "turns_to_error"
    LOSES_TAGS = "loses_tags"


class WireFault(Frozen):
    """Which requests to hit, and how.

    It skips `after` requests that it could hit, then hits `times` (None: every one). `status` is the
    answer of the error kinds; before the work a 404 is a gateway's own page. `page` is how many servers a
    page shows where pages matter. What is carried out late is accepted at once and done after
    `delay_seconds` of real time. Servers are changed among those that have all of `victims` as metadata.
    """

    act: Act
    kind: WireKind
    region: str | None = None
    times: Annotated[int, Field(ge=1)] | None = 1
    after: Annotated[int, Field(ge=0)] = 0
    status: Annotated[int, Field(ge=400, le=599)] = 503
    retry_after_seconds: Annotated[int, Field(ge=0)] = 1
    delay_seconds: Annotated[float, Field(ge=0, le=MAX_LATE_SECONDS)] = 1.0
    page: Annotated[int, Field(ge=1)] = 2
    victims: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class ArmedFault:
    """A fault in force, with how often it was met, how often it came true, and the servers that it changed."""

    fault: WireFault
    met: int = 0
    fired: int = 0
    struck: list[str] = field(default_factory=list)

    @property
    def spent(self) -> bool:
        return self.fault.times is not None and self.fired >= self.fault.times

    def is_due(self) -> bool:
        """Count a request that could be hit; whether it is."""
        self.met += 1
        if self.met <= self.fault.after:
            return False
        self.fired += 1
        return True


@dataclass(slots=True)
class Answer:
    """A whole answer, kept back to be changed or lost."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    @property
    def refused(self) -> bool:
        return self.status >= 400

    def with_body(self, body: bytes) -> Answer:
        """The same answer with other content, and the length that belongs to it."""
        kept = [(name, value) for name, value in self.headers if name.lower() != b"content-length"]
        return Answer(self.status, [*kept, (b"content-length", str(len(body)).encode())], body)

    async def send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})


_Handler = Callable[["_Exchange"], Awaitable[None]]
_PATHS: tuple[tuple[str, re.Pattern[str], Act], ...] = (
    ("POST", re.compile(r"/compute/.*/servers$"), Act.CREATE),
    ("DELETE", re.compile(r"/servers/[0-9a-f-]{36}$"), Act.DELETE),
    ("GET", re.compile(r"/servers/[0-9a-f-]{36}$"), Act.FIND),
    ("PUT", re.compile(r"/servers/[0-9a-f-]{36}/tags$"), Act.TAG),
    ("POST", re.compile(r"^/identity/v3/auth/tokens$"), Act.TOKEN),
)


def act_of(method: str, path: str, query: str) -> Act | None:
    """What a request does, None when no fault cares."""
    if method == "GET" and path.endswith("/servers/detail"):
        return Act.DELETED_SINCE if "changes-since=" in query else Act.LIST
    return next((act for verb, pattern, act in _PATHS if verb == method and pattern.search(path)), None)


@dataclass(slots=True)
class WirePlan:
    """The faults in force, in the order in which they were armed; the first that can hit a request does."""

    armed: list[ArmedFault] = field(default_factory=list)

    def arm(self, fault: WireFault) -> ArmedFault:
        armed = ArmedFault(fault)
        self.armed.append(armed)
        return armed

    def disarm(self) -> None:
        self.armed.clear()

    def meets(self, act: Act | None, region: str | None) -> ArmedFault | None:
        for armed in self.armed:
            fault = armed.fault
            at_home = act is Act.TOKEN or fault.region in (None, region)
            if not armed.spent and fault.act is act and at_home:
                return armed
        return None


@dataclass(slots=True)
class _Exchange:
    """One request that a fault met."""

    wire: Wire
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
        return await self.wire.answer_of({**self.scope, **changed}, self.body)

    def note(self) -> None:
        """Log a request that the services will not see."""
        service = self.scope["path"].split("/", 2)[1]
        if self.region is not None or service == IDENTITY:
            self.wire.cloud.requests.record(service, self.scope["method"], self.scope["path"])

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


class Wire:
    """The layer. It answers like the services themselves while nothing is armed."""

    def __init__(self, app: ASGIApp, cloud: Cloud) -> None:
        self._app = app
        self.cloud = cloud
        self.plan = WirePlan()
        self._late: set[asyncio.Task[Answer]] = set()

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
        await _HANDLERS[armed.fault.kind](_Exchange(self, armed, scope, body, receive, send, region))

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
            await asyncio.sleep(seconds)
            return await self.answer_of(scope, body)

        task = asyncio.ensure_future(later())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

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


async def _pass(exchange: _Exchange) -> None:
    await (await exchange.carry_out()).send(exchange.send)


async def _throttled(exchange: _Exchange) -> None:
    if not exchange.armed.is_due():
        return await _pass(exchange)
    exchange.note()
    asked = {"Retry-After": str(exchange.fault.retry_after_seconds)}
    return await exchange.refuse(CloudError(429, "This request was rate-limited.", asked))


async def _error_before(exchange: _Exchange) -> None:
    if not exchange.armed.is_due():
        return await _pass(exchange)
    exchange.note()
    status = exchange.fault.status
    if status == 404:
        # A gateway that has lost its way: nobody asked the service.
        return await exchange.respond(PlainTextResponse("404 page not found", 404))
    return await exchange.refuse(CloudError(status, _words(status)))


async def _error_after(exchange: _Exchange) -> None:
    answer = await exchange.carry_out()
    if answer.refused or not exchange.armed.is_due():
        return await answer.send(exchange.send)
    return await exchange.refuse(CloudError(exchange.fault.status, _words(exchange.fault.status)))


async def _silent_before(exchange: _Exchange) -> None:
    if not exchange.armed.is_due():
        return await _pass(exchange)
    exchange.note()
    return await _keep_silent(exchange)


async def _silent_after(exchange: _Exchange) -> None:
    answer = await exchange.carry_out()
    if answer.refused or not exchange.armed.is_due():
        return await answer.send(exchange.send)
    return await _keep_silent(exchange)


async def _keep_silent(exchange: _Exchange) -> None:
    """Wait as long as the client does, then answer as a gateway that gave up."""
    try:
        async with asyncio.timeout(MAX_LATE_SECONDS):
            while (await exchange.receive())["type"] != "http.disconnect":
                continue
    except TimeoutError:
        await exchange.refuse(CloudError(504, "The gateway gave up waiting for the service."))


async def _dropped_before(exchange: _Exchange) -> None:
    if not exchange.armed.is_due():
        return await _pass(exchange)
    exchange.note()
    return await exchange.drop()


async def _dropped_after(exchange: _Exchange) -> None:
    answer = await exchange.carry_out()
    if answer.refused or not exchange.armed.is_due():
        return await answer.send(exchange.send)
    return await exchange.drop()


async def _dropped_mid_body(exchange: _Exchange) -> None:
    answer = await exchange.carry_out()
    if answer.refused or not answer.body or not exchange.armed.is_due():
        return await answer.send(exchange.send)
    full = answer.with_body(answer.body)
    await exchange.send({"type": "http.response.start", "status": full.status, "headers": full.headers})
    half = answer.body[: len(answer.body) // 2]
    await exchange.send({"type": "http.response.body", "body": half, "more_body": True})
    # The half has to arrive before the connection ends.
    await asyncio.sleep(0.01)
    return await exchange.drop()


async def _malformed(exchange: _Exchange) -> None:
    answer = await exchange.carry_out()
    if answer.refused or not answer.body or not exchange.armed.is_due():
        return await answer.send(exchange.send)
    return await answer.with_body(b"<html>the gateway is busy</html>").send(exchange.send)


async def _truncated(exchange: _Exchange) -> None:
    answer = await exchange.carry_out()
    if answer.refused or not answer.body or not exchange.armed.is_due():
        return await answer.send(exchange.send)
    return await answer.with_body(answer.body[: max(1, len(answer.body) * 2 // 3)]).send(exchange.send)


async def _empty_list(exchange: _Exchange) -> None:
    """It is a lie only where there is something to see."""
    answer = await exchange.carry_out()
    if answer.refused or not _servers(answer) or not exchange.armed.is_due():
        return await answer.send(exchange.send)
    return await answer.with_body(b'{"servers":[]}').send(exchange.send)


async def _failed_page(exchange: _Exchange) -> None:
    """Small pages, of which a later one is not answered."""
    if "marker" in QueryParams(exchange.scope["query_string"]) and exchange.armed.is_due():
        exchange.note()
        return await exchange.refuse(CloudError(503, _words(503)))
    answer = await exchange.carry_out(query_string=_query(exchange, limit=exchange.fault.page))
    return await answer.send(exchange.send)


async def _partial_list(exchange: _Exchange) -> None:
    """One page that does not say that there are more."""
    answer = await exchange.carry_out(query_string=_query(exchange, limit=exchange.fault.page))
    told = {} if answer.refused else orjson.loads(answer.body)
    if "servers_links" not in told:
        return await answer.send(exchange.send)
    if not exchange.armed.is_due():
        return await _pass(exchange)
    del told["servers_links"]
    return await answer.with_body(orjson.dumps(told)).send(exchange.send)


async def _unfiltered(exchange: _Exchange) -> None:
    if not exchange.armed.is_due():
        return await _pass(exchange)
    answer = await exchange.carry_out(query_string=_query(exchange, without=("tags", "changes-since")))
    return await answer.send(exchange.send)


async def _carried_out_late(exchange: _Exchange) -> None:
    if not exchange.armed.is_due():
        return await _pass(exchange)
    exchange.wire.carry_out_later(exchange.scope, exchange.body, exchange.fault.delay_seconds)
    if exchange.fault.act is not Act.CREATE:
        return await exchange.respond(Response(status_code=204))
    body = orjson.dumps({"server": {"id": "00000000-0000-4000-8000-000000000000", "links": []}})
    return await exchange.respond(Response(body, 202, media_type="application/json"))


async def _changes_servers(exchange: _Exchange) -> None:
    """A write meets a server that has just changed; a read shows it as it was before."""
    if exchange.scope["method"] != "GET":
        _strike(exchange)
        return await _pass(exchange)
    answer = await exchange.carry_out()
    _strike(exchange)
    return await answer.send(exchange.send)


def _strike(exchange: _Exchange) -> None:
    region = exchange.region
    assert region is not None, "servers are changed in a region"
    victims = _victims(region, exchange)
    if not victims or not exchange.armed.is_due():
        return
    server, now = victims[0], region.now()
    exchange.armed.struck.append(server.id)
    if exchange.fault.kind is WireKind.TAKEN_AWAY:
        region.gone(server, now)
    elif exchange.fault.kind is WireKind.LOSES_TAGS:
        server.tags = ()
        region.touch(server)
    else:
        server.status, server.task_state, server.updated_at = Status.ERROR, None, now
        server.wait_for(None, None)
        server.fault = ServerFault(500, "The compute host failed.", now)
        region.servers.changed(server)


def _victims(region: Region, exchange: _Exchange) -> list[Server]:
    """Running servers that may be hit; of a delete, the one that it names."""
    named = exchange.scope["path"].rsplit("/", 1)[-1]
    keys = {("metadata", f"{name}={value}") for name, value in exchange.fault.victims}
    return [
        server
        for server in region.servers.live()
        if keys <= server.keys
        and server.step is not Step.GONE
        and (exchange.fault.act is not Act.DELETE or server.id == named)
        and (exchange.fault.kind is WireKind.TAKEN_AWAY or server.status is Status.ACTIVE)
    ]


def _servers(answer: Answer) -> list[Any]:
    return list(orjson.loads(answer.body).get("servers", ()))


def _query(exchange: _Exchange, *, without: tuple[str, ...] = ("limit",), **changed: object) -> bytes:
    kept = [
        (name, value)
        for name, value in QueryParams(exchange.scope["query_string"]).multi_items()
        if name not in without and name not in changed
    ]
    return urlencode([*kept, *((name, str(value)) for name, value in changed.items())]).encode()


def _words(status: int) -> str:
    return {
        401: "The request you have made requires authentication.",
        404: "The resource could not be found.",
        409: "The resource is in use.",
        500: "Unexpected API Error.",
    }.get(status, "The service is temporarily unavailable.")


_HANDLERS: dict[WireKind, _Handler] = {
    WireKind.THROTTLED: _throttled,
    WireKind.ERROR_BEFORE: _error_before,
    WireKind.ERROR_AFTER: _error_after,
    WireKind.SILENT_BEFORE: _silent_before,
    WireKind.SILENT_AFTER: _silent_after,
    WireKind.DROPPED_BEFORE: _dropped_before,
    WireKind.DROPPED_AFTER: _dropped_after,
    WireKind.DROPPED_MID_BODY: _dropped_mid_body,
    WireKind.MALFORMED: _malformed,
    WireKind.TRUNCATED: _truncated,
    WireKind.EMPTY_LIST: _empty_list,
    WireKind.FAILED_PAGE: _failed_page,
    WireKind.PARTIAL_LIST: _partial_list,
    WireKind.UNFILTERED: _unfiltered,
    WireKind.CARRIED_OUT_LATE: _carried_out_late,
    WireKind.TAKEN_AWAY: _changes_servers,
    WireKind.TURNS_TO_ERROR: _changes_servers,
    WireKind.LOSES_TAGS: _changes_servers,
}

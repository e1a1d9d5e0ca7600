"""How each fault of the wire shows."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import orjson
from starlette.datastructures import QueryParams
from starlette.responses import PlainTextResponse, Response

from lab.cloud.errors import CloudError
from lab.cloud.records import Server, ServerFault, Status, Step
from lab.cloud.region import Region
from lab.cloud.web.wire_exchange import Answer, Exchange, Handler
from lab.cloud.wire import MAX_LATE_SECONDS, Act, WireKind


async def _pass(exchange: Exchange) -> None:
    await (await exchange.carry_out()).send(exchange.send)


async def _throttled(exchange: Exchange) -> None:
    if not exchange.armed.is_due():
        return await _pass(exchange)
    exchange.note()
    asked = {"Retry-After": str(exchange.fault.retry_after_seconds)}
    return await exchange.refuse(CloudError(429, "This request was rate-limited.", asked))


async def _error_before(exchange: Exchange) -> None:
    if not exchange.armed.is_due():
        return await _pass(exchange)
    exchange.note()
    status = exchange.fault.status
    if status == HTTPStatus.NOT_FOUND:
        # A gateway that has lost its way: nobody asked the service.
        return await exchange.respond(PlainTextResponse("404 page not found", status))
    return await exchange.refuse(CloudError(status, _words(status)))


async def _error_after(exchange: Exchange) -> None:
    answer = await exchange.carry_out()
    if answer.refused or not exchange.armed.is_due():
        return await answer.send(exchange.send)
    return await exchange.refuse(CloudError(exchange.fault.status, _words(exchange.fault.status)))


async def _silent_before(exchange: Exchange) -> None:
    if not exchange.armed.is_due():
        return await _pass(exchange)
    exchange.note()
    return await _keep_silent(exchange)


async def _silent_after(exchange: Exchange) -> None:
    answer = await exchange.carry_out()
    if answer.refused or not exchange.armed.is_due():
        return await answer.send(exchange.send)
    return await _keep_silent(exchange)


async def _keep_silent(exchange: Exchange) -> None:
    """Wait as long as the client does, then answer as a gateway that gave up."""
    try:
        async with asyncio.timeout(MAX_LATE_SECONDS):
            while (await exchange.receive())["type"] != "http.disconnect":
                continue
    except TimeoutError:
        await exchange.refuse(CloudError(504, "The gateway gave up waiting for the service."))


async def _dropped_before(exchange: Exchange) -> None:
    if not exchange.armed.is_due():
        return await _pass(exchange)
    exchange.note()
    return await exchange.drop()


async def _dropped_after(exchange: Exchange) -> None:
    answer = await exchange.carry_out()
    if answer.refused or not exchange.armed.is_due():
        return await answer.send(exchange.send)
    return await exchange.drop()


async def _dropped_mid_body(exchange: Exchange) -> None:
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


async def _malformed(exchange: Exchange) -> None:
    answer = await exchange.carry_out()
    if answer.refused or not answer.body or not exchange.armed.is_due():
        return await answer.send(exchange.send)
    return await answer.with_body(b"<html>the gateway is busy</html>").send(exchange.send)


async def _truncated(exchange: Exchange) -> None:
    answer = await exchange.carry_out()
    if answer.refused or not answer.body or not exchange.armed.is_due():
        return await answer.send(exchange.send)
    return await answer.with_body(answer.body[: max(1, len(answer.body) * 2 // 3)]).send(exchange.send)


async def _empty_list(exchange: Exchange) -> None:
    """It is a lie only where there is something to see."""
    answer = await exchange.carry_out()
    if answer.refused or not _servers(answer) or not exchange.armed.is_due():
        return await answer.send(exchange.send)
    return await answer.with_body(b'{"servers":[]}').send(exchange.send)


async def _failed_page(exchange: Exchange) -> None:
    """Small pages, of which a later one is not answered."""
    if "marker" in QueryParams(exchange.scope["query_string"]) and exchange.armed.is_due():
        exchange.note()
        return await exchange.refuse(CloudError(503, _words(503)))
    answer = await exchange.carry_out(query_string=_query(exchange, limit=exchange.fault.page))
    return await answer.send(exchange.send)


async def _partial_list(exchange: Exchange) -> None:
    """One page that does not say that there are more."""
    answer = await exchange.carry_out(query_string=_query(exchange, limit=exchange.fault.page))
    told = {} if answer.refused else orjson.loads(answer.body)
    if "servers_links" not in told:
        return await answer.send(exchange.send)
    if not exchange.armed.is_due():
        return await _pass(exchange)
    del told["servers_links"]
    return await answer.with_body(orjson.dumps(told)).send(exchange.send)


async def _unfiltered(exchange: Exchange) -> None:
    if not exchange.armed.is_due():
        return await _pass(exchange)
    answer = await exchange.carry_out(query_string=_query(exchange, without=("tags", "changes-since")))
    return await answer.send(exchange.send)


async def _carried_out_late(exchange: Exchange) -> None:
    if not exchange.armed.is_due():
        return await _pass(exchange)
    exchange.services.carry_out_later(exchange.scope, exchange.body, exchange.fault.delay_seconds)
    if exchange.fault.act is not Act.CREATE:
        return await exchange.respond(Response(status_code=204))
    body = orjson.dumps({"server": {"id": "00000000-0000-4000-8000-000000000000", "links": []}})
    return await exchange.respond(Response(body, 202, media_type="application/json"))


async def _changes_servers(exchange: Exchange) -> None:
    """A write meets a server that has just changed; a read shows it as it was before."""
    if exchange.scope["method"] != "GET":
        _strike(exchange)
        return await _pass(exchange)
    answer = await exchange.carry_out()
    _strike(exchange)
    return await answer.send(exchange.send)


def _strike(exchange: Exchange) -> None:
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


def _victims(region: Region, exchange: Exchange) -> list[Server]:
    """Running servers that may be hit; of a delete, the one that it names."""
    named = exchange.scope["path"].rsplit("/", 1)[-1]
    keys = {("metadata", f"{name}={value}") for name, value in exchange.fault.victims}
    return [
        server
        for server in region.servers.live()
        if keys <= server.keys
        and server.id not in exchange.fault.spared
        and server.step is not Step.GONE
        and (exchange.fault.act is not Act.DELETE or server.id == named)
        and (exchange.fault.kind is WireKind.TAKEN_AWAY or server.status is Status.ACTIVE)
    ]


def _servers(answer: Answer) -> list[Any]:
    return list(orjson.loads(answer.body).get("servers", ()))


def _query(exchange: Exchange, *, without: tuple[str, ...] = ("limit",), **changed: object) -> bytes:
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


HANDLERS: dict[WireKind, Handler] = {
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

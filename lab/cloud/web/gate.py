"""The gate in front of every service: request ids, the log, faults and tokens."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable
from http import HTTPStatus

import orjson
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lab.cloud.cloud import Cloud
from lab.cloud.errors import CloudError
from lab.cloud.faults import CREATE_KINDS, FaultKind, FaultRule, RequestFacts
from lab.cloud.region import Region
from lab.cloud.request_log import IDENTITY
from lab.cloud.web.respond import (
    BODY_KEY,
    REQUEST_ID_KEY,
    RULE_KEY,
    SIGNED_IN_KEY,
    keystone_error,
    nova_error,
)

MAX_BODY_BYTES = 2 * 1024 * 1024
_AFTER_KINDS = (FaultKind.ERROR_AFTER, FaultKind.TIMEOUT_AFTER, FaultKind.DROPPED_AFTER)
_DROPPED_KINDS = (FaultKind.DROPPED_BEFORE, FaultKind.DROPPED_AFTER)
_TIMEOUT_KINDS = (FaultKind.TIMEOUT_BEFORE, FaultKind.TIMEOUT_AFTER)


class Gate:
    """Reads the whole request, lets due things happen, then lets it through or makes it fail."""

    def __init__(self, app: ASGIApp, cloud: Cloud) -> None:
        self._app = app
        self._cloud = cloud

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = await _read(receive)
        request_id = f"req-{uuid.uuid4()}"
        scope[BODY_KEY], scope[REQUEST_ID_KEY] = body, request_id
        self._cloud.settle()
        identified = _with_request_id(send, request_id)
        service = scope["path"].split("/", 2)[1]
        region = self._cloud.regions.get(service)
        if region is not None or service == IDENTITY:
            self._cloud.requests.record(service, scope["method"], scope["path"])
        rule = None if scope["path"].startswith("/admin") else self._cloud.faults.fire(_facts(scope, region))
        if rule is None or rule.kind in CREATE_KINDS:
            scope[RULE_KEY] = rule
            await self._app(scope, receive, identified)
        else:
            await self._fail(rule, scope, receive, identified, connection=send)

    async def _fail(
        self, rule: FaultRule, scope: Scope, receive: Receive, send: Send, connection: Send
    ) -> None:
        if rule.kind in _AFTER_KINDS:
            refusal = await self._run_unseen(scope, receive)
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        if rule.kind in _DROPPED_KINDS:
            await _hang_up(connection)
            return
        if rule.kind in _TIMEOUT_KINDS:
            await _keep_silent(receive, rule.delay_seconds)
        await nova_error(_fault_error(rule))(scope, receive, send)

    async def _run_unseen(self, scope: Scope, receive: Receive) -> Response | None:
        """Do the work and drop its answer; the answer itself when the work was refused."""
        messages: list[Message] = []

        async def keep(message: Message) -> None:
            messages.append(message)

        scope[RULE_KEY] = None
        await self._app(scope, receive, keep)
        status = messages[0]["status"]
        if status < HTTPStatus.BAD_REQUEST:
            return None
        content = b"".join(message.get("body", b"") for message in messages[1:])
        return Response(content, status, dict(Headers(raw=messages[0]["headers"])))


class TokenGuard:
    """Lets only requests with a valid token through, but for the version documents."""

    def __init__(self, app: ASGIApp, cloud: Cloud, open_paths: Iterable[str], auth_url: str) -> None:
        self._app = app
        self._cloud = cloud
        self._open_paths = frozenset(open_paths)
        self._challenge = {"WWW-Authenticate": f'Keystone uri="{auth_url}"'}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        inner_path = scope["path"].removeprefix(scope.get("root_path", "")).rstrip("/")
        if scope["type"] == "http" and inner_path not in self._open_paths:
            try:
                scope[SIGNED_IN_KEY] = self._token(scope)
            except CloudError as error:
                challenge = CloudError(error.status, error.message, self._challenge)
                await keystone_error(challenge)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _token(self, scope: Scope) -> object:
        token = self._cloud.identity.check(Headers(scope=scope).get("x-auth-token"))
        if token.project_id is None:
            raise CloudError(403, "The token is not scoped to a project.")
        return token


async def _read(receive: Receive) -> bytes:
    parts: list[bytes] = []
    size = 0
    more = True
    while more and size <= MAX_BODY_BYTES:
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        more = message.get("more_body", False)
    return b"".join(parts)


async def _keep_silent(receive: Receive, seconds: float) -> None:
    """Wait, but not longer than the client does."""
    try:
        async with asyncio.timeout(seconds):
            while (await receive())["type"] != "http.disconnect":
                continue
    except TimeoutError:
        return


async def _hang_up(connection: Send) -> None:
    """End the connection without an answer, for which the ASGI protocol has no word: uvicorn's own."""
    connection.__self__.transport.abort()  # type: ignore[attr-defined]
    await asyncio.sleep(0)


def _fault_error(rule: FaultRule) -> CloudError:
    if rule.kind is FaultKind.RATE_LIMITED:
        retry = {"Retry-After": str(rule.retry_after_seconds)}
        return CloudError(429, "This request was rate-limited.", retry)
    if rule.kind in _TIMEOUT_KINDS:
        return CloudError(504, "The gateway gave up waiting for the service.")
    if rule.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        return CloudError(500, "Unexpected API Error.")
    return CloudError(rule.status, "The service is temporarily unavailable.")


def _facts(scope: Scope, region: Region | None) -> RequestFacts:
    method, path = scope["method"], scope["path"]
    query = QueryParams(scope["query_string"])
    is_create = method == "POST" and path.endswith("/servers")
    flavor, hall = _create_facts(scope[BODY_KEY], region) if is_create else (None, None)
    return RequestFacts(
        method=method,
        path=path,
        query=str(query),
        region=region.name if region is not None else None,
        is_create=is_create,
        is_later_page=method == "GET" and "/servers" in path and "marker" in query,
        flavor=flavor,
        hall=hall,
    )


def _create_facts(body: bytes, region: Region | None) -> tuple[str | None, str | None]:
    try:
        asked = orjson.loads(body)["server"]
        reference = str(asked.get("flavorRef", "")).rsplit("/", 1)[-1]
        flavor = region.flavors.get(reference) if region is not None else None
        return (flavor.name if flavor is not None else None), asked.get("availability_zone")
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return None, None


def _with_request_id(send: Send, request_id: str) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message["headers"])
            headers["x-openstack-request-id"] = request_id
            headers["x-compute-request-id"] = request_id
        await send(message)

    return sending

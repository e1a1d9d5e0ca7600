"""The relay's HTTP door: decisions from the provider's own tools, and metadata for Nova.

`POST /vendordata` is what Nova asks for an instance's `vendor_data2.json` when the relay is one of its
dynamic vendordata targets. It needs no token: what it answers is signed and no secret.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lab.relay.decisions import Decisions, Withdrawals
from lab.relay.relay import NoticeRelay
from wire.node import INSTANCE_ID
from wire.notices import Notice

MAX_BODY_BYTES = 4 * 1024 * 1024
Body = TypeVar("Body", bound=BaseModel)
Handler = Callable[[Request], Awaitable[Response]]


class Refused(Exception):
    """A request that is not done: HTTP status and one line that says why."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class RelayDoor:
    """The relay's routes. `token` opens those that decide."""

    def __init__(self, relay: NoticeRelay, token: str) -> None:
        self._relay = relay
        self._token = token.encode()

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/reclaims", _refusing(self.reclaim), methods=["POST"]),
                Route("/withdrawals", _refusing(self.withdraw), methods=["POST"]),
                Route("/notices", _refusing(self.notices), methods=["GET"]),
                Route("/vendordata", _refusing(self.vendordata), methods=["POST"]),
                Route("/healthz", _refusing(self.health), methods=["GET"]),
            ]
        )

    async def reclaim(self, request: Request) -> Response:
        self._admit(request)
        asked = await _read(request, Decisions)
        return _notices(await self._relay.decide(asked.decisions))

    async def withdraw(self, request: Request) -> Response:
        self._admit(request)
        asked = await _read(request, Withdrawals)
        done = await self._relay.withdraw(asked.notice_ids, asked.reason)
        return _json(
            {"notices": [_shown(one) for one in done.notices], "unknown": [str(i) for i in done.unknown]}
        )

    async def notices(self, request: Request) -> Response:
        self._admit(request)
        return _notices(self._relay.standing())

    async def vendordata(self, request: Request) -> Response:
        asked = _parse(await _bounded(request))
        instance_id = asked.get("instance-id") if isinstance(asked, dict) else None
        if not isinstance(instance_id, str) or INSTANCE_ID.fullmatch(instance_id) is None:
            raise Refused(400, "instance-id: the id of an instance is needed, as Nova sends it")
        return _json({"notices": self._relay.letters(instance_id)})

    async def health(self, request: Request) -> Response:
        return _json(
            {
                "standing": len(self._relay.standing()),
                "failedPushes": self._relay.failed_pushes,
                "failedWrites": self._relay.failed_writes,
            }
        )

    def _admit(self, request: Request) -> None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token):
            raise Refused(401, "a reclaim decision needs the relay's token: Authorization: Bearer <token>")


def _refusing(handler: Handler) -> Handler:
    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except Refused as refused:
            return _json({"error": str(refused)}, refused.status)

    return answer


async def _read(request: Request, model: type[Body]) -> Body:
    try:
        return model.model_validate(_parse(await _bounded(request)))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise Refused(400, f"{where}: {first['msg']}") from error


async def _bounded(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise Refused(413, f"at most {MAX_BODY_BYTES} bytes are read: send several requests")
    return body


def _parse(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Refused(400, "the body is not JSON") from error


def _notices(notices: tuple[Notice, ...]) -> Response:
    return _json({"notices": [_shown(one) for one in notices]})


def _shown(notice: Notice) -> dict[str, Any]:
    return notice.model_dump(mode="json", by_alias=True, exclude_none=True)


def _json(content: object, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")

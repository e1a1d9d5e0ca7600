"""What may be asked of the process that runs the laboratory's nodes, on loopback and with its token."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lab.nodes.fleet import Fleet
from lab.nodes.story import Heard, story

Handler = Callable[[Request], Awaitable[Response]]


class Ends(BaseModel):
    """Instances that end now, without notice."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    instances: tuple[str, ...]


class NodesDoor:
    """Ends nodes without notice, and tells what the nodes said."""

    def __init__(self, fleet: Fleet, heard: Heard, token: str) -> None:
        self._fleet, self._heard, self._token = fleet, heard, token.encode()

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/ends", self._admitted(self.ends), methods=["POST"]),
                Route("/story", self._admitted(self.story), methods=["GET"]),
            ]
        )

    async def ends(self, request: Request) -> Response:
        try:
            asked = Ends.model_validate_json(await request.body())
        except ValidationError as error:
            return _json({"error": str(error.errors(include_url=False)[0]["msg"])}, 400)
        unknown = sorted(set(asked.instances) - self._fleet.nodes.keys())
        if unknown:
            return _json({"error": f"no node {unknown[0]!r} runs here"}, 404)
        for instance_id in asked.instances:
            await self._fleet.end(instance_id)
        return _json({"ended": len(asked.instances)})

    async def story(self, request: Request) -> Response:
        events = [one.model_dump(mode="json", by_alias=True) for one in self._heard.events]
        return _json({"lines": story(self._heard.events), "events": events})

    def _admitted(self, handler: Handler) -> Handler:
        async def answer(request: Request) -> Response:
            given = request.headers.get("authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(given.encode(), self._token):
                return _json({"error": "the token of the nodes' process is needed"}, 401)
            return await handler(request)

        return answer


def _json(content: object, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")

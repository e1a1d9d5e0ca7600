"""A server that answers as a test says, over real sockets, and remembers what it was asked."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

METHODS = ["GET", "PATCH", "POST", "PUT"]
START_SECONDS = 20


@dataclass(frozen=True)
class Call:
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    content: bytes
    status: int = 200
    media_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)


def document(value: Any, status: int = 200) -> Reply:
    return Reply(json.dumps(value).encode(), status)


def problem(status: int, detail: str, **members: Any) -> Reply:
    fields = {"type": "about:blank", "title": "Refused", "status": status, "detail": detail, **members}
    return Reply(json.dumps(fields).encode(), status, "application/problem+json")


class FakeApi:
    """Replies are given by method and path; of several, each is used once and the last one stays."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.url = ""
        self._replies: defaultdict[tuple[str, str], deque[Reply]] = defaultdict(deque)
        self._always: Reply | None = None
        self.app = Starlette(routes=[Route("/{path:path}", self._answer, methods=METHODS)])

    def reset(self) -> None:
        self.calls.clear()
        self._replies.clear()
        self._always = None

    def on(self, method: str, path: str, *replies: Reply) -> None:
        self._replies[method, path] = deque(replies)

    def always(self, reply: Reply) -> None:
        """The reply to everything that has none of its own."""
        self._always = reply

    def asked(self, method: str, path: str) -> list[Call]:
        return [call for call in self.calls if (call.method, call.path) == (method, path)]

    async def _answer(self, request: Request) -> Response:
        call = Call(
            request.method,
            request.url.path,
            dict(request.query_params),
            dict(request.headers),
            await request.body(),
        )
        self.calls.append(call)
        reply = self._reply(call)
        return Response(
            reply.content, status_code=reply.status, media_type=reply.media_type, headers=reply.headers
        )

    def _reply(self, call: Call) -> Reply:
        waiting = self._replies[call.method, call.path]
        if len(waiting) > 1:
            return waiting.popleft()
        if waiting:
            return waiting[0]
        return self._always or problem(404, f"the test has no reply for {call.method} {call.path}")


@contextmanager
def serving(api: FakeApi) -> Iterator[FakeApi]:
    """Serve on a free loopback port until the end of the block."""
    server = uvicorn.Server(
        uvicorn.Config(api.app, host="127.0.0.1", port=0, log_level="error", lifespan="off")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + START_SECONDS
    while not server.started:
        assert time.monotonic() < deadline, "the fake server did not start"
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    api.url = f"http://127.0.0.1:{port}"
    try:
        yield api
    finally:
        server.should_exit = True
        thread.join(START_SECONDS)

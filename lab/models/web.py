"""The two dialects of a model server, and the calls by which a test or a scenario disturbs it."""

from __future__ import annotations

import asyncio
import hmac
import os
import signal
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lab.models.memory import CATALOGUE, LoadFailed, LoadRefused, Memory, NoMemory, Stage, UnknownModel
from lab.models.memory import size_of as size_gb

GB = 1024**3
VERSION = "0.40.12"
Handler = Callable[[Request], Awaitable[Response]]


class Disturbances:
    """What an admin call set: answers that never come, and tokens that stopped counting."""

    def __init__(self) -> None:
        self.answering = asyncio.Event()
        self.answering.set()
        self.denying = False

    def hang(self, hanging: bool) -> None:
        if hanging:
            self.answering.clear()
        else:
            self.answering.set()


def build_app(memory: Memory) -> Starlette:
    """The application that serves `memory`, on loopback and for nobody else."""
    disturbed = Disturbances()
    api = ModelApi(memory)
    served: tuple[tuple[str, str, Handler], ...] = (
        ("GET", "/api/version", api.version),
        ("GET", "/api/ps", api.running),
        ("POST", "/api/generate", api.generate),
        ("GET", "/health", api.health),
        ("GET", "/v1/models", api.models),
        ("GET", "/models", api.models),
        ("POST", "/models/load", api.load),
        ("POST", "/models/unload", api.unload),
    )
    admin = AdminApi(memory, disturbed)
    controls: tuple[tuple[str, str, Handler], ...] = (
        ("GET", "/admin/state", admin.state),
        ("POST", "/admin/disturb", admin.disturb),
        ("POST", "/admin/forget", admin.forget),
        ("POST", "/admin/die", admin.die),
    )
    guarded = [
        Route(path, _guarded(handler, memory, disturbed), methods=[verb]) for verb, path, handler in served
    ]
    return Starlette(
        routes=[*guarded, *(Route(path, handler, methods=[verb]) for verb, path, handler in controls)]
    )


def _guarded(handler: Handler, memory: Memory, disturbed: Disturbances) -> Handler:
    token = memory.settings.token
    expected = b"" if token is None else f"Bearer {token.get_secret_value()}".encode()

    async def answer(request: Request) -> Response:
        await disturbed.answering.wait()
        sent = request.headers.get("authorization", "").encode()
        if disturbed.denying or (expected and not hmac.compare_digest(sent, expected)):
            return _json({"error": "unauthorized"}, 401)
        return await handler(request)

    return answer


class ModelApi:
    """Ollama's and OpenAI's paths over one memory."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._background: set[asyncio.Task[None]] = set()

    async def version(self, _: Request) -> Response:
        return _json({"version": VERSION})

    async def health(self, _: Request) -> Response:
        return _json({"status": "ok"})

    async def running(self, _: Request) -> Response:
        """What is in memory, under its whole name, as Ollama tells it."""
        entries = [
            {"name": _tagged(name), "model": _tagged(name), "size": held.size_gb * GB}
            | {"size_vram": held.size_gb * GB, "expires_at": "2318-01-01T00:00:00Z", "details": {}}
            for name, held in sorted(self._memory.held.items())
            if held.stage is Stage.LOADED
        ]
        return _json({"models": entries})

    async def generate(self, request: Request) -> Response:
        """Without a prompt: load a model, or unload it with `keep_alive` 0."""
        body = await _body(request)
        model = body.get("model")
        if not isinstance(model, str) or not model:
            return _json({"error": "model is required"}, 400)
        try:
            size_gb(model)
            if body.get("keep_alive") == 0:
                self._memory.unload(model)
                return _done(model, "unload")
            await self._memory.load(model)
        except UnknownModel as error:
            return _json({"error": str(error)}, 404)
        except (NoMemory, LoadFailed) as error:
            return _json({"error": str(error)}, 500)
        return _done(model, "load")

    async def models(self, _: Request) -> Response:
        known = sorted({*CATALOGUE, *self._memory.held, *self._memory.failed})
        return _json({"object": "list", "data": [self._entry(name) for name in known]})

    async def load(self, request: Request) -> Response:
        """Begin a load and answer; how it ends is told by the list of models."""
        model = (await _body(request)).get("model")
        if not isinstance(model, str):
            return _error("model is required", 400)
        try:
            size_gb(model)
        except UnknownModel as error:
            return _error(str(error), 404)
        if self._memory.stage(model) is not Stage.UNLOADED:
            return _error("model is already running", 400)
        task: asyncio.Task[None] = asyncio.create_task(self._load(model))
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return _json({"success": True})

    async def unload(self, request: Request) -> Response:
        model = (await _body(request)).get("model")
        if not isinstance(model, str) or not self._memory.unload(model):
            return _error("model is not running", 400)
        return _json({"success": True})

    async def _load(self, model: str) -> None:
        try:
            await self._memory.load(model)
        except LoadRefused:
            self._memory.failed.add(model)

    def _entry(self, name: str) -> dict[str, Any]:
        status: dict[str, Any] = {"value": self._memory.stage(name).value}
        if name in self._memory.failed:
            status |= {"failed": True, "exit_code": 1}
        return {"id": name, "object": "model", "owned_by": "laboratory", "status": status}


class AdminApi:
    """What a test or a scenario may do to the server, and what it may know."""

    def __init__(self, memory: Memory, disturbed: Disturbances) -> None:
        self._memory = memory
        self._disturbed = disturbed

    async def state(self, _: Request) -> Response:
        ledger = self._memory.ledger
        return _json(
            {
                "models": {name: one.stage.value for name, one in self._memory.held.items()},
                "used_gb": self._memory.used_gb,
                "vram_gb": self._memory.settings.vram_gb,
                "most_used_gb": ledger.most_used_gb,
                "loads": ledger.loads,
                "unloads": ledger.unloads,
                "most_at_once": ledger.most_at_once,
            }
        )

    async def disturb(self, request: Request) -> Response:
        """`hang` and `deny` switch on and off; `fail_next` lets so many loads fail."""
        body = await _body(request)
        if "hang" in body:
            self._disturbed.hang(bool(body["hang"]))
        self._disturbed.denying = bool(body.get("deny", self._disturbed.denying))
        self._memory.fail_next = int(body.get("fail_next", self._memory.fail_next))
        return _json({"success": True})

    async def forget(self, request: Request) -> Response:
        """Unload a model as the server itself does when it is short of memory."""
        model = (await _body(request)).get("model")
        return _json({"success": isinstance(model, str) and self._memory.unload(model)})

    async def die(self, _: Request) -> Response:
        """End the process without a word, in the middle of whatever it does."""
        os.kill(os.getpid(), signal.SIGKILL)
        return _json({})


def _tagged(name: str) -> str:
    return name if ":" in name else f"{name}:latest"


def _done(model: str, why: str) -> Response:
    at = datetime.now(UTC).isoformat()
    return _json({"model": model, "created_at": at, "response": "", "done": True, "done_reason": why})


def _error(message: str, status: int) -> Response:
    return _json({"error": {"code": status, "message": message, "type": "invalid_request_error"}}, status)


async def _body(request: Request) -> dict[str, Any]:
    try:
        body = orjson.loads(await request.body())
    except orjson.JSONDecodeError:
        return {}
    return body if isinstance(body, dict) else {}


def _json(body: dict[str, Any], status: int = 200) -> Response:
    return Response(orjson.dumps(body), status_code=status, media_type="application/json")

"""The two ways in which serving endpoints are spoken to.

What is assumed of them is listed in docs/concepts/warm-keeping.md, and the laboratory's model server keeps
to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Protocol

from activities.serving.connecting import Line, Reply
from activities.serving.ports import ListedModel, ServingProblem
from domain.serving.endpoint import Dialect
from domain.serving.models import same_model

BYTES_PER_GB = 1024**3
# A model that loads is looked for this often: its listing is one small request.
POLL_SECONDS = 0.25
MEMORY_WORDS = ("memory", "vram")


class Speaker(Protocol):
    """One dialect on one line."""

    async def listed(self, line: Line) -> tuple[ListedModel, ...]: ...

    async def load(self, line: Line, model: str) -> None: ...

    async def unload(self, line: Line, model: str) -> None: ...

    async def probe(self, line: Line) -> None: ...


class Ollama:
    """Loads and unloads by a request without a prompt; `keep_alive` says for how long."""

    async def listed(self, line: Line) -> tuple[ListedModel, ...]:
        reply = await line.call("GET", "/api/ps")
        entries = _entries(line, reply, "models")
        return _sorted(
            ListedModel(_text(line, one, "name"), _gigabytes(one.get("size_vram"))) for one in entries
        )

    async def load(self, line: Line, model: str) -> None:
        """A load takes as long as its request: the endpoint answers when it is done."""
        body = {"model": model, "keep_alive": -1, "stream": False}
        reply = await line.call("POST", "/api/generate", body, seconds=line.terms.load_seconds)
        _require_success(line, reply, model)
        if not _has(await self.listed(line), model):
            raise line.problem(
                ServingProblem.FAILED, f"{model} is not listed, although its load was answered"
            )

    async def unload(self, line: Line, model: str) -> None:
        body = {"model": model, "keep_alive": 0, "stream": False}
        reply = await line.call("POST", "/api/generate", body)
        if reply.status != HTTPStatus.NOT_FOUND:
            _require_success(line, reply, model)
        await _wait_until_gone(self, line, model)

    async def probe(self, line: Line) -> None:
        reply = await line.call("GET", "/api/version")
        if reply.status != HTTPStatus.OK or not _is_object_with(reply.body, "version"):
            raise line.problem(ServingProblem.PROTOCOL, "/api/version tells no version")


class OpenAi:
    """OpenAI's list of models, with `/models/load` and `/models/unload` beside it.

    A server whose entries have no status serves what it lists.
    """

    async def listed(self, line: Line) -> tuple[ListedModel, ...]:
        return _sorted(
            ListedModel(_text(line, one, "id"))
            for one in await self._entries(line)
            if _status(one) in {None, "loaded"}
        )

    async def load(self, line: Line, model: str) -> None:
        if _has(await self.listed(line), model):
            return
        reply = await line.call("POST", "/models/load", {"model": model})
        # Another caller may have begun: what counts is the list.
        if reply.status != HTTPStatus.BAD_REQUEST or "already" not in reply.error:
            _require_success(line, reply, model)
        try:
            async with asyncio.timeout(line.terms.load_seconds):
                while True:
                    if await self._is_loaded(line, model):
                        return
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise line.problem(
                ServingProblem.TIMEOUT, f"{model} did not load in {line.terms.load_seconds:g} s"
            ) from None

    async def unload(self, line: Line, model: str) -> None:
        if not _has(await self.listed(line), model):
            return
        reply = await line.call("POST", "/models/unload", {"model": model})
        if reply.status not in {HTTPStatus.NOT_FOUND, HTTPStatus.BAD_REQUEST}:
            _require_success(line, reply, model)
        await _wait_until_gone(self, line, model)

    async def probe(self, line: Line) -> None:
        reply = await line.call("GET", "/health")
        if reply.status != HTTPStatus.OK:
            raise line.problem(ServingProblem.PROTOCOL, f"/health answers {reply.error}")

    async def _entries(self, line: Line) -> list[dict[str, Any]]:
        return _entries(line, await line.call("GET", "/v1/models"), "data")

    async def _is_loaded(self, line: Line, model: str) -> bool:
        for one in await self._entries(line):
            if not same_model(_text(line, one, "id"), model):
                continue
            if _status(one) in {None, "loaded"}:
                return True
            if _has_failed(one):
                raise line.problem(ServingProblem.FAILED, f"{model} failed to load")
        return False


SPEAKERS: dict[Dialect, Speaker] = {Dialect.OLLAMA: Ollama(), Dialect.OPENAI: OpenAi()}


def _require_success(line: Line, reply: Reply, model: str) -> None:
    if reply.status < HTTPStatus.BAD_REQUEST:
        return
    said = reply.error
    if any(word in said.lower() for word in MEMORY_WORDS):
        raise line.problem(ServingProblem.NO_MEMORY, f"{model} does not fit: {said}")
    if reply.status == HTTPStatus.NOT_FOUND:
        raise line.problem(ServingProblem.UNKNOWN_MODEL, f"{model} is not there: {said}")
    if reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise line.problem(ServingProblem.FAILED, f"{model}: {said}")
    raise line.problem(ServingProblem.PROTOCOL, f"{model}: {said}")


async def _wait_until_gone(speaker: Speaker, line: Line, model: str) -> None:
    """A model that still answers somebody leaves when it has."""
    try:
        async with asyncio.timeout(line.terms.answer_seconds):
            while True:
                if not _has(await speaker.listed(line), model):
                    return
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise line.problem(
            ServingProblem.TIMEOUT, f"{model} is still listed after {line.terms.answer_seconds:g} s"
        ) from None


def _entries(line: Line, reply: Reply, field: str) -> list[dict[str, Any]]:
    if reply.status != HTTPStatus.OK:
        raise line.problem(ServingProblem.PROTOCOL, f"its list of models answers {reply.error}")
    found = reply.body.get(field) if isinstance(reply.body, dict) else None
    if found is None and _is_object_with(reply.body, field):
        return []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise line.problem(ServingProblem.PROTOCOL, f"its list of models has no {field!r}")
    return found


def _text(line: Line, entry: dict[str, Any], field: str) -> str:
    value = entry.get(field)
    if not isinstance(value, str) or not value:
        raise line.problem(ServingProblem.PROTOCOL, f"a listed model has no {field!r}")
    return value


def _status(entry: dict[str, Any]) -> str | None:
    status = entry.get("status")
    value = status.get("value") if isinstance(status, dict) else status
    return value if isinstance(value, str) else None


def _has_failed(entry: dict[str, Any]) -> bool:
    status = entry.get("status")
    return isinstance(status, dict) and bool(status.get("failed"))


def _is_object_with(body: object, field: str) -> bool:
    return isinstance(body, dict) and field in body


def _gigabytes(size: object) -> int | None:
    return -(-size // BYTES_PER_GB) if isinstance(size, int) and size > 0 else None


def _has(listed: Iterable[ListedModel], model: str) -> bool:
    return any(same_model(one.model, model) for one in listed)


def _sorted(listed: Iterable[ListedModel]) -> tuple[ListedModel, ...]:
    return tuple(sorted(listed, key=lambda one: one.model))

"""Repeating a request safely: the same key and body get the same answer, and the work is done once."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Header, Request
from starlette.responses import Response

from api.deps import Deps
from store.engine import Connection
from store.idempotency import Answer, KeyedRequest, find_answer, keep_answer

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[!-~]*$",
        description="Makes repeating this request harmless for 24 hours: the first answer is given again.",
    ),
]
Work = Callable[[Connection], Awaitable[Answer]]
After = Callable[[Answer], Awaitable[Answer]]


def keyed(request: Request, tenant_id: str, key: str | None, body: bytes) -> KeyedRequest | None:
    """The request under its key, if it has one. Query and body make it what it is."""
    if key is None:
        return None
    content = hashlib.sha256(request.url.query.encode())
    content.update(b"\n" + body)
    route = f"{request.method} {request.url.path}"
    return KeyedRequest(tenant_id, key, route, content.hexdigest())


async def once(deps: Deps, request: KeyedRequest | None, work: Work, after: After | None = None) -> Response:
    """Do `work` in one transaction with the record of its answer, or give the answer that it had.

    `after` runs once that is committed, and may improve the answer; until it has, a repeated request
    gets the answer as `work` left it. Without a key the work is simply done.
    """
    async with deps.engine.begin() as connection:
        if request is not None:
            known = await find_answer(connection, request, deps.now())
            if known is not None:
                return _response(known, replayed=True)
        answer = await work(connection)
        if request is not None:
            await keep_answer(connection, request, answer, deps.now())
    if after is None:
        return _response(answer)
    improved = await after(answer)
    if request is not None and improved != answer:
        async with deps.engine.begin() as connection:
            await keep_answer(connection, request, improved, deps.now())
    return _response(improved)


def _response(answer: Answer, *, replayed: bool = False) -> Response:
    headers = answer.headers | ({"Idempotency-Replayed": "true"} if replayed else {})
    return Response(answer.body, status_code=answer.status, headers=headers, media_type="application/json")

"""Health and reflection: they say nothing that is anybody's own, so they are open to callers without a token.

Whoever is let in may stay, so only few are let in at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc
from grpc import RpcMethodHandler

from api.grpc.admission import Places
from api.grpc.calls import Refused, refuse
from api.grpc.messages import NO_MESSAGE, Unreadable, serializers

OPEN_SERVICES = frozenset({"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"})
EVERYBODY = ""


def side_door(handler: RpcMethodHandler[Any, Any], places: Places) -> RpcMethodHandler[Any, Any]:
    """The same handler, for messages that can be read and as long as there is a place."""
    if handler.unary_unary is not None:
        return grpc.unary_unary_rpc_method_handler(
            partial(_check, handler.unary_unary), **serializers(handler)
        )
    if handler.unary_stream is not None:
        watch = partial(_watch, places, handler.unary_stream)
        return grpc.unary_stream_rpc_method_handler(watch, **serializers(handler))
    talk = partial(_talk, places, handler.stream_stream)
    return grpc.stream_stream_rpc_method_handler(talk, **serializers(handler))


async def _check(inner: Any, request: Any, context: Any) -> Any:
    if isinstance(request, Unreadable):
        await refuse(context, NO_MESSAGE)
    return await inner(request, context)


async def _watch(places: Places, inner: Any, request: Any, context: Any) -> None:
    try:
        if isinstance(request, Unreadable):
            raise NO_MESSAGE
        async with places.taken(EVERYBODY):
            await inner(request, context)
    except Refused as refused:
        await refuse(context, refused)


async def _talk(places: Places, inner: Any, requests: AsyncIterator[Any], context: Any) -> None:
    try:
        async with places.taken(EVERYBODY):
            async for answer in inner(_readable(requests), context):
                await context.write(answer)
    except Refused as refused:
        await refuse(context, refused)


async def _readable(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for request in requests:
        if isinstance(request, Unreadable):
            raise NO_MESSAGE
        yield request

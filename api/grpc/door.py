"""The door that every call passes: signed in, in time and in its turn, or refused with a status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import grpc
from grpc import RpcMethodHandler, StatusCode
from grpc.aio import ServerInterceptor

from api.grpc.admission import Admission, Places, busy
from api.grpc.calls import REQUEST_ID, Call, Refused, call_of, refuse
from api.grpc.deadline import ends_in
from api.grpc.messages import NO_MESSAGE, Unreadable, serializers
from api.grpc.observe import GrpcMetrics, log_failed
from api.grpc.refusals import LATE, refusal_of, unforeseen
from api.grpc.side_door import OPEN_SERVICES, side_door
from api.grpc.sign_in import Callers
from api.grpc.workroom import Work
from api.sign_in.principal import Need

# The class knows its types only to a type checker.
Handler: TypeAlias = "RpcMethodHandler[Any, Any]"
Lookup = Callable[[grpc.HandlerCallDetails], Awaitable[Any]]
# What a method does with a message, or with a stream of them; and all that is done about one call.
Method = Callable[[Any, Call], Coroutine[Any, Any, Any]]
Answering = Callable[[Call], Awaitable[Any]]


class Rooms(NamedTuple):
    """What is bounded: single calls at work, open streams of reports, and callers without a token."""

    admission: Admission
    streams: Places
    side_calls: Places


class Door(ServerInterceptor):
    """Wraps every method. `needs` says by full name what each needs of its caller; others are not served.

    Methods are given the `Call` in the place of the library's context. `work` is where single calls are
    worked on, so that this loop has time for those that come.
    """

    def __init__(
        self, needs: Mapping[str, Need], callers: Callers, rooms: Rooms, metrics: GrpcMetrics, work: Work
    ) -> None:
        self._needs = needs
        self._callers = callers
        self._rooms = rooms
        self._metrics = metrics
        self._work = work
        self._wrapped: dict[str, Handler] = {}

    async def intercept_service(
        self, continuation: Lookup, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        name = handler_call_details.method
        if name not in self._wrapped:
            handler = await continuation(handler_call_details)
            if handler is None:
                return None
            self._wrapped[name] = self._wrap(name, handler)
        wrapped = self._wrapped[name]
        if name in self._needs and not wrapped.request_streaming:
            tenant_id = self._callers.tenant_of(handler_call_details.invocation_metadata)
            if self._rooms.admission.is_full(tenant_id):
                return self._turned_away(name)
        return wrapped

    def _turned_away(self, full_name: str) -> Handler:
        """A handler that refuses a call. It is one for streams, for these need not be read first.

        Under overload most calls end here, so this costs a fraction of what verifying their tokens would.
        """
        method = full_name.rpartition("/")[2]

        async def refused(_requests: Any, context: Any) -> Any:
            call, full = call_of(method, context), busy()
            log_failed(call, full, full)
            self._metrics.answered(call, full.code, stream=False)
            await refuse(context, full, call.request_id)

        return grpc.stream_unary_rpc_method_handler(refused)

    def _wrap(self, full_name: str, handler: Handler) -> Handler:
        service, _, name = full_name.removeprefix("/").rpartition("/")
        if service in OPEN_SERVICES:
            return side_door(handler, self._rooms.side_calls)
        need = self._needs[full_name]
        method: Any = handler.stream_unary or handler.unary_unary
        if handler.request_streaming:
            streamed = partial(self._stream, name, need, method)
            return grpc.stream_unary_rpc_method_handler(streamed, **serializers(handler))
        single = partial(self._single, name, need, method)
        return grpc.unary_unary_rpc_method_handler(single, **serializers(handler))

    async def _single(self, name: str, need: Need, method: Method, request: Any, context: Any) -> Any:
        async def answering(call: Call) -> Any:
            if isinstance(request, Unreadable):
                raise NO_MESSAGE
            seconds = call.seconds_left()
            if seconds <= 0:
                raise Refused(StatusCode.DEADLINE_EXCEEDED, LATE)
            async with _deadline(seconds), self._rooms.admission.turn(call.who.tenant_id):
                return await self._work(method(request, call))

        return await self._answered(name, need, answering, context)

    async def _stream(self, name: str, need: Need, method: Method, requests: Any, context: Any) -> Any:
        async def answering(call: Call) -> Any:
            async with self._rooms.streams.taken(call.who.tenant_id):
                with self._metrics.streams.track_inprogress():
                    return await method(requests, call)

        return await self._answered(name, need, answering, context, stream=True)

    async def _answered(
        self, name: str, need: Need, answering: Answering, context: Any, *, stream: bool = False
    ) -> Any:
        call = call_of(name, context)
        context.set_trailing_metadata(((REQUEST_ID, call.request_id),))
        code = StatusCode.CANCELLED
        try:
            call.principal = await self._callers.principal_of(call, need)
            answer = await answering(call)
            code = StatusCode.OK
            return answer
        except Exception as error:
            if context.cancelled():
                # What the work stumbled over when its caller left is nobody's failure.
                raise asyncio.CancelledError from error
            refused = refusal_of(error) or unforeseen(call.request_id)
            code = refused.code
            log_failed(call, refused, error)
        finally:
            self._metrics.answered(call, code, stream=stream)
        return await refuse(context, refused, call.request_id)


@asynccontextmanager
async def _deadline(seconds: float) -> AsyncIterator[None]:
    """End what happens in this block in time, with `TimeoutError`.

    A transaction that is cut off may end with an error of its own, about a connection that is gone.
    """
    limit = asyncio.timeout(seconds)
    try:
        with ends_in(seconds):
            async with limit:
                yield
    except Exception as error:
        if limit.expired():
            raise TimeoutError from error
        raise

"""Whatever is sent is answered with a status that says whose fault it is: never INTERNAL, never UNKNOWN."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest_asyncio
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc import StatusCode
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store.engine import Engine
from store.roles import TENANT_ROLE
from tests.activities.model_placing import MODEL, PLATFORM
from tests.api.grpc.door import GrpcDoor, asked, grpc_door, iter_messages, report
from tests.database import opened
from tests.estates import Clock
from wire.proto import control_pb2 as pb

MANY = settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
OURS = {StatusCode.INTERNAL, StatusCode.UNKNOWN, StatusCode.UNAVAILABLE, StatusCode.DATA_LOSS}
SERVICE = "/sco.compute.v1.ComputePools/"
REQUESTS: dict[str, type[Message]] = {
    "Place": pb.PlaceRequest,
    "Renew": pb.RenewRequest,
    "Release": pb.ReleaseRequest,
    "ReportEndpoint": pb.ReportEndpointRequest,
    "ReportUtilization": pb.ReportUtilizationRequest,
}
SHARP = [
    "",
    "\x00",
    "gpu-1",
    MODEL,
    PLATFORM,
    "a" * 5000,
    "'; DROP TABLE pools; --",
    "1e999",
    "NaN",
    "0.5",
    "USD",
]
TEXT = st.one_of(st.text(max_size=30), st.sampled_from(SHARP), st.uuids().map(str))
INT32 = st.one_of(st.integers(-(2**31), 2**31 - 1), st.integers(-2, 200))
INT64 = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-2, 2**34))
SCALARS: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_STRING: TEXT,
    FieldDescriptor.TYPE_INT32: INT32,
    FieldDescriptor.TYPE_INT64: INT64,
    FieldDescriptor.TYPE_ENUM: st.one_of(st.integers(0, 4), st.integers(-(2**31), 2**31 - 1)),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
}


def messages(kind: type[Message]) -> st.SearchStrategy[Any]:
    """Messages with any values in any of their fields."""
    fields = {one.name: _values(one) for one in kind.DESCRIPTOR.fields}
    return st.fixed_dictionaries({}, optional=fields).map(lambda values: kind(**values))


def _values(field: Any) -> st.SearchStrategy[Any]:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        one = messages(GetMessageClass(field.message_type))
    else:
        one = SCALARS[field.type]
    return st.lists(one, max_size=3) if field.is_repeated else one


@st.composite
def near_valid(draw: st.DrawFn) -> pb.PlaceRequest:
    """A request that is answered with a pool, with some fields replaced."""
    request = asked()
    replaced = draw(st.lists(st.sampled_from(list(pb.PlaceRequest.DESCRIPTOR.fields)), max_size=3))
    for field in replaced:
        request.MergeFrom(pb.PlaceRequest(**{field.name: draw(_values(field))}))
    return request


@pytest_asyncio.fixture(scope="module")
async def one_door(shared_engine: Engine, shared_dsn: str) -> AsyncIterator[GrpcDoor]:
    async with (
        opened(shared_dsn, role=TENANT_ROLE) as engine,
        grpc_door(shared_engine, engine, Clock()) as door,
    ):
        await door.serving.pool(vram_gb=100_000)
        yield door


async def answered(door: GrpcDoor, method: str, content: bytes, metadata: Any = None) -> StatusCode:
    """The status of one call with these bytes as its message."""
    signed = door.signed() if metadata is None else metadata
    if method == "ReportUtilization":
        streamed = door.channel.stream_unary(SERVICE + method, bytes, bytes)
        code = await streamed(iter_messages([content]), metadata=signed, timeout=20).code()
    else:
        single = door.channel.unary_unary(SERVICE + method, bytes, bytes)
        code = await single(content, metadata=signed, timeout=20).code()
    assert isinstance(code, StatusCode)
    return code


@MANY
@given(st.sampled_from(sorted(REQUESTS)), st.binary(max_size=300))
async def test_any_bytes(one_door: GrpcDoor, method: str, content: bytes) -> None:
    assert await answered(one_door, method, content) not in OURS


@MANY
@given(st.one_of([messages(kind) for kind in REQUESTS.values()]))
async def test_any_values_of_any_fields(one_door: GrpcDoor, message: Message) -> None:
    method = type(message).__name__.removesuffix("Request")
    assert await answered(one_door, method, message.SerializeToString()) not in OURS


@MANY
@given(near_valid())
async def test_requests_near_valid_ones(one_door: GrpcDoor, request_: pb.PlaceRequest) -> None:
    assert await answered(one_door, "Place", request_.SerializeToString()) not in OURS


@MANY
@given(st.binary(max_size=300), st.sampled_from(sorted(REQUESTS)), st.integers(0, 200))
async def test_valid_messages_with_bytes_changed(
    one_door: GrpcDoor, noise: bytes, method: str, place: int
) -> None:
    good = (report() if method == "ReportUtilization" else asked()).SerializeToString()
    content = good[:place] + noise + good[place + len(noise) :]
    assert await answered(one_door, method, content) not in OURS


NAMES = st.sampled_from(["authorization", "x-request-id", "te", "accept", "user-agent", "x", "grpc-foo"])
PRINTABLE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=200)


@MANY
@given(st.lists(st.tuples(NAMES, PRINTABLE), max_size=6))
async def test_any_metadata(one_door: GrpcDoor, metadata: list[tuple[str, str]]) -> None:
    code = await answered(one_door, "Place", asked().SerializeToString(), tuple(metadata))
    assert code not in OURS
    assert code is not StatusCode.OK


SIDE_METHODS = {
    "/grpc.health.v1.Health/Check": health_pb2.HealthCheckRequest,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": reflection_pb2.ServerReflectionRequest,
}


@MANY
@given(st.data())
async def test_health_and_reflection_take_anything(one_door: GrpcDoor, data: st.DataObject) -> None:
    method, kind = data.draw(st.sampled_from(sorted(SIDE_METHODS.items())))
    content = data.draw(
        st.one_of(st.binary(max_size=100), messages(kind).map(lambda one: one.SerializeToString()))
        if method.endswith("Check")
        else st.binary(max_size=100)
    )
    if method.endswith("Check"):
        code = await one_door.channel.unary_unary(method, bytes, bytes)(content, timeout=20).code()
    else:
        talk = one_door.channel.stream_stream(method, bytes, bytes)(iter_messages([content]), timeout=20)
        try:
            async for _ in talk:
                pass
        except grpc.aio.AioRpcError:
            pass
        code = await talk.code()
    assert code not in OURS


@MANY
@given(st.lists(st.one_of(st.binary(max_size=60), messages(pb.ReportUtilizationRequest)), max_size=5))
async def test_streams_of_anything_are_counted(one_door: GrpcDoor, sent: list[Any]) -> None:
    contents = [one if isinstance(one, bytes) else one.SerializeToString() for one in sent]
    streamed = one_door.channel.stream_unary(
        SERVICE + "ReportUtilization", bytes, pb.ReportUtilizationResponse.FromString
    )
    answer = await streamed(iter_messages(contents), metadata=one_door.signed(), timeout=20)
    assert answer.accepted + answer.refused == len(sent)
    assert answer.refused == sum(one.count for one in answer.reasons)

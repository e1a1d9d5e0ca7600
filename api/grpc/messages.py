"""Reading messages. The library answers bytes that are no message with UNKNOWN; here they get a place holder,
so that whoever gets it can refuse it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError
from grpc import RpcMethodHandler

from api.grpc.calls import invalid


class Unreadable(NamedTuple):
    """What stands in the place of a message that cannot be read."""


UNREADABLE = Unreadable()
NO_MESSAGE = invalid("the message cannot be read; send one as sco/compute/v1/control.proto describes it")


def serializers(handler: RpcMethodHandler[Any, Any]) -> dict[str, Any]:
    """How a handler's messages are read and written, as the makers of handlers take it."""
    parse = handler.request_deserializer
    assert parse is not None
    return {
        "request_deserializer": partial(_read, parse),
        "response_serializer": handler.response_serializer,
    }


def _read(parse: Callable[[bytes], Any], content: bytes) -> Any:
    try:
        return parse(content)
    except DecodeError:
        return UNREADABLE

"""One call while it is answered, and how it is refused."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Never
from uuid import uuid4

from grpc import StatusCode
from grpc.aio import ServicerContext

from api.sign_in.principal import Principal

# A client without a deadline is not waited for endlessly, and no deadline keeps a transaction open for long.
DEFAULT_SECONDS = 5.0
MOST_SECONDS = 10.0
RETRY_SECONDS = 1
# What fits into a header with room to spare.
MOST_TEXT = 1000
REQUEST_ID = "x-request-id"
_PLAIN_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

Pairs = tuple[tuple[str, str | bytes], ...]


class Refused(Exception):
    """A call, or one report of a stream, that is refused: the code, and a text for people.

    `retry` tells the caller to send it again after a second.
    """

    def __init__(self, code: StatusCode, text: str, *, reason: str = "", retry: bool = False) -> None:
        super().__init__(text)
        self.code = code
        self.text = text[:MOST_TEXT]
        self.reason = reason or code.name.lower()
        self.retry = retry

    @property
    def trailers(self) -> Pairs:
        """What is sent behind the status: the second is what gRPC's own retry policies obey."""
        if not self.retry:
            return ()
        return (("retry-after", str(RETRY_SECONDS)), ("grpc-retry-pushback-ms", str(RETRY_SECONDS * 1000)))


async def refuse(context: Any, refused: Refused, request_id: str | None = None) -> Never:
    """End a call with its refusal."""
    named = () if request_id is None else ((REQUEST_ID, request_id),)
    await context.abort(refused.code, refused.text, (*refused.trailers, *named))
    raise AssertionError("abort returned")


def invalid(text: str) -> Refused:
    return Refused(StatusCode.INVALID_ARGUMENT, text)


@dataclass(slots=True)
class Call:
    """One call. `ends_at` is on the monotonic clock: where the client stops waiting, if it says."""

    method: str
    request_id: str
    metadata: Pairs
    began_at: float = field(default_factory=time.monotonic)
    ends_at: float | None = None
    principal: Principal | None = None

    @property
    def who(self) -> Principal:
        assert self.principal is not None
        return self.principal

    def seconds_left(self) -> float:
        """How long a single answer may still take: never more than `MOST_SECONDS`."""
        ends_at = self.began_at + DEFAULT_SECONDS if self.ends_at is None else self.ends_at
        return min(ends_at - time.monotonic(), MOST_SECONDS)


def call_of(method: str, context: ServicerContext[object, object]) -> Call:
    metadata = _pairs(context.invocation_metadata())
    remaining = context.time_remaining()
    return Call(
        method=method,
        request_id=_request_id(metadata),
        metadata=metadata,
        ends_at=None if remaining is None else time.monotonic() + remaining,
    )


def _pairs(metadata: Iterable[tuple[str, str | bytes]] | None) -> Pairs:
    return tuple((name, value) for name, value in metadata or ())


def _request_id(metadata: Pairs) -> str:
    """The caller's id where it is a plain one, else a new one."""
    given = next((value for name, value in metadata if name == REQUEST_ID), "")
    plain = isinstance(given, str) and _PLAIN_ID.fullmatch(given)
    return given if isinstance(given, str) and plain else uuid4().hex

"""Streams on a server that tests share: a worker of another test may have left one, made in its own way."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import zip_longest

from nats.js import JetStreamContext
from nats.js.api import StreamConfig
from nats.js.errors import NotFoundError


async def no_stream(stream: JetStreamContext, subjects: Sequence[str], name: str | None = None) -> None:
    """See to it that none takes any of these subjects, whatever it is called, and that none has this name."""
    for one in await stream.streams_info():
        found = one.config.name
        assert found is not None, "a stream has a name"
        if found == name or any(meet(a, b) for a in subjects for b in one.config.subjects or ()):
            with suppress(NotFoundError):
                await stream.delete_stream(found)


async def fresh_stream(stream: JetStreamContext, config: StreamConfig) -> None:
    """Make a stream that holds nothing, and alone takes its subjects."""
    await no_stream(stream, config.subjects or (), config.name)
    await stream.add_stream(config)


def meet(one: str, other: str) -> bool:
    """Whether a message may be on both subjects."""
    for here, there in zip_longest(one.split("."), other.split(".")):
        if here is None or there is None:
            return False
        if ">" in (here, there):
            return True
        if here != there and "*" not in (here, there):
            return False
    return True

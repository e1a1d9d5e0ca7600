"""Streams on a server that tests share: a worker of another test may have left one, made in its own way."""

from __future__ import annotations

from contextlib import suppress

from nats.js import JetStreamContext
from nats.js.api import StreamConfig
from nats.js.errors import NotFoundError


async def no_stream(stream: JetStreamContext, name: str) -> None:
    """See to it that there is none of this name."""
    with suppress(NotFoundError):
        await stream.delete_stream(name)


async def fresh_stream(stream: JetStreamContext, config: StreamConfig) -> None:
    """Make a stream that holds nothing."""
    assert config.name is not None, "a stream has a name"
    await no_stream(stream, config.name)
    await stream.add_stream(config)

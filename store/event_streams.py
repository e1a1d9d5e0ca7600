"""What Postgres remembers of the stream that events go to, so that the loss of that stream is noticed."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from store.engine import Connection
from store.tables import event_streams

OWNER = "platform"


class Seen(NamedTuple):
    """A stream as it was seen: when it was made, and the sequence of the last message that it took."""

    made_at: datetime
    last_sequence: int


class Known(NamedTuple):
    """The stream as it is remembered.

    Where `resend_after` is a number, what follows it in the outbox is being published again.
    """

    seen: Seen
    resend_after: int | None


async def find(connection: Connection, stream: str) -> Known | None:
    """What is remembered of a stream, or None when nothing was published to it yet."""
    query = sa.select(
        event_streams.c.made_at, event_streams.c.last_sequence, event_streams.c.resend_after
    ).where(event_streams.c.tenant_id == OWNER, event_streams.c.stream == stream)
    row = (await connection.execute(query)).first()
    return None if row is None else Known(Seen(row.made_at, row.last_sequence), row.resend_after)


async def remember(connection: Connection, stream: str, known: Known) -> None:
    values = known.seen._asdict() | {"resend_after": known.resend_after}
    statement = insert(event_streams).values(tenant_id=OWNER, stream=stream, **values)
    await connection.execute(
        statement.on_conflict_do_update(index_elements=["tenant_id", "stream"], set_=values)
    )


def is_lost(known: Known | None, seen: Seen) -> bool:
    """Whether messages that were acknowledged are gone from the stream, as far as can be told.

    A stream that was made anew lost all. One that is shorter than it was lost its end: its disk had not
    written it yet, or an older copy was put back. A stream of which nothing is remembered is taken as it is.
    """
    if known is None:
        return False
    return seen.made_at != known.seen.made_at or seen.last_sequence < known.seen.last_sequence

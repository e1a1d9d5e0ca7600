"""The transactional outbox: what happened is written with the change itself, and published afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from domain.ids import event_id
from store import documents
from store.engine import Connection, Driver
from store.tables import outbox
from wire.payloads import Payload

# Whoever writes of one key waits for whoever wrote of it before, so that sequences come in the order of
# commits. The lock is taken before the sequence is drawn, and ends with the transaction.
ADD = """
    WITH turn AS MATERIALIZED (
      SELECT pg_advisory_xact_lock(hashtextextended(CAST(%(tenant_id)s AS text) || '/' || %(key)s, 7261003))
    )
    INSERT INTO outbox (tenant_id, event_id, topic, key, payload)
    SELECT %(tenant_id)s, CAST(%(event_id)s AS uuid), %(topic)s, %(key)s, CAST(%(payload)s AS jsonb) FROM turn
    ON CONFLICT (event_id) DO NOTHING
    """
PUBLISHING = sa.text("SELECT pg_try_advisory_xact_lock(7261002)")
PURGE = sa.text(
    """
    WITH oldest AS (SELECT sequence FROM outbox ORDER BY sequence LIMIT :limit)
    DELETE FROM outbox USING oldest
    WHERE outbox.sequence = oldest.sequence AND published_at IS NOT NULL AND created_at < :before
      AND NOT EXISTS (SELECT FROM event_streams WHERE resend_after IS NOT NULL)
    """
)


class Backlog(NamedTuple):
    """How many events wait, and for how many seconds the oldest of them has."""

    events: int
    oldest_seconds: float


async def add_event(connection: Connection | Driver, payload: Payload, *, once: str) -> None:
    """Record one event in the caller's transaction, best as its last statement.

    `once` names what happened, within its tenant and topic: writing the same again changes nothing.
    """
    row: dict[str, Any] = {
        "tenant_id": payload.tenant_id,
        "event_id": event_id(payload.topic, payload.tenant_id, once),
        "topic": payload.topic,
        "key": payload.key,
        "payload": documents.dumps(payload.document()),
    }
    if isinstance(connection, Driver):
        await connection.execute(ADD, row)
    else:
        await connection.exec_driver_sql(ADD, row)


async def take_turn(connection: Connection) -> bool:
    """Whether this transaction may publish: one at a time, or later events would overtake earlier ones."""
    return bool((await connection.execute(PUBLISHING)).scalar_one())


async def to_publish(
    connection: Connection, limit: int, *, resend_after: int | None = None
) -> Sequence[sa.Row[Any]]:
    """The oldest events that are not published, and those after `resend_after` that were, in their order."""
    oldest = (
        sa.select(outbox.c.sequence)
        .where(outbox.c.published_at.is_(None))
        .order_by(outbox.c.sequence)
        .limit(limit)
    )
    if resend_after is None:
        chosen: sa.SelectBase = oldest
    else:
        again = (
            sa.select(outbox.c.sequence)
            .where(outbox.c.sequence > resend_after)
            .order_by(outbox.c.sequence)
            .limit(limit)
        )
        chosen = sa.union(oldest.subquery().select(), again.subquery().select())
    query = sa.select(outbox).where(outbox.c.sequence.in_(chosen)).order_by(outbox.c.sequence).limit(limit)
    return (await connection.execute(query)).all()


async def mark_published(connection: Connection, sequences: Sequence[int], at: datetime) -> None:
    """Record that JetStream has these; what was published before keeps its time."""
    await connection.execute(
        sa.update(outbox)
        .where(outbox.c.sequence.in_(sequences), outbox.c.published_at.is_(None))
        .values(published_at=at)
    )


async def waiting(connection: Connection) -> int:
    """How many events wait to be published for the first time."""
    query = sa.select(sa.func.count()).select_from(outbox).where(outbox.c.published_at.is_(None))
    return int((await connection.execute(query)).scalar_one())


async def backlog(connection: Connection, resend_after: int | None = None) -> Backlog:
    """What waits, and how old the oldest of it is by the clock of the database."""
    behind: sa.ColumnElement[bool] = outbox.c.published_at.is_(None)
    if resend_after is not None:
        behind = sa.or_(behind, outbox.c.sequence > resend_after)
    age = sa.func.extract("epoch", sa.func.clock_timestamp() - sa.func.min(outbox.c.created_at))
    row = (await connection.execute(sa.select(sa.func.count(), age).where(behind))).one()
    return Backlog(row[0], max(0.0, float(row[1] or 0)))


async def purge(connection: Connection, before: datetime, *, limit: int) -> int:
    """Delete the oldest events that were published and written before a time; returns how many.

    At most `limit` rows are looked at. While events are published again none is deleted.
    """
    return (await connection.execute(PURGE, {"before": before, "limit": limit})).rowcount

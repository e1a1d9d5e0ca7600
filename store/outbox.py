"""The transactional outbox: what happened is written with the change itself, and published afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

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


async def unpublished(connection: Connection, limit: int) -> Sequence[sa.Row[Any]]:
    """The oldest unpublished events, or none while another transaction publishes.

    One transaction publishes at a time: a second one would send later events before earlier ones.
    """
    if not (await connection.execute(PUBLISHING)).scalar_one():
        return []
    query = sa.select(outbox).where(outbox.c.published_at.is_(None)).order_by(outbox.c.sequence).limit(limit)
    return (await connection.execute(query)).all()


async def mark_published(connection: Connection, sequences: Sequence[int], at: datetime) -> None:
    await connection.execute(
        sa.update(outbox).where(outbox.c.sequence.in_(sequences)).values(published_at=at)
    )


async def waiting(connection: Connection) -> int:
    """How many events wait to be published."""
    query = sa.select(sa.func.count()).select_from(outbox).where(outbox.c.published_at.is_(None))
    return int((await connection.execute(query)).scalar_one())

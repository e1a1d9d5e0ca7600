"""Answers kept by their Idempotency-Key, so that a repeated request is answered and not repeated.

The key is locked for the transaction that does the work, and the answer is written in that transaction:
either both are there or neither, whatever crashes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from store.engine import Connection
from store.tables import idempotency_keys

KEPT_FOR = timedelta(hours=24)
LOCK = sa.text("SELECT pg_try_advisory_xact_lock(hashtextextended(:name, 0))")


class KeyReused(ValueError):
    """The key belongs to another request."""


class KeyInFlight(ValueError):
    """A request with this key is being answered right now."""


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """One request with its key. `route` is method and path, `fingerprint` a hash of query and body."""

    tenant_id: str
    key: str
    route: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What was, or is to be, answered: the exact text and the headers that belong to it."""

    status: int
    body: str
    headers: dict[str, str]


def _of(request: KeyedRequest) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        idempotency_keys.c.tenant_id == request.tenant_id,
        idempotency_keys.c.key == request.key,
        idempotency_keys.c.route == request.route,
    )


async def find_answer(connection: Connection, request: KeyedRequest, now: datetime) -> Answer | None:
    """The answer this request already had, or None; then the key is ours until the transaction ends.

    `KeyInFlight` while another transaction has the key, `KeyReused` where it stands for another request.
    """
    name = f"idempotency/{request.tenant_id}/{request.route}/{request.key}"
    if not (await connection.execute(LOCK, {"name": name})).scalar_one():
        raise KeyInFlight(f"a request with Idempotency-Key {request.key!r} is being answered right now")
    row = (await connection.execute(sa.select(idempotency_keys).where(*_of(request)))).first()
    if row is None or row.created_at <= now - KEPT_FOR:
        return None
    if row.body_sha256 != request.fingerprint:
        raise KeyReused(
            f"Idempotency-Key {request.key!r} was used for another request to {request.route}"
            f" at {row.created_at:%Y-%m-%d %H:%M} UTC"
        )
    return Answer(row.status, row.answer["body"], row.answer["headers"])


async def keep_answer(connection: Connection, request: KeyedRequest, answer: Answer, now: datetime) -> None:
    """Remember the answer for a day, in place of an older one of the same key."""
    values = {
        "body_sha256": request.fingerprint,
        "status": answer.status,
        "answer": {"body": answer.body, "headers": answer.headers},
        "created_at": now,
    }
    named = {"tenant_id": request.tenant_id, "key": request.key, "route": request.route}
    await connection.execute(
        insert(idempotency_keys)
        .values(named | values)
        .on_conflict_do_update(index_elements=["tenant_id", "key", "route"], set_=values)
    )


async def forget_old(connection: Connection, now: datetime) -> int:
    """Remove answers that nobody may ask for any more; returns how many."""
    expired = sa.delete(idempotency_keys).where(idempotency_keys.c.created_at <= now - KEPT_FOR)
    return (await connection.execute(expired)).rowcount

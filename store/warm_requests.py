"""Warm requests: a person asked for a model on a pool, once, and may follow what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from store.engine import Connection
from store.serving_pools import PoolName
from store.tables import WarmStatus, warm_requests


class WarmRequest(NamedTuple):
    """A request as its row holds it."""

    request_id: UUID
    pool_id: str
    model: str
    vram_gb: int
    status: WarmStatus
    problem: str | None
    requested_by: str
    requested_at: datetime
    finished_at: datetime | None


class UnknownRequest(LookupError):
    """No warm request of this id belongs to the tenant's pool."""


async def add(connection: Connection, tenant_id: str, request: WarmRequest) -> None:
    await connection.execute(insert(warm_requests).values(request._asdict() | {"tenant_id": tenant_id}))


async def find(connection: Connection, name: PoolName, request_id: UUID) -> WarmRequest:
    """One request, or `UnknownRequest`."""
    query = _query().where(*_pool(name), warm_requests.c.request_id == request_id)
    row = (await connection.execute(query)).first()
    if row is None:
        raise UnknownRequest(f"no warm request {request_id} on pool {name.pool_id!r}")
    return _request(row)


async def open_on(connection: Connection, name: PoolName) -> list[WarmRequest]:
    """What is asked for on a pool and not finished, the oldest first."""
    query = _query().where(*_pool(name), warm_requests.c.finished_at.is_(None))
    rows = await connection.execute(query.order_by(warm_requests.c.requested_at, warm_requests.c.request_id))
    return [_request(row) for row in rows]


async def begin(connection: Connection, name: PoolName, model: str) -> None:
    """Say that a model is being loaded to whoever asked for it."""
    statement = sa.update(warm_requests).where(
        *_open(name, model), warm_requests.c.status == WarmStatus.REQUESTED.value
    )
    await connection.execute(statement.values(status=WarmStatus.LOADING.value))


async def finish(
    connection: Connection, name: PoolName, model: str, *, at: datetime, problem: str | None = None
) -> int:
    """End every open request for a model, with a problem or with the model; returns how many."""
    status = WarmStatus.LOADED if problem is None else WarmStatus.FAILED
    ended: Mapping[str, Any] = {"status": status.value, "problem": problem, "finished_at": at}
    return (
        await connection.execute(sa.update(warm_requests).where(*_open(name, model)).values(**ended))
    ).rowcount


def _pool(name: PoolName) -> tuple[sa.ColumnElement[bool], ...]:
    return (warm_requests.c.tenant_id == name.tenant_id, warm_requests.c.pool_id == name.pool_id)


def _open(name: PoolName, model: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (*_pool(name), warm_requests.c.model == model, warm_requests.c.finished_at.is_(None))


def _query() -> sa.Select[Any]:
    return sa.select(*(warm_requests.c[field] for field in WarmRequest._fields))


def _request(row: Any) -> WarmRequest:
    known = WarmRequest(*row)
    return known._replace(status=WarmStatus(known.status))

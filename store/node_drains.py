"""Drains of nodes: one row for each, written from the events that are kept, and read by people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from domain.cause import Cause
from domain.drain_history import History
from domain.ids import event_id
from domain.lifecycle import Drain, Outcome
from store.engine import Connection
from store.tables import node_drains

KEY = ("tenant_id", "instance_id", "drain_id")
WRITTEN = tuple(column.name for column in node_drains.c if column.name not in KEY)
LEFT_OVER = sa.text(
    """
    DELETE FROM node_drains d
    USING unnest(CAST(:tenants AS text[]), CAST(:instances AS text[])) AS t (tenant_id, instance_id)
    WHERE d.tenant_id = t.tenant_id AND d.instance_id = t.instance_id
      AND d.drain_id <> ALL(CAST(:drains AS uuid[]))
    """
)
PURGE = sa.text(
    """
    DELETE FROM node_drains WHERE (tenant_id, instance_id, drain_id) IN (
      SELECT tenant_id, instance_id, drain_id FROM node_drains WHERE updated_at < :before LIMIT :limit
    )
    """
)
TEND = sa.text("SELECT made, dropped FROM sco_tend_lifecycle()")


class UnknownDrain(LookupError):
    """No drain is known of this instance to the tenant."""


class Owner(NamedTuple):
    """Whose an instance is, and what it is for."""

    tenant_id: str
    region: str
    hall: str
    pool_id: str
    partition_id: str
    workload_id: str


class Changed(NamedTuple):
    """A drain that has another outcome than before; `before` is None for a new one."""

    instance_id: str
    before: Outcome | None
    outcome: Outcome
    cause: Cause


class DrainFilter(NamedTuple):
    """Which drains to list; None is any."""

    outcome: Outcome | None = None
    cause: Cause | None = None
    hall: str | None = None
    instance_id: str | None = None
    since: datetime | None = None


def no_notice_event_id(instance_id: str) -> UUID:
    """The id of the one event that tells of the end of an instance without a notice."""
    return event_id("lifecycle.no-notice", "", instance_id)


async def write(
    connection: Connection, histories: Mapping[str, History], owned: Mapping[str, Owner], at: datetime
) -> tuple[Changed, ...]:
    """Make the rows of these instances what their histories say; returns what has another outcome now."""
    before = await _outcomes(connection, histories)
    rows = [
        _row(instance_id, episode.drain, owned[instance_id], at)
        for instance_id, history in histories.items()
        for episode in history.episodes
    ]
    if rows:
        statement = insert(node_drains).values(rows)
        changes = {name: statement.excluded[name] for name in WRITTEN}
        await connection.execute(statement.on_conflict_do_update(index_elements=list(KEY), set_=changes))
    await connection.execute(
        LEFT_OVER,
        {
            "tenants": [owned[instance_id].tenant_id for instance_id in histories],
            "instances": list(histories),
            "drains": [row["drain_id"] for row in rows],
        },
    )
    return tuple(
        Changed(row["instance_id"], was, row["outcome"], row["cause"])
        for row in rows
        if (was := before.get((row["instance_id"], row["drain_id"]))) is not row["outcome"]
    )


async def _outcomes(connection: Connection, instances: Iterable[str]) -> dict[tuple[str, UUID], Outcome]:
    query = sa.select(node_drains.c.instance_id, node_drains.c.drain_id, node_drains.c.outcome).where(
        node_drains.c.instance_id.in_(list(instances))
    )
    return {(row[0], row[1]): Outcome(row[2]) for row in await connection.execute(query)}


def _row(instance_id: str, drain: Drain, owner: Owner, at: datetime) -> dict[str, Any]:
    began = drain.notice_at or drain.ended_at
    return {
        **owner._asdict(),
        **drain._asdict(),
        "instance_id": instance_id,
        "at": began,
        "updated_at": at,
    }


async def drains_before(
    connection: Connection,
    tenant_id: str,
    wanted: DrainFilter,
    *,
    before: tuple[datetime, str, UUID] | None = None,
    limit: int,
) -> Sequence[sa.RowMapping]:
    """Drains, newest first, from the one after `before` on."""
    table = node_drains.c
    query = sa.select(node_drains).where(table.tenant_id == tenant_id)
    for name in ("outcome", "cause", "hall", "instance_id"):
        if (value := getattr(wanted, name)) is not None:
            query = query.where(table[name] == value)
    if wanted.since is not None:
        query = query.where(table["at"] >= wanted.since)
    place = (table["at"], table.instance_id, table.drain_id)
    if before is not None:
        query = query.where(sa.tuple_(*place) < sa.tuple_(*before))
    query = query.order_by(*(column.desc() for column in place)).limit(limit)
    return (await connection.execute(query)).mappings().all()


async def find_drain(
    connection: Connection, tenant_id: str, instance_id: str, drain_id: UUID | None = None
) -> sa.RowMapping:
    """One drain of an instance, the newest unless one is named."""
    table = node_drains.c
    query = sa.select(node_drains).where(table.tenant_id == tenant_id, table.instance_id == instance_id)
    if drain_id is not None:
        query = query.where(table.drain_id == drain_id)
    row = (await connection.execute(query.order_by(table["at"].desc(), table.drain_id))).mappings().first()
    if row is None:
        which = "no drain" if drain_id is None else f"no drain {str(drain_id)!r}"
        raise UnknownDrain(f"{which} of node {instance_id!r} is known")
    return row


async def tend(connection: Connection) -> tuple[int, int]:
    """Make the months that events will come in and drop those that are over; returns how many of each."""
    made, dropped = (await connection.execute(TEND)).one()
    return made, dropped


async def purge(connection: Connection, before: datetime, *, limit: int) -> int:
    """Forget at most `limit` drains that nothing was heard of since then; returns how many."""
    return (await connection.execute(PURGE, {"before": before, "limit": limit})).rowcount

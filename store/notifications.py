"""What the provider told by itself, kept once each: evidence of servers that its list no longer shows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from store.engine import Connection
from store.tables import instances, provider_notifications
from wire.notifications import EventKind, Notification

# An error that a later creation follows was an attempt on one host; the server was built on another.
EVIDENCE = sa.text(
    """
    SELECT server_id, max(batch_key) AS batch_key,
           min(emitted_at) FILTER (WHERE kind = 'created') AS created_at,
           min(emitted_at) FILTER (WHERE kind = 'deleted') AS deleted_at,
           max(emitted_at) FILTER (WHERE kind = 'stopped') AS stopped_at,
           max(emitted_at) FILTER (WHERE kind = 'errored' AND is_last) AS errored_at,
           (array_agg(problem ORDER BY emitted_at DESC, message_id)
             FILTER (WHERE kind = 'errored' AND is_last AND problem IS NOT NULL))[1] AS fault
    FROM (
      SELECT *, emitted_at >= coalesce(
        max(emitted_at) FILTER (WHERE kind = 'created') OVER (PARTITION BY server_id), emitted_at
      ) AS is_last
      FROM provider_notifications
      WHERE tenant_id = :tenant AND region = :region AND server_id = ANY(:servers)
    ) told
    GROUP BY server_id
    """
)
CREATED_SINCE = sa.text(
    """
    SELECT server_id, min(emitted_at) FROM provider_notifications
    WHERE tenant_id = :tenant AND region = :region AND kind = 'created' AND emitted_at >= :since
    GROUP BY server_id ORDER BY 2, 1 LIMIT :limit
    """
)

# Asked for is what the audit log says we deleted, and the end of a server whose slot ended or is given back.
UNASKED = sa.text(
    """
    SELECT DISTINCT i.partition_id, t.region
    FROM unnest(CAST(:regions AS text[]), CAST(:servers AS text[]), CAST(:batches AS text[]))
      AS t (region, server_id, batch_key)
    LEFT JOIN instances b ON b.server_id = t.server_id AND b.tenant_id = :tenant
    JOIN instances i ON i.tenant_id = :tenant AND i.region = t.region AND (
      i.slot_key = b.slot_key OR (b.slot_key IS NULL AND i.batch_key = t.batch_key)
    )
    WHERE (b.slot_key IS NULL OR b.state IN ('building', 'active'))
      AND NOT EXISTS (
        SELECT FROM audit_log a
        WHERE a.tenant_id = :tenant AND a.server_id = t.server_id AND a.action = 'delete'
      )
    ORDER BY 1, 2
    """
)

ADD = insert(provider_notifications).on_conflict_do_nothing().returning(provider_notifications.c.message_id)
PURGE = sa.text(
    """
    DELETE FROM provider_notifications WHERE (tenant_id, message_id) IN (
      SELECT tenant_id, message_id FROM provider_notifications
      WHERE tenant_id = :tenant AND received_at < :before LIMIT :limit
    )
    """
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the provider told of one server, whatever the order in which it came. Times are its own."""

    server_id: str
    batch_key: str | None = None
    created_at: datetime | None = None
    deleted_at: datetime | None = None
    errored_at: datetime | None = None
    stopped_at: datetime | None = None
    fault: str | None = None


class Kept(NamedTuple):
    """Message ids: all that are kept, and those that were not kept before."""

    all: frozenset[str]
    new: frozenset[str]


async def keep(connection: Connection, tenant_id: str, told: Sequence[Notification], at: datetime) -> Kept:
    """Keep what is about servers of ours, once by message id.

    Ours is a server that names us and its batch, is bound to a slot, or was told of before.
    """
    ours = await _ours(connection, tenant_id, {one.server_id for one in told})
    rows = {
        one.message_id: _row(tenant_id, one, at)
        for one in told
        if one.kind is not EventKind.OTHER and (_names_us(one, tenant_id) or one.server_id in ours)
    }
    if not rows:
        return Kept(frozenset(), frozenset())
    # In the order of the key, so that two processes never wait for each other.
    added = await connection.execute(ADD, [rows[key] for key in sorted(rows)])
    return Kept(frozenset(rows), frozenset(added.scalars()))


def _names_us(one: Notification, tenant_id: str) -> bool:
    return one.batch_key is not None and one.tenant_id == tenant_id


def _row(tenant_id: str, one: Notification, at: datetime) -> dict[str, Any]:
    return {
        "tenant_id": tenant_id,
        "message_id": one.message_id,
        "region": one.region,
        "kind": one.kind.value,
        "server_id": one.server_id,
        "batch_key": one.batch_key,
        "problem": one.fault,
        "emitted_at": one.emitted_at,
        "received_at": at,
    }


async def _ours(connection: Connection, tenant_id: str, server_ids: Collection[str]) -> set[str]:
    wanted = sorted(server_ids)
    known = sa.union(
        *(
            sa.select(table.c.server_id).where(
                table.c.tenant_id == tenant_id, table.c.server_id == sa.any_(sa.literal(wanted))
            )
            for table in (instances, provider_notifications)
        )
    )
    return set((await connection.execute(known)).scalars())


async def unasked(
    connection: Connection, tenant_id: str, told: Sequence[Notification]
) -> list[tuple[str, str]]:
    """Partition and region of servers of ours that ended, or stopped serving, without our asking."""
    ends = [one for one in told if one.kind in (EventKind.DELETED, EventKind.ERRORED, EventKind.STOPPED)]
    if not ends:
        return []
    named = {
        "tenant": tenant_id,
        "regions": [one.region for one in ends],
        "servers": [one.server_id for one in ends],
        "batches": [one.batch_key for one in ends],
    }
    return [(row[0], row[1]) for row in await connection.execute(UNASKED, named)]


async def evidence(
    connection: Connection, tenant_id: str, region: str, server_ids: Collection[str]
) -> dict[str, Evidence]:
    """What was told of these servers; those that nothing was told of are left out."""
    named = {"tenant": tenant_id, "region": region, "servers": sorted(server_ids)}
    found = [Evidence(**row) for row in (await connection.execute(EVIDENCE, named)).mappings()]
    return {one.server_id: one for one in found}


async def created_servers_since(
    connection: Connection, tenant_id: str, region: str, since: datetime, *, limit: int = 10_000
) -> list[Evidence]:
    """Servers that the provider says were built since then, oldest first, with what became of them."""
    named = {"tenant": tenant_id, "region": region, "since": since, "limit": limit}
    built = list((await connection.execute(CREATED_SINCE, named)).scalars())
    known = await evidence(connection, tenant_id, region, built)
    return [known[server_id] for server_id in built]


async def purge(connection: Connection, tenant_id: str, before: datetime, *, limit: int) -> int:
    """Remove at most `limit` notifications that came before then; returns how many were removed."""
    done = await connection.execute(PURGE, {"tenant": tenant_id, "before": before, "limit": limit})
    return done.rowcount

"""The history of lifecycle events: each kept once, and what they come to computed anew with every new one.

Whoever writes of an instance waits for whoever wrote of it before, so that the drains are always those of
all events that are kept, in whatever order these came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, NamedTuple
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from domain.cause import Cause
from domain.drain_history import History, fold, is_announced
from domain.lifecycle import Event, EventSource, EventType, NoticeKind
from domain.pool import PurchaseModel
from store import lifecycle_told, node_drains
from store.engine import Connection
from store.node_drains import Changed, Owner
from store.tables import lifecycle_events, pools

# Far more than a life of 400 days of drills has. One node cannot fill the history.
MOST_EVENTS = 5_000
OWNERS = sa.text(
    """
    SELECT i.server_id, i.tenant_id, i.region, p.hall, i.pool_id, i.partition_id, i.workload_id
    FROM instances i JOIN pools p USING (tenant_id, pool_id)
    WHERE i.server_id = ANY(CAST(:servers AS text[]))
    """
)
# The locks are taken in one order by everybody.
LOCK = sa.text(
    """
    WITH wanted AS MATERIALIZED (
      SELECT hashtextextended(one, 7261005) AS key FROM unnest(CAST(:instances AS text[])) AS one ORDER BY 1
    )
    SELECT pg_advisory_xact_lock(key) FROM wanted
    """
)
SET_CAUSES = sa.text(
    """
    UPDATE lifecycle_events e SET cause = t.cause
    FROM unnest(CAST(:instances AS text[]), CAST(:events AS uuid[]), CAST(:causes AS text[]))
      AS t (instance_id, event_id, cause)
    WHERE e.instance_id = t.instance_id AND e.event_id = t.event_id AND e.cause <> t.cause
    """
)


class Arrival(NamedTuple):
    """One event of an instance, as it came."""

    instance_id: str
    event: Event
    wasted_vcpu_seconds: float | None = None


class Loss(NamedTuple):
    """A server of ours that is gone without our doing: when, and why as far as the provider tells."""

    instance_id: str
    at: datetime
    cause: Cause
    detail: str


class Kept(NamedTuple):
    """What is kept of what came, by instance and event: all of it, and what was not kept before.

    `changed` are drains whose outcome is another one now.
    """

    all: frozenset[tuple[str, UUID]]
    new: frozenset[tuple[str, UUID]]
    changed: tuple[Changed, ...]


def month_of(at: datetime) -> date:
    """The month in UTC that an event is kept in."""
    return at.astimezone(UTC).date().replace(day=1)


async def owners(connection: Connection, instance_ids: Iterable[str]) -> dict[str, Owner]:
    """Whose these instances are and what they are for, by our own records; unknown ones are left out."""
    rows = await connection.execute(OWNERS, {"servers": sorted(set(instance_ids))})
    return {row[0]: Owner(*row[1:]) for row in rows}


async def reclaimable(connection: Connection, tenant_id: str, pool_ids: Iterable[str]) -> frozenset[str]:
    """Which of these pools the provider may take back."""
    query = sa.select(pools.c.pool_id).where(
        pools.c.tenant_id == tenant_id,
        pools.c.pool_id.in_(sorted(set(pool_ids))),
        pools.c.purchase_model == PurchaseModel.RECLAIMABLE,
    )
    return frozenset((await connection.execute(query)).scalars())


async def keep(
    connection: Connection, arrivals: Sequence[Arrival], owned: Mapping[str, Owner], at: datetime
) -> Kept:
    """Keep events of instances that have an owner, each once, with all that follows from them.

    An instance that has `MOST_EVENTS` gets no more; what came for it is then in neither set.
    """
    came = {(one.instance_id, one.event.event_id): one for one in arrivals if one.instance_id in owned}
    touched = sorted({instance_id for instance_id, _ in came})
    if not touched:
        return Kept(frozenset(), frozenset(), ())
    known = await _locked(connection, touched)
    new = _not_kept(came, known)
    changed: tuple[Changed, ...] = ()
    if new:
        await connection.execute(insert(lifecycle_events).values([_row(one, owned, at) for one in new]))
        changed = await _follow(connection, new, known, owned, at)
    fresh = frozenset((one.instance_id, one.event.event_id) for one in new)
    old = frozenset(key for key in came if key[1] in {one.event_id for one in known[key[0]]})
    return Kept(old | fresh, fresh, changed)


async def note_losses(connection: Connection, losses: Sequence[Loss], at: datetime) -> None:
    """Record the end of servers of which no notice is known. Noting one again changes nothing.

    All of a transaction in one call: it waits for others who write of the same instances.
    """
    owned = await owners(connection, [one.instance_id for one in losses])
    known = await _locked(connection, sorted(owned))
    unannounced = [
        Arrival(one.instance_id, _loss_event(one))
        for one in losses
        if one.instance_id in owned and not is_announced(one.instance_id, known[one.instance_id])
    ]
    await keep(connection, unannounced, owned, at)


def _loss_event(loss: Loss) -> Event:
    return Event(
        event_id=node_drains.no_notice_event_id(loss.instance_id),
        type=EventType.NO_NOTICE,
        occurred_at=loss.at,
        source=EventSource.CONTROLLER,
        cause=loss.cause,
        detail=loss.detail[:500],
    )


async def _locked(connection: Connection, instance_ids: Sequence[str]) -> dict[str, list[Event]]:
    """The events of these instances, which nobody else adds to until the transaction ends."""
    await connection.execute(LOCK, {"instances": list(instance_ids)})
    found = await events_of(connection, instance_ids)
    return {one: found.get(one, []) for one in instance_ids}


async def events_of(connection: Connection, instance_ids: Sequence[str]) -> dict[str, list[Event]]:
    """Every event that is kept of these instances, in no order."""
    query = sa.select(*(lifecycle_events.c[name] for name in _READ)).where(
        lifecycle_events.c.instance_id == sa.any_(sa.literal(list(instance_ids), sa.ARRAY(sa.Text)))
    )
    found: dict[str, list[Event]] = {}
    for row in (await connection.execute(query)).mappings():
        found.setdefault(row["instance_id"], []).append(_event(row))
    return found


def _not_kept(
    came: Mapping[tuple[str, UUID], Arrival], known: Mapping[str, Sequence[Event]]
) -> list[Arrival]:
    room = {instance_id: MOST_EVENTS - len(events) for instance_id, events in known.items()}
    have = {(instance_id, one.event_id) for instance_id, events in known.items() for one in events}
    new = []
    for key in sorted(came.keys() - have):
        if room[key[0]] > 0:
            room[key[0]] -= 1
            new.append(came[key])
    return new


async def _follow(
    connection: Connection,
    new: Sequence[Arrival],
    known: Mapping[str, Sequence[Event]],
    owned: Mapping[str, Owner],
    at: datetime,
) -> tuple[Changed, ...]:
    """Drains, causes and what is told of it, for every instance of which something is new."""
    added: dict[str, list[Event]] = {}
    for one in new:
        added.setdefault(one.instance_id, []).append(one.event)
    histories = {name: fold(name, [*known[name], *events]) for name, events in sorted(added.items())}
    changed = await node_drains.write(connection, histories, owned, at)
    await _set_causes(connection, histories)
    for one in new:
        cause = histories[one.instance_id].causes[one.event.event_id]
        await lifecycle_told.tell(connection, one.instance_id, one.event, owned[one.instance_id], cause)
    return changed


async def _set_causes(connection: Connection, histories: Mapping[str, History]) -> None:
    decided = [
        (instance_id, event_id, cause.value)
        for instance_id, history in histories.items()
        for event_id, cause in history.causes.items()
    ]
    instances, events, causes = (list(part) for part in zip(*decided, strict=True))
    await connection.execute(SET_CAUSES, {"instances": instances, "events": events, "causes": causes})


_READ = ("instance_id", "said_cause", *(name for name in Event._fields if name != "cause"))


def _event(row: sa.RowMapping) -> Event:
    words = {
        "type": EventType(row["type"]),
        "source": EventSource(row["source"]),
        "cause": Cause(row["said_cause"]),
        "notice_kind": None if row["notice_kind"] is None else NoticeKind(row["notice_kind"]),
    }
    return Event(**{name: row[name] for name in Event._fields if name not in words} | words)


def _row(one: Arrival, owned: Mapping[str, Owner], at: datetime) -> dict[str, Any]:
    event = one.event
    return {
        **owned[one.instance_id]._asdict(),
        **event._asdict(),
        "cause": Cause.UNKNOWN,
        "said_cause": event.cause,
        "instance_id": one.instance_id,
        "month": month_of(event.occurred_at),
        "received_at": at,
        "wasted_vcpu_seconds": one.wasted_vcpu_seconds,
    }

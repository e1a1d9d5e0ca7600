"""Licences: the right of one partition to act at the provider of one region, renewed by every look at it."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from domain.acquisition import SlotState
from domain.reconcile import TIER_ORDER, FleetPhase, FleetState, ReconcileTerms, pace_limit
from store.audit_log import paced_since
from store.engine import Connection
from store.tables import fleet_gaps, instances, reconciles

# Slots that were planned before an outage and are still to be launched, by tier.
OLDER_AND_STRICTER = sa.text(
    """
    SELECT count(*) FROM instances i
    JOIN workloads w USING (tenant_id, workload_id) JOIN contracts c USING (tenant_id, contract_id)
    WHERE i.tenant_id = :tenant AND i.partition_id = :partition AND i.region = :region
      AND i.state = 'planned' AND i.requested_at IS NULL AND i.created_at < :recovered
      AND c.tier = ANY(:stricter)
    """
)


class Place(NamedTuple):
    """What a licence is for."""

    tenant_id: str
    partition_id: str
    region: str


class Grant(NamedTuple):
    """How many instances may change, whether they count against the pace, and when it was granted."""

    instances: int
    paced: bool
    at: datetime


class Cycle(NamedTuple):
    """The state of one region's fleet as last written. `view` holds the server ids of the last list."""

    state: FleetState
    number: int
    view: frozenset[str] | None
    last_complete_at: datetime | None
    tried_at: datetime
    fleet: int


def _of(place: Place) -> sa.ColumnElement[bool]:
    return sa.and_(
        reconciles.c.tenant_id == place.tenant_id,
        reconciles.c.partition_id == place.partition_id,
        reconciles.c.region == place.region,
    )


async def open_cycle(connection: Connection, place: Place, *, lock: bool = False) -> Cycle:
    """The last written state, which a first look creates. With `lock` nobody else changes it meanwhile."""
    await connection.execute(insert(reconciles).values(place._asdict()).on_conflict_do_nothing())
    query = sa.select(reconciles).where(_of(place))
    row = (await connection.execute(query.with_for_update() if lock else query)).mappings().one()
    view = row["view"]
    state = FleetState(
        FleetPhase(row["phase"]), row["agreeing"], row["acting_until"], row["recovered_at"], row["unattended"]
    )
    return Cycle(
        state,
        row["cycle"],
        None if view is None else _unpack(view),
        row["last_complete_at"],
        row["updated_at"],
        row["fleet"],
    )


async def write_cycle(
    connection: Connection,
    place: Place,
    state: FleetState,
    *,
    view: frozenset[str] | None,
    fleet: int,
    backlog: int,
    at: datetime,
) -> None:
    """Record a complete cycle. The view is kept only as long as a later list has to agree with it."""
    await connection.execute(
        sa.update(reconciles)
        .where(_of(place))
        .values(
            **state._asdict(),
            cycle=reconciles.c.cycle + 1,
            view=None if view is None else _pack(view),
            fleet=fleet,
            backlog=backlog,
            problem=None,
            last_complete_at=at,
            updated_at=at,
        )
    )


async def grant(connection: Connection, place: Place, state: FleetState) -> None:
    """Write the state to which the last cycle led: from now on it may be acted upon."""
    await connection.execute(sa.update(reconciles).where(_of(place)).values(**state._asdict(), view=None))


async def write_problem(connection: Connection, place: Place, problem: str, at: datetime) -> None:
    """Record a cycle that did not complete: the licence is neither renewed nor taken away."""
    await connection.execute(sa.update(reconciles).where(_of(place)).values(problem=problem, updated_at=at))


async def lapse(connection: Connection, place: Place, state: FleetState, at: datetime) -> None:
    """Take a licence away that ran out, and the view that no later list can be compared with."""
    await connection.execute(
        sa.update(reconciles).where(_of(place)).values(**state._asdict(), view=None, updated_at=at)
    )


async def mark_gap(connection: Connection, place: Place, since: datetime, until: datetime, why: str) -> None:
    """Record a span in which nobody looked; the same gap, told again, ends later."""
    values = place._asdict() | {"since": since, "until": until, "why": why}
    statement = insert(fleet_gaps).values(values)
    await connection.execute(
        statement.on_conflict_do_update(
            index_elements=["tenant_id", "partition_id", "region", "since"],
            set_={"until": sa.func.greatest(fleet_gaps.c.until, statement.excluded.until)},
        )
    )


async def may_act(connection: Connection, place: Place, now: datetime) -> bool:
    """Whether the licence holds. It stays so until the caller's transaction ends."""
    query = (
        sa.select(reconciles.c.region)
        .where(_of(place), reconciles.c.acting_until > now)
        .with_for_update(read=True)
    )
    return (await connection.execute(query)).first() is not None


async def launch_grant(
    connection: Connection,
    place: Place,
    *,
    wanted: int,
    planned_at: datetime,
    tier: str,
    clock: Callable[[], datetime],
    terms: ReconcileTerms,
) -> Grant:
    """How many of `wanted` slots may be launched now, and whether that counts against the pace.

    Nothing without a licence. While the pace holds, slots planned before the recovery wait for it, those
    of the strictest tier first; newer ones are demand of today and do not.
    """
    row, now = await _licence(connection, place, clock)
    if row is None:
        return Grant(0, False, now)
    if row["phase"] != FleetPhase.PACING or planned_at >= row["recovered_at"]:
        return Grant(wanted, False, now)
    stricter = [str(one) for one in TIER_ORDER[: [str(one) for one in TIER_ORDER].index(tier)]]
    named = {
        "tenant": place.tenant_id,
        "partition": place.partition_id,
        "region": place.region,
        "recovered": row["recovered_at"],
        "stricter": stricter,
    }
    if (await connection.execute(OLDER_AND_STRICTER, named)).scalar_one():
        return Grant(0, True, now)
    return Grant(min(wanted, await allowance(connection, place, row["fleet"], now, terms)), True, now)


async def delete_grant(
    connection: Connection, place: Place, *, wanted: int, clock: Callable[[], datetime], terms: ReconcileTerms
) -> Grant | None:
    """How many of `wanted` servers may be deleted now, and whether that counts against the pace.

    None without a licence.
    """
    row, now = await _licence(connection, place, clock)
    if row is None:
        return None
    if row["phase"] != FleetPhase.PACING:
        return Grant(wanted, False, now)
    return Grant(min(wanted, await allowance(connection, place, row["fleet"], now, terms)), True, now)


async def _licence(
    connection: Connection, place: Place, clock: Callable[[], datetime]
) -> tuple[sa.RowMapping | None, datetime]:
    """The licence if it holds, locked until the transaction ends: two grants never share an allowance.

    The clock is read once the lock is held: what was granted meanwhile is older than this grant, and a
    licence that ran out during the wait does not hold.
    """
    query = sa.select(reconciles).where(_of(place)).with_for_update()
    row = (await connection.execute(query)).mappings().first()
    now = clock()
    holds = row is not None and row["acting_until"] is not None and row["acting_until"] > now
    return (row if holds else None), now


async def left_undone(connection: Connection, place: Place, recovered_at: datetime | None) -> int:
    """Slots to launch that were planned before the last recovery, or to give back since before it."""
    if recovered_at is None:
        return 0
    unlaunched = sa.and_(
        instances.c.state == SlotState.PLANNED,
        instances.c.requested_at.is_(None),
        instances.c.created_at < recovered_at,
    )
    held = sa.and_(instances.c.state == SlotState.RELEASING, instances.c.updated_at < recovered_at)
    query = sa.select(sa.func.count()).where(
        instances.c.tenant_id == place.tenant_id,
        instances.c.partition_id == place.partition_id,
        instances.c.region == place.region,
        sa.or_(unlaunched, held),
    )
    return int((await connection.execute(query)).scalar_one())


async def allowance(
    connection: Connection, place: Place, fleet: int, now: datetime, terms: ReconcileTerms
) -> int:
    """How many more instances may change within the window that ends now."""
    since = now - timedelta(seconds=terms.pace_window_seconds)
    used = await paced_since(connection, *place, since)
    return max(0, pace_limit(fleet, terms) - used)


def _pack(view: frozenset[str]) -> bytes:
    return zlib.compress("\n".join(sorted(view)).encode(), 1)


def _unpack(packed: bytes) -> frozenset[str]:
    return frozenset(zlib.decompress(packed).decode().split())

"""Loads and unloadings of models: one at a time for each model of a pool, whoever asks and whoever dies.

Whoever holds the lease of a model is the only one to act on it, and every statement that ends a load names
the lease: who lost it writes nothing.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError

from store import cached_models as models
from store import serving_pools
from store.cached_models import ABANDONED, LOST, CachedModel, row_of
from store.engine import Connection
from store.serving_pools import PoolName
from store.tables import (
    LoadCause,
    LoadOutcome,
    ModelState,
    PlacementState,
    cached_models,
    model_loads,
    model_placements,
)

LET_GO = "the pool drained and unloaded the model"


class Lease(NamedTuple):
    """The right to load or unload a model, from `at` until then."""

    key: UUID
    at: datetime
    until: datetime

    @classmethod
    def of(cls, key: UUID, at: datetime, seconds: float) -> Lease:
        return cls(key, at, at + timedelta(seconds=seconds))


class Begin(StrEnum):
    """What came of asking to load a model."""

    STARTED = "started"
    TAKEN_OVER = "taken_over"
    LOADED = "loaded"
    BUSY = "busy"
    NO_ROOM = "no_room"
    NOT_SERVING = "not_serving"


class Begun(NamedTuple):
    """The answer to a load: what came of it, and whose turn it is where somebody else is busy."""

    outcome: Begin
    holder: UUID | None = None


class Wanted(NamedTuple):
    """A model to load on a pool, its memory in GB, and who wants it."""

    name: PoolName
    model: str
    vram_gb: int
    cause: LoadCause


async def begin_load(connection: Connection, wanted: Wanted, lease: Lease) -> Begun:
    """Take the lease of a load, keep its memory, and record that it began."""
    name, model = wanted.name, wanted.model
    if not await serving_pools.serves(connection, name):
        return Begun(Begin.NOT_SERVING)
    known = await models.find(connection, name, model, lock=True)
    if known is not None and known.state is ModelState.LOADED:
        return Begun(Begin.LOADED)
    if known is not None and known.leased(lease.at):
        return Begun(Begin.BUSY, known.load_key)
    size = max(wanted.vram_gb, known.vram_gb if known is not None else 0)
    try:
        async with connection.begin_nested():
            taken = await _take(connection, wanted._replace(vram_gb=size), lease, known)
    except IntegrityError:
        return Begun(Begin.NO_ROOM)
    if not taken:
        return Begun(Begin.BUSY)
    before = known.load_key if known is not None else None
    if before is not None:
        await models.close_load(connection, name, before, LoadOutcome.FAILED, at=lease.at, problem=ABANDONED)
    values = {"load_id": lease.key, "model": model, "vram_gb": size, "cause": wanted.cause.value}
    await connection.execute(insert(model_loads).values(name._asdict() | values | {"started_at": lease.at}))
    return Begun(Begin.STARTED if before is None else Begin.TAKEN_OVER)


async def renew(connection: Connection, name: PoolName, model: str, key: UUID, until: datetime) -> bool:
    """Hold a lease for longer; False when it is somebody else's by now."""
    statement = sa.update(cached_models).where(*_leased(name, model, key)).values(load_until=until)
    return (await connection.execute(statement)).rowcount > 0


async def finish_load(
    connection: Connection, name: PoolName, model: str, lease: Lease, *, at: datetime, seconds: float | None
) -> bool:
    """Record that the endpoint lists the model, with its event; False when the lease was lost.

    `seconds` is how long it took, None where the time says nothing of the pool.
    """
    used = sa.func.greatest(cached_models.c.last_used_at, at)
    statement = (
        sa.update(cached_models)
        .where(*_leased(name, model, lease.key))
        .values(models.loaded_values(at) | {"last_used_at": used})
        .returning(cached_models.c.vram_gb, cached_models.c.load_started_at)
    )
    done = (await connection.execute(statement)).first()
    if done is None:
        return False
    await models.close_load(connection, name, lease.key, LoadOutcome.LOADED, at=at, seconds=seconds)
    # Without a beginning it is a model that was being unloaded: that it is there was told before.
    if done.load_started_at is not None:
        await models.tell_warmed(connection, name, model, done.vram_gb, once=lease.key)
    return True


async def give_up_load(
    connection: Connection, name: PoolName, model: str, key: UUID, problem: str, *, at: datetime
) -> None:
    """Record a load that certainly left no model: what was promised stays, other memory is free."""
    known = await models.find(connection, name, model, lock=True)
    await models.close_load(connection, name, key, LoadOutcome.FAILED, at=at, problem=problem)
    mine = await models.set_aside(connection, name, model, key, problem)
    if mine and known is not None and known.was_told:
        await models.tell_evicted(connection, name, model, LOST, once=key)


async def leave_open(
    connection: Connection, name: PoolName, model: str, key: UUID, problem: str, *, at: datetime
) -> None:
    """Give a lease back without knowing how it ended: the next load, or a list, finds out."""
    await models.close_load(connection, name, key, LoadOutcome.FAILED, at=at, problem=problem)
    statement = sa.update(cached_models).where(*_leased(name, model, key))
    await connection.execute(statement.values(load_until=at, load_problem=problem))


async def begin_eviction(
    connection: Connection, name: PoolName, model: str, lease: Lease, *, forced: bool = False
) -> CachedModel | None:
    """Take the lease of an unloading: nobody counts on the model from here on. None where it may not go.

    A model that placements hold, or that is not loaded, goes only when `forced`, which only a pool that
    drains is; one that somebody loads or unloads at this moment stays.
    """
    if forced and not await serving_pools.drains(connection, name):
        return None
    known = await models.find(connection, name, model, lock=True)
    if known is None or known.leased(lease.at):
        return None
    if not forced and (known.holds or known.state is not ModelState.LOADED):
        return None
    values = {
        "state": ModelState.LOADING.value,
        "loaded_at": None,
        "load_key": lease.key,
        "load_until": lease.until,
        "load_started_at": None if known.was_told else known.load_started_at or lease.at,
        "load_problem": None,
    }
    await connection.execute(sa.update(cached_models).where(*row_of(name, model)).values(values))
    return known


async def finish_eviction(
    connection: Connection,
    name: PoolName,
    evicted: CachedModel,
    key: UUID,
    reason: str,
    *,
    at: datetime,
    forced: bool = False,
) -> bool:
    """Record that a model is gone, with its event where its coming was told; False when the lease was lost.

    A model that was placed upon meanwhile stays promised. When its going is `forced`, who holds it is told
    that the pool let go of it; not so on a pool that was resumed meanwhile, where it is promised as well.
    """
    model = evicted.model
    if forced and await serving_pools.drains(connection, name):
        known = await models.find(connection, name, model, lock=True)
        if known is None or known.load_key != key:
            return False
        await _end_holds(connection, name, model, at)
    if not await models.set_aside(connection, name, model, key, None):
        return False
    if evicted.was_told:
        await models.tell_evicted(connection, name, model, reason, once=key)
    return True


async def _take(connection: Connection, wanted: Wanted, lease: Lease, known: CachedModel | None) -> bool:
    """Write a lease. A model that somebody else put there meanwhile is not taken."""
    values: dict[str, Any] = {
        "vram_gb": wanted.vram_gb,
        "state": ModelState.LOADING.value,
        "load_key": lease.key,
        "load_until": lease.until,
        "load_started_at": None if known is not None and known.was_told else lease.at,
        "load_problem": None,
    }
    if known is not None:
        statement = sa.update(cached_models).where(*row_of(wanted.name, wanted.model)).values(values)
        return (await connection.execute(statement)).rowcount > 0
    new = wanted.name._asdict() | {"model": wanted.model, "last_used_at": lease.at} | values
    added = insert(cached_models).values(new).on_conflict_do_nothing().returning(cached_models.c.model)
    return (await connection.execute(added)).first() is not None


async def _end_holds(connection: Connection, name: PoolName, model: str, at: datetime) -> None:
    table = model_placements.c
    held = (table.pool_tenant_id == name.tenant_id, table.pool_id == name.pool_id, table.model == model)
    ended = {
        "state": PlacementState.RELEASED.value,
        "ended_at": sa.func.greatest(at, table.decided_at),
        "problem": LET_GO,
    }
    await connection.execute(
        sa.update(model_placements).where(*held, table.state == PlacementState.HELD.value).values(ended)
    )


def _leased(name: PoolName, model: str, key: UUID) -> tuple[sa.ColumnElement[bool], ...]:
    return (*row_of(name, model), cached_models.c.load_key == key)

"""The models of serving pools: what takes memory there, and what an endpoint's list says of it.

A model is `loaded` only because its endpoint listed it. While a load or an unloading is under way the row
is `loading` under a lease (`model_leases`); one that ran out says that nobody knows how it ended, and its
memory stays counted until that is known. A load notes when it began (`load_started_at`); where that is
missing the model was loaded before, and others were told of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import sqlalchemy as sa

from domain.serving.models import plain_name
from store import outbox
from store.engine import Connection
from store.serving_pools import PoolName
from store.tables import LoadOutcome, ModelState, cached_models, model_loads
from store.tables import outbox as outbox_table
from wire.events import MODEL_EVICTED
from wire.payloads import ModelEvicted, ModelWarmed

ABANDONED = "its worker did not finish it"
LOST = "lost"
# A few minutes of a busy control plane, and a scan of milliseconds.
NEWEST_EVENTS = 5000


class CachedModel(NamedTuple):
    """A model that takes memory on a pool."""

    model: str
    vram_gb: int
    state: ModelState
    holds: int
    loaded_at: datetime | None
    last_used_at: datetime
    load_started_at: datetime | None
    load_key: UUID | None
    load_until: datetime | None
    load_problem: str | None
    listed_at: datetime | None

    def leased(self, at: datetime) -> bool:
        """Whether somebody loads or unloads it."""
        return self.load_until is not None and self.load_until > at

    @property
    def was_told(self) -> bool:
        """Whether others were told that it is loaded, and not yet that it went."""
        unloading = self.state is ModelState.LOADING and self.load_started_at is None
        return self.state is ModelState.LOADED or unloading


class Settled(NamedTuple):
    """What a list of an endpoint changed: models found loaded, and models found gone."""

    found: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


async def of_pool(connection: Connection, name: PoolName, *, lock: bool = False) -> list[CachedModel]:
    """What takes memory on a pool, in the order of the models' names."""
    query = _models().where(*_pool(name)).order_by(cached_models.c.model)
    rows = await connection.execute(query.with_for_update() if lock else query)
    return [_model(row) for row in rows]


async def find(
    connection: Connection, name: PoolName, model: str, *, lock: bool = False
) -> CachedModel | None:
    query = _models().where(*row_of(name, model))
    row = (await connection.execute(query.with_for_update() if lock else query)).first()
    return None if row is None else _model(row)


async def loaded_on(connection: Connection, tenant_id: str) -> set[tuple[str, str]]:
    """Pool and model of everything that is loaded on a tenant's pools."""
    query = sa.select(cached_models.c.pool_id, cached_models.c.model).where(
        cached_models.c.tenant_id == tenant_id, cached_models.c.state == ModelState.LOADED.value
    )
    return {(row[0], row[1]) for row in await connection.execute(query)}


async def left_since(connection: Connection, name: PoolName, model: str, since: datetime) -> bool:
    """Whether a model was told to have left a pool since then; looked for among the newest events only."""
    newest = sa.select(outbox_table).order_by(outbox_table.c.sequence.desc()).limit(NEWEST_EVENTS).subquery()
    found = sa.select(newest.c.sequence).where(
        newest.c.tenant_id == name.tenant_id,
        newest.c.key == name.pool_id,
        newest.c.topic == MODEL_EVICTED,
        newest.c.payload["model"].astext == model,
        newest.c.created_at >= since,
    )
    return (await connection.execute(found.limit(1))).first() is not None


async def settle(
    connection: Connection,
    name: PoolName,
    listed: Iterable[str],
    *,
    asked_at: datetime,
    at: datetime,
    patience: timedelta,
) -> Settled:
    """Bring the rows of a pool in line with a list that was asked for at `asked_at`.

    What somebody holds a lease on, or what came after the question, the list says nothing about. A load
    that was left open may still go on at the endpoint: its memory is counted for `patience` more.
    """
    there = {plain_name(one) for one in listed}
    found, lost = [], []
    for known in await of_pool(connection, name, lock=True):
        if known.leased(asked_at):
            continue
        if plain_name(known.model) in there:
            if await _settle_listed(connection, name, known, at):
                found.append(known.model)
        elif known.state is not ModelState.PROMISED and not _may_come(known, asked_at, patience):
            await _settle_missing(connection, name, known, at)
            lost.append(known.model)
    return Settled(tuple(found), tuple(lost))


async def doubt(connection: Connection, name: PoolName, at: datetime) -> None:
    """Forget what is loaded on a pool, since another endpoint answers for it now; memory stays counted.

    Whoever loads or unloads there loses the lease. A load or a list of the new endpoint finds out.
    """
    told_before = sa.case(
        (cached_models.c.state == ModelState.LOADING.value, cached_models.c.load_started_at), else_=None
    )
    unknown = {
        "state": ModelState.LOADING.value,
        "loaded_at": None,
        "load_key": sa.func.gen_random_uuid(),
        "load_until": at,
        "load_started_at": told_before,
    }
    there = (*_pool(name), cached_models.c.state != ModelState.PROMISED.value)
    await of_pool(connection, name, lock=True)  # In everybody's order, which an UPDATE alone has not.
    await connection.execute(sa.update(cached_models).where(*there).values(unknown))


async def set_aside(
    connection: Connection, name: PoolName, model: str, key: UUID | None, problem: str | None
) -> bool:
    """Write that a model's memory is not filled: promised where placements hold it, free elsewhere.

    False where its lease is not `key` any more.
    """
    mine = (*row_of(name, model), cached_models.c.load_key.is_not_distinct_from(key))
    promised = {
        "state": ModelState.PROMISED.value,
        "loaded_at": None,
        "load_key": None,
        "load_until": None,
        "load_started_at": None,
        "load_problem": problem,
    }
    kept = sa.update(cached_models).where(*mine, cached_models.c.holds > 0).values(promised)
    if (await connection.execute(kept)).rowcount:
        return True
    return (await connection.execute(sa.delete(cached_models).where(*mine))).rowcount > 0


async def close_load(
    connection: Connection,
    name: PoolName,
    key: UUID,
    outcome: LoadOutcome,
    *,
    at: datetime,
    seconds: float | None = None,
    problem: str | None = None,
) -> None:
    """End the record of a load, once."""
    statement = sa.update(model_loads).where(
        model_loads.c.tenant_id == name.tenant_id,
        model_loads.c.load_id == key,
        model_loads.c.finished_at.is_(None),
    )
    ended = {"finished_at": at, "outcome": outcome.value, "seconds": seconds, "problem": problem}
    await connection.execute(statement.values(ended))


async def tell_warmed(
    connection: Connection, name: PoolName, model: str, vram_gb: int, *, once: object
) -> None:
    warmed = ModelWarmed(**name._asdict(), model=model, vram_gb=vram_gb)
    await outbox.add_event(connection, warmed, once=f"{name.pool_id}/{model}/{once}")


async def tell_evicted(
    connection: Connection, name: PoolName, model: str, reason: str, *, once: object
) -> None:
    evicted = ModelEvicted(**name._asdict(), model=model, reason=reason)
    await outbox.add_event(connection, evicted, once=f"{name.pool_id}/{model}/{once}")


def loaded_values(at: datetime) -> dict[str, Any]:
    """What a row holds once its model was listed."""
    return {
        "state": ModelState.LOADED.value,
        "loaded_at": at,
        "listed_at": at,
        "load_key": None,
        "load_until": None,
        "load_problem": None,
    }


def row_of(name: PoolName, model: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (*_pool(name), cached_models.c.model == model)


async def _settle_listed(connection: Connection, name: PoolName, known: CachedModel, at: datetime) -> bool:
    """A listed model is loaded. True where nobody knew: the end of its load was missed, or it never left."""
    statement = sa.update(cached_models).where(*row_of(name, known.model))
    if known.state is ModelState.LOADED:
        await connection.execute(statement.values(listed_at=at))
        return False
    await connection.execute(statement.values(loaded_values(at)))
    if known.load_key is not None:
        await close_load(connection, name, known.load_key, LoadOutcome.LOADED, at=at)
    if not known.was_told:
        once = known.load_key or at.isoformat()
        await tell_warmed(connection, name, known.model, known.vram_gb, once=once)
    return True


async def _settle_missing(connection: Connection, name: PoolName, known: CachedModel, at: datetime) -> None:
    """A model that is not listed is not loaded; its going is told where its coming was."""
    if known.load_key is not None:
        await close_load(
            connection,
            name,
            known.load_key,
            LoadOutcome.FAILED,
            at=at,
            problem=known.load_problem or ABANDONED,
        )
    await set_aside(connection, name, known.model, known.load_key, known.load_problem)
    if known.was_told:
        once = known.load_key or known.loaded_at
        await tell_evicted(connection, name, known.model, LOST, once=once)


def _may_come(known: CachedModel, asked_at: datetime, patience: timedelta) -> bool:
    """Whether a model that a list does not have may be there, or come soon."""
    if known.loaded_at is not None:
        return known.loaded_at >= asked_at
    return known.load_started_at is not None and known.leased(asked_at - patience)


def _pool(name: PoolName) -> tuple[sa.ColumnElement[bool], ...]:
    return (cached_models.c.tenant_id == name.tenant_id, cached_models.c.pool_id == name.pool_id)


def _models() -> sa.Select[Any]:
    return sa.select(*(cached_models.c[field] for field in CachedModel._fields))


def _model(row: Any) -> CachedModel:
    known = CachedModel(*row)
    return known._replace(state=ModelState(known.state))

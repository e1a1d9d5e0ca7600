"""What is on a serving pool and what happened there, over REST: models, loads, events and pool hours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from fastapi import APIRouter

from api.deps import Deps, PoolPath, Tenant, Uses
from api.pool_life import OwnerQuery
from api.pools import POOLS
from api.shapes import MoneyView, View, money
from domain.pool import Pool
from domain.serving.usage import CURRENCY
from store import cached_models, registry, serving_history
from store.engine import Connection
from store.serving_pools import PoolName
from store.tables import LoadCause, LoadOutcome, ModelState, WarmStatus
from wire import events

router = APIRouter(prefix=POOLS, tags=["compute pools"])
MAX_LOADS = 20
MAX_REQUESTS = 10
MAX_EVENTS = 30
USAGE_DAYS = 7


class ModelOnPool(View):
    """A model that takes memory on a pool. `holds` are the placements that keep it there."""

    model: str
    vram_gb: int
    state: ModelState
    holds: int
    loaded_at: datetime | None
    last_used_at: datetime
    load_problem: str | None


class LoadView(View):
    """One load of a model. `seconds` is null where nobody saw it begin and end."""

    load_id: UUID
    model: str
    vram_gb: int
    cause: LoadCause
    started_at: datetime
    finished_at: datetime | None
    seconds: Decimal | None
    outcome: LoadOutcome | None
    problem: str | None


class WarmedView(View):
    """One request to warm a model, and what became of it."""

    request_id: UUID
    model: str
    vram_gb: int
    status: WarmStatus
    problem: str | None
    requested_by: str
    requested_at: datetime
    finished_at: datetime | None


class PoolEventView(View):
    """One event of a pool. `text` says it to a person, `data` to a program."""

    event_id: UUID
    topic: str
    at: datetime
    text: str
    data: dict[str, Any]


class UsageDayView(View):
    """How many seconds of a day in UTC the pool was in service, and what that costs."""

    day: date
    seconds: int
    amount: MoneyView


class PoolHistory(View):
    """The models on a pool now, its newest loads, requests and events, and the last days of its service.

    It is its owner's: of another tenant's pool that is shared, all of it is empty.
    """

    models: tuple[ModelOnPool, ...]
    loads: tuple[LoadView, ...]
    requests: tuple[WarmedView, ...]
    events: tuple[PoolEventView, ...]
    usage: tuple[UsageDayView, ...]


@router.get("/{poolId}/history")
async def get_pool_history(
    pool_id: PoolPath, deps: Uses, tenant_id: Tenant, owner_id: OwnerQuery = None
) -> PoolHistory:
    """What is on a pool now and what happened there last, newest first."""
    async with deps.snapshot() as connection:
        pool = await registry.find_readable(connection, tenant_id, owner_id or tenant_id, pool_id)
        return await pool_history(connection, deps, tenant_id, pool)


async def pool_history(connection: Connection, deps: Deps, tenant_id: str, pool: Pool) -> PoolHistory:
    """The history of a pool as a tenant may see it."""
    if pool.tenant_id != tenant_id:
        return PoolHistory(models=(), loads=(), requests=(), events=(), usage=())
    name = PoolName(pool.tenant_id, pool.pool_id)
    today = deps.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    since = today - timedelta(days=USAGE_DAYS - 1)
    models = await cached_models.of_pool(connection, name)
    loads = await serving_history.loads_of(connection, name, MAX_LOADS)
    requests = await serving_history.requests_of(connection, name, MAX_REQUESTS)
    told = await serving_history.events_of(connection, name, MAX_EVENTS)
    usage = await serving_history.usage_of(connection, name, since)
    return PoolHistory(
        models=tuple(ModelOnPool.model_validate(one) for one in models),
        loads=tuple(LoadView.model_validate(one) for one in loads),
        requests=tuple(WarmedView.model_validate(one) for one in requests),
        events=tuple(_event(one) for one in told),
        usage=tuple(
            UsageDayView(day=one.day, seconds=one.seconds, amount=money(one.amount_usd, CURRENCY))
            for one in usage
        ),
    )


def _event(told: serving_history.PoolEvent) -> PoolEventView:
    return PoolEventView(
        event_id=told.event_id,
        topic=told.topic,
        at=told.at,
        text=WORDS[told.topic](told.payload),
        data=told.payload,
    )


def _changes(data: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{CHANGED.get(one['name'], one['name'])} {_shown(one['old'])} → {_shown(one['new'])}"
        for one in data["changes"]
    )


def _by(data: Mapping[str, Any], name: str = "changedBy") -> str:
    """Who did it; nothing where an earlier version recorded the event without saying so."""
    return f", by {data[name]}" if data.get(name) else ""


def _shown(value: object) -> str:
    return "none" if value is None else str(value)


CHANGED = {
    "pricePerHourUsd": "USD per hour",
    "guaranteedPricePerHourUsd": "guaranteed USD per hour",
    "endpointRef": "endpoint",
    "coldStartSeconds": "seconds of a cold start",
}
WORDS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    events.POOL_REGISTERED: lambda data: f"registered as {data['state']}{_by(data, 'registeredBy')}",
    events.POOL_STATE_CHANGED: lambda data: f"{data['fromState']} → {data['toState']}{_by(data)}",
    events.POOL_CHANGED: lambda data: f"changed: {_changes(data)}{_by(data)}",
    events.POOL_DRAINED: lambda data: "drained: it holds nothing any more",
    events.MODEL_WARMED: lambda data: f"{data['model']} loaded, {data['vramGb']} GB",
    events.MODEL_EVICTED: lambda data: f"{data['model']} unloaded: {str(data['reason']).replace('_', ' ')}",
}

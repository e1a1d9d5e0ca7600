"""What is kept for a while only: answers to repeated requests, ended placements, the history of nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta

import structlog
from sqlalchemy.exc import SQLAlchemyError

from domain.serving.placement_terms import ModelPlacementTerms
from store import model_placements, node_drains
from store.engine import Engine
from store.idempotency import forget_old

EVERY_SECONDS = 600.0
# Short transactions: what is left is taken in the next one.
PLACEMENTS_AT_ONCE = 2_000
PLACEMENT_BATCHES = 100
HISTORY_DAYS = 400
DRAINS_AT_ONCE = 2_000
log = structlog.get_logger("housekeeping")


async def keep_tidy(
    engine: Engine,
    stop: asyncio.Event,
    *,
    now: Callable[[], datetime],
    terms: ModelPlacementTerms = ModelPlacementTerms(),  # noqa: B008 - frozen
) -> None:
    """Forget what is too old, of every tenant, until told to stop. A database that is away is asked later."""

    async def keys() -> int:
        async with engine.begin() as connection:
            return await forget_old(connection, now())

    async def placements() -> int:
        return await _forget_placements(engine, now() - timedelta(days=terms.keep_days))

    async def drains() -> int:
        async with engine.begin() as connection:
            return await node_drains.purge(
                connection, now() - timedelta(days=HISTORY_DAYS), limit=DRAINS_AT_ONCE
            )

    chores: Mapping[str, Callable[[], Awaitable[int]]] = {
        "keys": keys,
        "model_placements": placements,
        "node_drains": drains,
        "lifecycle_months": lambda: _tend_lifecycle(engine),
    }
    while not stop.is_set():
        for what, forget in chores.items():
            await _forgotten(what, forget)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), EVERY_SECONDS)


async def _forgotten(what: str, forget: Callable[[], Awaitable[int]]) -> None:
    try:
        log.info("old_forgotten", what=what, rows=await forget())
    except (SQLAlchemyError, OSError) as error:
        log.warning("old_stay", what=what, error=type(error).__name__)


async def _tend_lifecycle(engine: Engine) -> int:
    """Make the months that events will come in; returns how many old ones were dropped."""
    async with engine.begin() as connection:
        made, dropped = await node_drains.tend(connection)
    if made:
        log.info("lifecycle_months_made", months=made)
    return dropped


async def _forget_placements(engine: Engine, before: datetime) -> int:
    forgotten = 0
    for _ in range(PLACEMENT_BATCHES):
        async with engine.begin() as connection:
            batch = await model_placements.forget(connection, before, PLACEMENTS_AT_ONCE)
        forgotten += batch
        if batch < PLACEMENTS_AT_ONCE:
            break
    return forgotten

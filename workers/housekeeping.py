"""What is kept for a while only: answers to repeated requests, and placements of models that have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta

import structlog
from sqlalchemy.exc import SQLAlchemyError

from domain.serving.placement_terms import ModelPlacementTerms
from store import model_placements
from store.engine import Engine
from store.idempotency import forget_old

EVERY_SECONDS = 600.0
# Short transactions: what is left is taken in the next one.
PLACEMENTS_AT_ONCE = 2_000
PLACEMENT_BATCHES = 100
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

    chores: Mapping[str, Callable[[], Awaitable[int]]] = {"keys": keys, "model_placements": placements}
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


async def _forget_placements(engine: Engine, before: datetime) -> int:
    forgotten = 0
    for _ in range(PLACEMENT_BATCHES):
        async with engine.begin() as connection:
            batch = await model_placements.forget(connection, before, PLACEMENTS_AT_ONCE)
        forgotten += batch
        if batch < PLACEMENTS_AT_ONCE:
            break
    return forgotten

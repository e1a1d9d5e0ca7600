"""What is kept for a while only: answers to repeated requests are forgotten after a day."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

import structlog
from sqlalchemy.exc import SQLAlchemyError

from store.engine import Engine
from store.idempotency import forget_old

EVERY_SECONDS = 600.0
log = structlog.get_logger("housekeeping")


async def keep_tidy(engine: Engine, stop: asyncio.Event, *, now: Callable[[], datetime]) -> None:
    """Forget what is too old, of every tenant, until told to stop. A database that is away is asked later."""
    while not stop.is_set():
        try:
            async with engine.begin() as connection:
                forgotten = await forget_old(connection, now())
            log.info("old_keys_forgotten", keys=forgotten)
        except (SQLAlchemyError, OSError) as error:
            log.warning("old_keys_stay", error=type(error).__name__)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), EVERY_SECONDS)

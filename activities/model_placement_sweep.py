"""What is made up for: cold placements whose model nobody loads, whatever was lost on the way."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import structlog

from activities.model_placement_telling import Starter, workflow_input
from store import model_placements
from store.engine import Engine

# Younger ones are being started by whoever placed them.
SETTLED_AFTER = timedelta(seconds=15)
STARTS_AT_ONCE = 200
log = structlog.get_logger("model_placing")


async def start_lost(engine: Engine, starter: Starter, *, now: Callable[[], datetime]) -> int:
    """Start the workflow of held placements of every tenant whose model nobody loads; returns how many.

    Starting one that runs changes nothing. The first that cannot be started ends the sweep: the next one
    takes the rest.
    """
    async with engine.connect() as connection:
        at = now()
        lost = await model_placements.unstarted(
            connection, at, before=at - SETTLED_AFTER, limit=STARTS_AT_ONCE
        )
    for record in lost:
        await starter.start_model_placement(workflow_input(record))
    if lost:
        log.info("model_placements_swept", placements=len(lost))
    return len(lost)

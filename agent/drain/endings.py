"""How work ended, asked of those whose system knows it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from agent.bounded import bounded, describe
from agent.drain.ports import DrainDriver, Ending, TellsEndings, Work

log = logging.getLogger("sco.agent")


async def endings_of(driver: DrainDriver, work: Sequence[Work], seconds: float) -> tuple[Ending, ...] | None:
    """What a driver tells of how work ended; None when it cannot tell, or not in time."""
    if not isinstance(driver, TellsEndings):
        return None
    try:
        return await bounded(driver.endings(work), seconds)
    except Exception as error:
        log.info("%s does not say how work ended: %s", driver.name, describe(error))
        return None

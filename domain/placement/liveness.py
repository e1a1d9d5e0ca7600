"""What a pool may take right now: the part of its state that does not wait for the next ranking."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from domain.placement.draft import Live
from domain.pool import PoolState
from domain.reasons import Reason


class PoolPulse(NamedTuple):
    """The changing state of one pool as the registry holds it."""

    free: int
    state: str
    standing: str
    degraded: bool
    reported_at: datetime | None


def live_of(pulse: PoolPulse, *, now: datetime, staleness: timedelta) -> Live:
    """Why a pool may not take new units at `now`, if so. A pool that never reported is stale."""
    probation = pulse.standing == "probation"
    if pulse.state != PoolState.ACTIVE:
        return Live(pulse.free, Reason.STATE, probation)
    if pulse.standing == "excluded":
        return Live(pulse.free, Reason.EXCLUDED, probation)
    if pulse.degraded:
        return Live(pulse.free, Reason.DEGRADED, probation)
    if pulse.reported_at is None or now - pulse.reported_at > staleness:
        return Live(pulse.free, Reason.STALE, probation)
    return Live(pulse.free, None, probation)


def backed_off(live: Live) -> Live:
    """The same pool for a workload whose launch failed there; what blocks it for all weighs more."""
    return live if live.blocked is not None else live._replace(blocked=Reason.BACKED_OFF)

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


def live_of(pulse: PoolPulse, *, now: datetime, staleness: timedelta, backed_off: bool) -> Live:
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
    if backed_off:
        return Live(pulse.free, Reason.BACKED_OFF, probation)
    return Live(pulse.free, None, probation)

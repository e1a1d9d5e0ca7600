"""What the workflow that drains a pool may ask of its hand: names, requests and answers. No other imports."""

from __future__ import annotations

from datetime import datetime

from domain.model import Frozen
from domain.pool import PoolState

POOL_DRAIN = "PoolDrain"
POOL_CHANGED = "pool_changed"
DRAIN_POOL = "drain_pool"


class PoolChanged(Frozen):
    """Somebody changed the pool: what it is now is in the store."""

    why: str = ""


class PoolDrainInput(Frozen):
    """Drain one pool. `told_since` is the drain whose holders were told to move."""

    tenant_id: str
    pool_id: str
    told_since: datetime | None = None


class DrainLooked(Frozen):
    """How a pool is that drains. `over` means that there is nothing to wait for any more.

    `held` says in words what is still there; `evicted` are the models unloaded at this look.
    """

    state: PoolState
    since: datetime | None
    drained_at: datetime | None
    over: bool
    units: int = 0
    instances: int = 0
    models: int = 0
    held: str = "nothing"
    evicted: tuple[str, ...] = ()
    pause_seconds: float = 0


class PoolDrained(Frozen):
    """How the drain of a pool ended: `drained`, or `resumed` before it was."""

    outcome: str
    drained_at: datetime | None

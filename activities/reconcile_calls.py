"""What the reconcile workflow may ask of its hands: names, requests and answers. No other imports."""

from __future__ import annotations

from domain.model import Frozen
from domain.reconcile import FleetPhase

RECONCILE = "Reconcile"
RECONCILE_REGION = "reconcile_region"
LOOK_NOW = "look_now"
WATCH_REGIONS = "watch_regions"


class ReconcileInput(Frozen):
    """The fleet of one partition, in these regions."""

    tenant_id: str
    partition_id: str
    regions: tuple[str, ...]


class LookNow(Frozen):
    """Look at a region now, or at all of them: something says that servers went."""

    region: str | None = None


class WatchRegions(Frozen):
    """Look at these regions too."""

    regions: tuple[str, ...]


class ReconcileRequest(Frozen):
    """One cycle of one region."""

    tenant_id: str
    partition_id: str
    region: str


class Reconciled(Frozen):
    """A complete cycle: the phase after it, what it saw and did, and how long until the next."""

    region: str
    phase: FleetPhase
    agreeing: int
    servers: int
    drift: dict[str, int]
    adopted: int = 0
    lost: int = 0
    deleted: int = 0
    retagged: int = 0
    backlog: int = 0
    pause_seconds: float = 60

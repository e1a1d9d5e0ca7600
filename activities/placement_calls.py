"""What the placement workflow may ask of its hands: names, requests and answers. No other imports."""

from __future__ import annotations

from uuid import UUID

from domain.model import Frozen

DECIDE = "decide_placement"
ACQUIRE = "acquire_region"
RELEASE = "release_region"
PLAN_RELEASE = "plan_release"
FINISH = "finish_placement"

SWEEP = "sweep_placements"

PLACEMENT = "Placement"
CLAIM_CHANGED = "claim_changed"

NO_RANKING = "no_ranking"
NOTHING_TO_PLACE = "nothing_to_place"
CAPACITY_CONTENDED = "capacity_contended"


class DecideRequest(Frozen):
    """Decide for the newest claim of a workload. `decision_id` makes asking again harmless."""

    tenant_id: str
    workload_id: str
    decision_id: UUID


class Decided(Frozen):
    """A committed plan generation. Prices are decimal strings in `currency` per hour."""

    decision_id: UUID
    generation: int
    claim_version: int
    units: int
    placed_units: int
    floor_units: int
    shortfall_units: int
    shortfall_reason: str | None
    cost_per_hour: str
    depth_premium_per_hour: str
    currency: str
    acquire_regions: tuple[str, ...]
    releases: bool


class RegionRequest(Frozen):
    """Work on one workload's slots in one region."""

    tenant_id: str
    partition_id: str
    workload_id: str
    region: str


class PoolFailure(Frozen):
    """Launches that failed in one pool."""

    pool_id: str
    kind: str
    problem: str
    instances: int


class RegionAcquired(Frozen):
    """What came of the open slots in one region."""

    region: str
    active: int
    failures: tuple[PoolFailure, ...]


class ReleasePlan(Frozen):
    """Regions in which servers are to be given back."""

    regions: tuple[str, ...]


class RegionReleased(Frozen):
    """`stuck` deletions hang at the provider: a later run sees them through."""

    region: str
    released: int
    stuck: int = 0


class WorkloadRequest(Frozen):
    """Something about one workload."""

    tenant_id: str
    workload_id: str


class FinishRequest(Frozen):
    """Record how far a placement came. `finish_id` makes the event of asking again the same event."""

    tenant_id: str
    workload_id: str
    finish_id: UUID


class Finished(Frozen):
    """The recorded outcome. `newer_claim` says that another claim arrived meanwhile."""

    phase: str
    units: int
    placed_units: int
    active_instances: int
    shortfall_units: int
    shortfall_reason: str | None
    newer_claim: bool


class PlacementInput(Frozen):
    """Place one workload: its newest claim, whatever that is when the decision is made."""

    tenant_id: str
    partition_id: str
    workload_id: str


class ClaimChanged(Frozen):
    """There is a newer claim, or (without a version) another reason to plan again."""

    claim_version: int | None = None
    why: str = ""


class SweepRequest(Frozen):
    """Find workloads of a partition whose placement has to run (again), and start it."""

    tenant_id: str
    partition_id: str
    limit: int


class Swept(Frozen):
    """The workloads whose placement was started or told, each with its reason."""

    poked: dict[str, str]

"""Policy data: every figure that may change without a release, with its default."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field

from domain.acquisition import AcquisitionTerms
from domain.backoff import BackoffTerms
from domain.circuit import CircuitTerms
from domain.contract import CapShare
from domain.leases import LeaseTerms
from domain.model import Frozen
from domain.pool_life import DrainTerms
from domain.reconcile import ReconcileTerms
from domain.serving.cold_start import ColdStartTerms
from domain.serving.endpoint import EndpointTerms
from domain.serving.health import HealthTerms
from domain.serving.placement_terms import ModelPlacementTerms
from domain.serving.usage import UsageTerms
from domain.serving.utilization import UtilizationTerms
from domain.serving.warm_keep import WarmKeepTerms


class ScoringPolicy(Frozen):
    """How pools are ranked. See docs/concepts/scoring.md for the meaning of depth."""

    discount_limit: CapShare = Decimal("0.85")
    history_days: Annotated[int, Field(ge=1, le=400)] = 30
    deep_instances: Annotated[int, Field(ge=1)] = 40
    depth_bands: Annotated[int, Field(ge=2, le=100)] = 20
    prior_interruptions_per_hour: Annotated[Decimal, Field(gt=0)] = Decimal("0.05")
    prior_hours: Annotated[int, Field(ge=1)] = 72
    quota_alarm_share: CapShare = Decimal("0.20")


class PlacementPolicy(BackoffTerms):
    """How a claim is spread, and how long a failed launch keeps it out of a pool."""

    probation_cap_share: CapShare = Decimal("0.05")
    floor_min_halls: Annotated[int, Field(ge=1, le=16)] = 3
    staleness_seconds: Annotated[int, Field(ge=1)] = 120
    batch_instances: Annotated[int, Field(ge=1, le=500)] = 50


class Policy(Frozen):
    """All figures of the rules in one value: what a policy file holds, each with its default."""

    scoring: ScoringPolicy = ScoringPolicy()
    placement: PlacementPolicy = PlacementPolicy()
    acquisition: AcquisitionTerms = AcquisitionTerms()
    reconcile: ReconcileTerms = ReconcileTerms()
    circuit: CircuitTerms = CircuitTerms()
    leases: LeaseTerms = LeaseTerms()
    drain: DrainTerms = DrainTerms()
    endpoints: EndpointTerms = EndpointTerms()
    warm_keep: WarmKeepTerms = WarmKeepTerms()
    model_placement: ModelPlacementTerms = ModelPlacementTerms()
    utilization: UtilizationTerms = UtilizationTerms()
    health: HealthTerms = HealthTerms()
    cold_start: ColdStartTerms = ColdStartTerms()
    usage: UsageTerms = UsageTerms()

"""What the scoring and observation workflows may ask of their hands. No other imports."""

from __future__ import annotations

from uuid import UUID

from domain.model import Frozen

OBSERVE = "observe_region"
SCORE = "score_partition"

NOT_OBSERVED = "not_observed"


class ObserveRequest(Frozen):
    """Ask the provider of one region how its pools are."""

    tenant_id: str
    region: str


class Observed(Frozen):
    """How many pools were reported, and which halls the provider calls lost."""

    region: str
    pools: int
    lost_halls: tuple[str, ...]


class ScoreRequest(Frozen):
    """Rank every pool for one partition. `ranking_id` makes asking again harmless."""

    tenant_id: str
    partition_id: str
    ranking_id: UUID


class Scored(Frozen):
    """A stored ranking: its version, and how many of its pools any claim may use."""

    ranking_id: UUID
    version: int
    pools: int
    open_pools: int
    without_history: int

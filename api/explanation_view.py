"""A past decision as it is told: its terms, its cost, and every pool with the reason."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import NamedTuple
from uuid import UUID

from activities.explaining import ExplainedDecision
from api.shapes import MoneyView, View, money
from api.workloads import CapsView, ShortfallView
from domain.money import rounded
from domain.placement.explain import Candidate
from domain.placement.scoring import PoolScore
from domain.pool import PurchaseModel
from domain.reasons import Reason


class CandidateView(View):
    """One pool of the ranking. `rank` is its place in the order of its purchase model, from 1.

    `score` is depth and price in one figure, 0 to 1; `discountShare` is what it is below the guaranteed
    rate. Where `historyKnown` is false, the interruption rate is an assumption.
    """

    pool_id: str
    region: str
    hall: str
    group_id: str
    sku_family: str
    size: str
    purchase_model: PurchaseModel
    kept: bool
    units: int
    instances: int
    reason: Reason | None
    text: str
    rank: int | None
    score: Decimal | None
    depth: Decimal
    depth_band: int
    price_per_hour_usd: Decimal
    unit_price_per_hour_usd: Decimal | None
    discount_share: Decimal
    interruptions_per_hour: Decimal
    history_known: bool


class ReasonCountView(View):
    """How many pools were left out for one reason."""

    reason: Reason
    text: str
    pools: int


class FleetPartView(View):
    """What the plan put into one pool, group or hall. Shares are of the whole claim."""

    name: str
    units: int
    instances: int
    share: Decimal
    reclaimable_share: Decimal


class ExplanationView(View):
    """One decision. Candidates kept come first, then the shortlist in its order, then those refused."""

    decision_id: UUID
    workload_id: str
    partition_id: str
    generation: int
    claim_version: int
    ranking_id: UUID
    scorer_version: str
    decided_at: datetime
    outcome: str
    units: int
    placed_units: int
    floor_units: int
    pool_cap_units: int
    group_cap_units: int
    caps: CapsView
    floor_spread_met: bool
    hall_spread_met: bool
    cost_per_hour: MoneyView
    depth_premium_per_hour: MoneyView
    shortfalls: list[ShortfallView]
    counts_by_reason: list[ReasonCountView]
    groups: list[FleetPartView]
    halls: list[FleetPartView]
    candidates: list[CandidateView]


class Wanted(NamedTuple):
    """Which candidates to tell; None for all."""

    pool_id: str | None = None
    reason: Reason | None = None

    def admits(self, one: Candidate) -> bool:
        return self.pool_id in (None, one.pool_id) and self.reason in (None, one.reason)


def explanation_view(decided: ExplainedDecision, wanted: Wanted = Wanted()) -> ExplanationView:  # noqa: B008
    """The decision with the candidates that are wanted; counts and totals are always of all."""
    told = decided.explanation
    names = set(ExplanationView.model_fields) & set(ExplainedDecision.__slots__)
    own = {name: getattr(decided, name) for name in names}
    return ExplanationView(
        **own
        | {
            "units": told.caps.units,
            "floor_units": told.caps.floor_units,
            "pool_cap_units": told.caps.pool_units,
            "group_cap_units": told.caps.group_units,
            "caps": CapsView(**told.caps.model_dump()),
            "cost_per_hour": money(decided.cost_per_hour, decided.currency),
            "depth_premium_per_hour": money(decided.depth_premium_per_hour, decided.currency),
            "shortfalls": [ShortfallView(**one.model_dump()) for one in told.missing],
            "counts_by_reason": [ReasonCountView(**one.model_dump()) for one in told.counts_by_reason],
            "groups": [FleetPartView(**one.model_dump()) for one in told.groups],
            "halls": [FleetPartView(**one.model_dump()) for one in told.halls],
            "candidates": [
                _candidate(one, decided.scores[one.pool_id]) for one in told.candidates if wanted.admits(one)
            ],
        }
    )


def _candidate(one: Candidate, score: PoolScore) -> CandidateView:
    own = one.model_dump(exclude={"place", "score"})
    return CandidateView(
        **own,
        rank=one.place,
        score=None if one.score is None else rounded(one.score),
        sku_family=score.facts.sku_family,
        size=score.facts.size,
        discount_share=score.discount_share,
    )

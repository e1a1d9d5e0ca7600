"""The hand that answers "why this pool?": every pool of a past decision with its keep or exclude reason.

It reads what the decision stored and computes nothing anew, so the answer is the one of that time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from domain.model import Frozen
from domain.placement.scoring import PoolScore, Ranking
from domain.pool import PurchaseModel
from domain.reasons import REASON_TEXT, SHORTFALL_TEXT, Reason, ShortfallReason
from store import decisions, rankings
from store.engine import Connection

KEPT = "kept"


class UnknownPlacement(LookupError):
    """No decision of this id, or no such plan generation of the workload."""


class Candidate(Frozen):
    """One pool of the ranking. `reason` is None where it is kept; `rank` is its place in the shortlist."""

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
    price_per_hour_usd: Decimal
    discount_share: Decimal
    depth: Decimal
    depth_band: int
    interruptions_per_hour: Decimal
    history_known: bool


class Unplaced(Frozen):
    """Units that no pool took, and why."""

    units: int
    reason: ShortfallReason
    text: str


class Explanation(Frozen):
    """One decision with every candidate: those kept first, then the shortlist in its order, then the rest."""

    decision_id: UUID
    workload_id: str
    generation: int
    claim_version: int
    partition_id: str
    ranking_id: UUID
    scorer_version: str
    decided_at: datetime
    outcome: str
    units: int
    placed_units: int
    floor_units: int
    pool_cap_units: int
    group_cap_units: int
    floor_spread_met: bool
    hall_spread_met: bool
    cost_per_hour: Decimal
    depth_premium_per_hour: Decimal
    currency: str
    shortfalls: tuple[Unplaced, ...]
    candidates: tuple[Candidate, ...]


async def explain_placement(
    connection: Connection, tenant_id: str, workload_id: str, generation: int | None = None
) -> Explanation:
    """The decision behind a plan generation of a workload, the newest unless one is named."""
    decision_id = await decisions.decision_id_of(connection, tenant_id, workload_id, generation)
    if decision_id is None:
        what = "no plan generation yet" if generation is None else f"no plan generation {generation}"
        raise UnknownPlacement(f"workload {workload_id!r} has {what}")
    return await explain_decision(connection, tenant_id, decision_id)


async def explain_decision(connection: Connection, tenant_id: str, decision_id: UUID) -> Explanation:
    stored = await decisions.find_decision(connection, tenant_id, decision_id)
    if stored is None:
        raise UnknownPlacement(f"no placement {decision_id}")
    ranking = await rankings.load_ranking(connection, tenant_id, stored["ranking_id"])
    listed = await rankings.find_shortlist(connection, tenant_id, stored["ranking_id"], stored["class_key"])
    own = {name: stored[name] for name in Explanation.model_fields if name in stored}
    return Explanation(
        **own
        | {
            "partition_id": ranking.partition_id,
            "scorer_version": ranking.scorer_version,
            "shortfalls": tuple(_unplaced(units, reason) for units, reason in stored["shortfalls"]),
            "candidates": tuple(_candidates(stored, listed, ranking)),
        }
    )


def _unplaced(units: int, reason: str) -> Unplaced:
    known = ShortfallReason(reason)
    return Unplaced(units=units, reason=known, text=SHORTFALL_TEXT[known])


def _candidates(stored: sa.RowMapping, listed: sa.RowMapping, ranking: Ranking) -> Iterator[Candidate]:
    scores = {score.facts.pool_id: score for score in ranking.scores}
    ranks = {pool_id: place + 1 for part in ("floor", "fill") for place, pool_id in enumerate(listed[part])}
    held = _held(stored["allocations"])
    ordered = [*listed["floor"], *listed["fill"], *sorted(scores)]
    reading = _Reading(stored, listed, ranks, held)
    for pool_id in dict.fromkeys([*(one for one in ordered if one in held), *ordered]):
        yield reading.candidate(scores[pool_id])


def _held(allocations: list[list[Any]]) -> dict[str, tuple[int, int]]:
    """Units and instances by pool, over all shapes."""
    held: dict[str, tuple[int, int]] = {}
    for pool_id, _, units, instances in allocations:
        before = held.get(pool_id, (0, 0))
        held[pool_id] = (before[0] + units, before[1] + instances)
    return held


class _Reading:
    """What was stored of one decision, asked for pool by pool."""

    def __init__(
        self,
        stored: sa.RowMapping,
        listed: sa.RowMapping,
        ranks: dict[str, int],
        held: dict[str, tuple[int, int]],
    ) -> None:
        self._live_reasons: dict[str, str] = stored["reasons"]
        self._refused: dict[str, str] = listed["refused"]
        self._has_floor = stored["floor_units"] > 0
        self._ranks = ranks
        self._held = held

    def candidate(self, score: PoolScore) -> Candidate:
        facts = score.facts
        units, instances = self._held.get(facts.pool_id, (0, 0))
        kept = facts.pool_id in self._held
        reason = None if kept else self._reason(score)
        return Candidate(
            pool_id=facts.pool_id,
            region=facts.region,
            hall=facts.hall,
            group_id=facts.group_id,
            sku_family=facts.sku_family,
            size=facts.size,
            purchase_model=facts.purchase_model,
            kept=kept,
            units=units,
            instances=instances,
            reason=reason,
            text=_kept_text(units, instances) if reason is None else REASON_TEXT[reason],
            rank=self._ranks.get(facts.pool_id),
            price_per_hour_usd=facts.price_per_hour_usd,
            discount_share=score.discount_share,
            depth=score.depth,
            depth_band=score.depth_band,
            interruptions_per_hour=score.interruptions_per_hour,
            history_known=score.history_known,
        )

    def _reason(self, score: PoolScore) -> Reason:
        """The live state at decision time speaks first, then the filters; else better pools sufficed."""
        pool_id = score.facts.pool_id
        told = self._live_reasons.get(pool_id) or self._refused.get(pool_id)
        if told is not None:
            return Reason(told)
        committed = score.facts.purchase_model is PurchaseModel.COMMITTED
        return Reason.PURCHASE_MODEL if committed and not self._has_floor else Reason.OUTSCORED


def _kept_text(units: int, instances: int) -> str:
    unit = "unit" if units == 1 else "units"
    instance = "instance" if instances == 1 else "instances"
    return f"it holds {units} {unit} on {instances} {instance}"

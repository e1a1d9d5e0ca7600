"""The hand that answers "why this pool?": a past decision, read from what was stored and told as it was.

Nothing is decided anew here: order, refusals, reasons and allocations are the stored ones. Whether they
would come out the same today is what a replay answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from uuid import UUID

import sqlalchemy as sa

from domain.placement.caps import caps_for
from domain.placement.explain import Decision, Explanation, explain
from domain.placement.filters import RequirementClass, Shortlist, shortlist
from domain.placement.portfolio import Allocation, Shortfall
from domain.placement.record import question_from
from domain.placement.scoring import MICRO, PoolScore, Ranking
from domain.reasons import Reason, ShortfallReason
from store import decisions, rankings
from store.engine import Connection


class UnknownPlacement(LookupError):
    """No decision of this id, or no such plan generation of the workload."""


@dataclass(frozen=True, slots=True)
class ExplainedDecision:
    """A stored decision with its explanation. Costs are per hour in `currency`; `scores` by pool id."""

    decision_id: UUID
    workload_id: str
    generation: int
    claim_version: int
    partition_id: str
    ranking_id: UUID
    scorer_version: str
    decided_at: datetime
    outcome: str
    placed_units: int
    cost_per_hour: Decimal
    depth_premium_per_hour: Decimal
    currency: str
    floor_spread_met: bool
    hall_spread_met: bool
    explanation: Explanation
    scores: Mapping[str, PoolScore]


async def find_generation(
    connection: Connection, tenant_id: str, workload_id: str, generation: int | None
) -> UUID:
    """The decision behind a plan generation, the newest unless one is named; else `UnknownPlacement`."""
    decision_id = await decisions.decision_id_of(connection, tenant_id, workload_id, generation)
    if decision_id is None:
        what = "no plan generation yet" if generation is None else f"no plan generation {generation}"
        raise UnknownPlacement(f"workload {workload_id!r} has {what}")
    return decision_id


async def explain_decision(connection: Connection, tenant_id: str, decision_id: UUID) -> ExplainedDecision:
    """One decision with every pool of its ranking, once each."""
    stored = await decisions.find_decision(connection, tenant_id, decision_id)
    if stored is None:
        raise UnknownPlacement(f"no placement {decision_id}")
    ranking = await rankings.load_ranking(connection, tenant_id, stored["ranking_id"])
    listed = await rankings.find_shortlist(connection, tenant_id, stored["ranking_id"], stored["class_key"])
    wanted = RequirementClass.model_validate(listed["requirement_class"])
    as_stored = stored_shortlist(ranking, wanted, listed)
    scores = {score.facts.pool_id: score for score in ranking.scores}
    return ExplainedDecision(
        decision_id=decision_id,
        workload_id=stored["workload_id"],
        generation=stored["generation"],
        claim_version=stored["claim_version"],
        partition_id=ranking.partition_id,
        ranking_id=stored["ranking_id"],
        scorer_version=ranking.scorer_version,
        decided_at=stored["decided_at"],
        outcome=stored["outcome"],
        placed_units=stored["placed_units"],
        cost_per_hour=stored["cost_per_hour"],
        depth_premium_per_hour=stored["depth_premium_per_hour"],
        currency=stored["currency"],
        floor_spread_met=stored["floor_spread_met"],
        hall_spread_met=stored["hall_spread_met"],
        explanation=explain(
            scores,
            as_stored,
            _decision(stored, as_stored),
            wanted.shapes,
            depth_bands=ranking.policy.depth_bands,
        ),
        scores=scores,
    )


def stored_shortlist(ranking: Ranking, wanted: RequirementClass, listed: sa.RowMapping) -> Shortlist:
    """The shortlist in the order and with the refusals that were stored."""
    today = shortlist(ranking, wanted)
    return replace(
        today,
        fill=tuple(today.entries[pool_id] for pool_id in listed["fill"]),
        floor=tuple(today.entries[pool_id] for pool_id in listed["floor"]),
        refused={pool_id: Reason(reason) for pool_id, reason in listed["refused"].items()},
        rank_of={
            pool_id: place + 1 for part in ("fill", "floor") for place, pool_id in enumerate(listed[part])
        },
    )


def _decision(stored: sa.RowMapping, listed: Shortlist) -> Decision:
    question = question_from(stored["question"], listed)
    return Decision(
        caps=caps_for(sum(question.units), question.terms),
        allocations=tuple(Allocation(*one) for one in stored["allocations"]),
        shortfalls=tuple(Shortfall(units, ShortfallReason(why)) for units, why in stored["shortfalls"]),
        reasons={pool_id: Reason(reason) for pool_id, reason in stored["reasons"].items()},
        cost_micro_usd=int(stored["cost_per_hour"] * MICRO),
        depth_premium_micro_usd=int(stored["depth_premium_per_hour"] * MICRO),
    )

"""A question and its plan as plain documents, so that a past decision can be asked again."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from domain.placement.caps import Terms
from domain.placement.draft import Holding, Live
from domain.placement.filters import Shortlist
from domain.placement.portfolio import Plan, Question
from domain.reasons import Reason


def question_document(question: Question, plan: Plan) -> dict[str, Any]:
    """What `plan` depended on: of the live states, only those that were looked at."""
    terms = question.terms
    return {
        "units": list(question.units),
        "terms": {
            "floor_share": str(terms.floor_share),
            "pool_cap_share": str(terms.pool_cap_share),
            "group_cap_share": str(terms.group_cap_share),
            "probation_cap_share": str(terms.probation_cap_share),
            "floor_min_halls": terms.floor_min_halls,
        },
        "live": {
            pool_id: [state.free, state.blocked, state.probation]
            for pool_id, state in sorted(plan.consulted.items())
        },
        "holdings": [list(held) for held in sorted(question.holdings)],
    }


def question_from(document: Mapping[str, Any], shortlist: Shortlist) -> Question:
    """The question that was stored, over the shortlist it was asked of."""
    shares = {name: Decimal(value) for name, value in document["terms"].items() if name != "floor_min_halls"}
    return Question(
        units=tuple(document["units"]),
        terms=Terms(**shares, floor_min_halls=document["terms"]["floor_min_halls"]),
        shortlist=shortlist,
        live={
            pool_id: Live(free, Reason(blocked) if blocked else None, probation)
            for pool_id, (free, blocked, probation) in document["live"].items()
        },
        holdings=tuple(Holding(*held) for held in document["holdings"]),
    )


def plan_document(plan: Plan) -> dict[str, Any]:
    """The answer: what is kept of a plan for good, and compared when it is asked again."""
    return {
        "allocations": [list(one) for one in plan.allocations],
        "reasons": {pool_id: reason.value for pool_id, reason in sorted(plan.reasons.items())},
        "shortfalls": [[one.units, one.reason.value] for one in plan.shortfalls],
        "cost_micro_usd": plan.cost_micro_usd,
        "depth_premium_micro_usd": plan.depth_premium_micro_usd,
        "floor_spread_met": plan.floor_spread_met,
        "hall_spread_met": plan.hall_spread_met,
    }

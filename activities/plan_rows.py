"""From a plan to the rows that record it: targets, slots with their keys, decision and generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from activities.placement_calls import Decided
from domain.ids import batch_key, shape_key, slot_key
from domain.money import rounded
from domain.placement.draft import Holding
from domain.placement.filters import RequirementClass, Shortlist
from domain.placement.portfolio import Plan, Question
from domain.placement.record import plan_document, question_document
from domain.placement.scoring import MICRO
from domain.reasons import ShortfallReason
from store.decisions import HeldRow
from store.planning import Slot, Target

CURRENCY = "USD"


@dataclass(frozen=True, slots=True)
class Booking:
    """What a plan means for the store: targets by pool, and new slots in batches."""

    targets: tuple[Target, ...]
    slots: tuple[Slot, ...]


def holdings(held: Sequence[HeldRow], wanted: RequirementClass) -> tuple[Holding, ...]:
    """What is held, for the planner. Shapes that the claim has no more are not held for it.

    Instances beyond their target wait to be given back: a plan that counted on them would keep them.
    """
    index_of = {shape_key(shape): index for index, shape in enumerate(wanted.shapes)}
    return tuple(
        Holding(row.pool_id, index_of[row.shape_key], row.units, instances, row.generation)
        for row in held
        if (instances := min(row.usable, row.target_instances)) > 0
        and row.shape_key in index_of
        and row.units > 0
    )


def booking(
    decision_id: UUID,
    answer: Plan,
    *,
    wanted: RequirementClass,
    listed: Shortlist,
    held: Sequence[HeldRow],
    batch_instances: int,
) -> Booking:
    """Targets and new slots. The same decision always mints the same keys."""
    usable = {(row.pool_id, row.shape_key): row.usable for row in held}
    targets: list[Target] = []
    slots: list[Slot] = []
    for one in answer.allocations:
        key = shape_key(wanted.shapes[one.shape_index])
        entry = listed.entries[one.pool_id]
        new = max(0, one.instances - usable.get((one.pool_id, key), 0))
        targets.append(
            Target(
                pool_id=one.pool_id,
                shape_key=key,
                units=one.units,
                instances=one.instances,
                units_per_instance=entry.per_instance[one.shape_index],
                grew=new > 0,
            )
        )
        for number in range(0, new, batch_instances):
            batch = batch_key(decision_id, one.pool_id, one.shape_index, number)
            slots += [
                Slot(slot_key(batch, place), batch, one.pool_id, entry.region, key)
                for place in range(min(batch_instances, new - number))
            ]
    return Booking(tuple(targets), tuple(slots))


def is_same_plan(answer: Plan, booked: Booking, held: Sequence[HeldRow], shortfall_units: int) -> bool:
    """Whether the plan asks for exactly what the last one did, with the same shortfall as was recorded."""
    now = {(row.pool_id, row.shape_key): (row.units, row.target_instances) for row in held if row.units > 0}
    then = {(one.pool_id, one.shape_key): (one.units, one.instances) for one in booked.targets}
    missing = sum(one.units for one in answer.shortfalls)
    return not booked.slots and now == then and missing == shortfall_units


def outcome_of(answer: Plan) -> str:
    """How a decision ended, as one word for the record, the metric and the screen."""
    if not answer.shortfalls:
        return "placed"
    if all(one.reason is ShortfallReason.POLICY_DENIED for one in answer.shortfalls):
        return "policy_denied"
    return "shortfall"


def decision_row(
    question: Question, answer: Plan, common: Mapping[str, Any], decided_at: datetime
) -> dict[str, Any]:
    """The stored decision: its question, its answer and when it was made."""
    document = plan_document(answer)
    return dict(common) | {
        "ranking_id": UUID(question.shortlist.ranking_id),
        "class_key": question.shortlist.class_key,
        "outcome": outcome_of(answer),
        "question": question_document(question, answer),
        "allocations": document["allocations"],
        "reasons": document["reasons"],
        "shortfalls": document["shortfalls"],
        "decided_at": decided_at,
    }


def generation_row(answer: Plan, common: Mapping[str, Any]) -> dict[str, Any]:
    """The plan generation: what the decision costs and how it spreads."""
    row = {name: value for name, value in common.items() if name != "claim_version"}
    return row | {
        "units": answer.caps.units,
        "placed_units": answer.placed_units,
        "floor_units": answer.caps.floor_units,
        "pool_cap_units": answer.caps.pool_units,
        "group_cap_units": answer.caps.group_units,
        "cost_per_hour": _usd(answer.cost_micro_usd),
        "depth_premium_per_hour": _usd(answer.depth_premium_micro_usd),
        "currency": CURRENCY,
        "floor_spread_met": answer.floor_spread_met,
        "hall_spread_met": answer.hall_spread_met,
    }


def _usd(micro_usd: int) -> Decimal:
    return rounded(Decimal(micro_usd) / MICRO)


def decided(stored: Mapping[str, Any], regions: Sequence[str], *, releases: bool) -> Decided:
    """The answer to the workflow, from the stored decision and its generation."""
    shortfalls = stored["shortfalls"]
    return Decided(
        decision_id=stored["decision_id"],
        generation=stored["generation"],
        claim_version=stored["claim_version"],
        units=stored["units"],
        placed_units=stored["placed_units"],
        floor_units=stored["floor_units"],
        shortfall_units=sum(units for units, _ in shortfalls),
        shortfall_reason=shortfalls[-1][1] if shortfalls else None,
        cost_per_hour=str(stored["cost_per_hour"]),
        depth_premium_per_hour=str(stored["depth_premium_per_hour"]),
        currency=stored["currency"],
        acquire_regions=tuple(regions),
        releases=releases,
    )

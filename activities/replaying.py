"""The hand that decides again: a past decision from its stored inputs, compared with what was stored.

Each step starts from stored inputs and compares with stored results: inputs to scores, scores to
shortlist, question to plan. A part that was changed since, or that this program would decide otherwise,
comes out as a difference with its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from uuid import UUID

import sqlalchemy as sa
from pydantic import ValidationError

from activities.explaining import find_generation
from activities.plan_rows import decision_row, generation_row
from domain.claim import Demand
from domain.intake.words import clean
from domain.model import Frozen
from domain.placement.filters import RequirementClass, Shortlist, shortlist
from domain.placement.portfolio import Question, plan
from domain.placement.record import question_document, question_from
from domain.placement.scoring import SCORER_VERSION, PoolInputs, Ranking, rank
from store import decisions, partitions, rankings, workloads
from store.engine import Connection

# What a stored document of another shape makes the rules raise.
UNREADABLE = (ValueError, KeyError, IndexError, TypeError, AttributeError, ArithmeticError)
MAX_DIFFERENCES = 100
MAX_SHOWN = 200
ABSENT = "absent"
DECIDED = ("ranking_id", "class_key", "allocations", "reasons", "shortfalls", "outcome")
GENERATION = (
    "units",
    "placed_units",
    "floor_units",
    "pool_cap_units",
    "group_cap_units",
    "cost_per_hour",
    "depth_premium_per_hour",
    "currency",
    "floor_spread_met",
    "hall_spread_met",
)


class Difference(Frozen):
    """One part that does not come out as stored. Values are shown as text, shortened."""

    part: str
    stored: str
    recomputed: str


class Replay(Frozen):
    """Whether a decision comes out the same. `omitted` counts differences beyond those listed."""

    same: bool
    differences: tuple[Difference, ...]
    omitted: int
    workload_id: str
    generation: int
    decision_id: UUID
    ranking_id: UUID
    scorer_version: str


@dataclass(frozen=True, slots=True)
class _Stored:
    """All that one decision left in the store. `ranking` is what was computed, `inputs` from what."""

    ranking: Ranking
    inputs: list[PoolInputs]
    listed: sa.RowMapping
    decision: sa.RowMapping
    demand: Demand
    home_region: str


async def replay_placement(
    connection: Connection, tenant_id: str, workload_id: str, generation: int | None = None
) -> Replay:
    """Decide a plan generation again, the newest unless one is named. `UnknownPlacement` without one."""
    decision_id = await find_generation(connection, tenant_id, workload_id, generation)
    decision = await decisions.find_decision(connection, tenant_id, decision_id)
    assert decision is not None
    found = await _compare(connection, tenant_id, decision)
    return Replay(
        same=not found,
        differences=tuple(found[:MAX_DIFFERENCES]),
        omitted=max(0, len(found) - MAX_DIFFERENCES),
        workload_id=workload_id,
        generation=decision["generation"],
        decision_id=decision_id,
        ranking_id=decision["ranking_id"],
        scorer_version=SCORER_VERSION,
    )


async def _compare(connection: Connection, tenant_id: str, decision: sa.RowMapping) -> list[Difference]:
    """Every difference, and a part that cannot even be read as one of its own."""
    ranking_id = decision["ranking_id"]
    try:
        stored = _Stored(
            ranking=await rankings.load_ranking(connection, tenant_id, ranking_id),
            inputs=await rankings.load_inputs(connection, tenant_id, ranking_id),
            listed=await rankings.find_shortlist(connection, tenant_id, ranking_id, decision["class_key"]),
            decision=decision,
            demand=await _demand(connection, tenant_id, decision),
            home_region=await _home_region(connection, tenant_id, decision["workload_id"]),
        )
    except ValidationError as error:
        return [_unreadable(error.title, error)]
    return await asyncio.to_thread(lambda: list(_differences(stored)))


async def _demand(connection: Connection, tenant_id: str, decision: sa.RowMapping) -> Demand:
    claim = await workloads.find_claim(
        connection, tenant_id, decision["workload_id"], decision["claim_version"]
    )
    return Demand.model_validate(claim["demand"])


async def _home_region(connection: Connection, tenant_id: str, workload_id: str) -> str:
    """Where a claim runs that names no region: that of its workload's partition, which is fixed."""
    workload = await workloads.find_workload(connection, tenant_id, workload_id)
    regions = {name: region for name, region, _ in await partitions.list_partitions(connection, tenant_id)}
    return regions[workload["partition_id"]]


def _differences(stored: _Stored) -> Iterator[Difference]:
    """Step by step; a step that cannot be taken at all ends the replay with the reason."""
    part = "ranking"
    try:
        ranking = rank(
            stored.ranking.ranking_id, stored.ranking.partition_id, stored.inputs, stored.ranking.policy
        )
        yield from _of_ranking(stored.ranking, ranking)
        part = "shortlist"
        wanted = RequirementClass.model_validate(stored.listed["requirement_class"])
        listed = shortlist(ranking, wanted)
        yield from _of_shortlist(stored, wanted, listed)
        part = "decision"
        question = question_from(stored.decision["question"], listed)
        claimed = [group.units for group in stored.demand.shapes]
        yield from _changed("claim.units", claimed, list(question.units))
        yield from _of_decision(stored.decision, question)
    except UNREADABLE as error:
        yield _unreadable(part, error)


def _of_ranking(stored: Ranking, again: Ranking) -> Iterator[Difference]:
    yield from _changed("ranking.scorerVersion", stored.scorer_version, again.scorer_version)
    before = {score.facts.pool_id: score.model_dump() for score in stored.scores}
    after = {score.facts.pool_id: score.model_dump() for score in again.scores}
    for pool_id in sorted(before.keys() | after.keys()):
        part = f"ranking.scores[{pool_id}]"
        if pool_id in before and pool_id in after:
            yield from _parts(part, before[pool_id], after[pool_id])
        else:
            yield Difference(
                part=part, stored=_presence(pool_id in before), recomputed=_presence(pool_id in after)
            )


def _presence(is_there: bool) -> str:
    return "present" if is_there else ABSENT


def _of_shortlist(stored: _Stored, wanted: RequirementClass, again: Shortlist) -> Iterator[Difference]:
    listed, demand = stored.listed, stored.demand
    yield from _changed("shortlist.classKey", listed["class_key"], wanted.key)
    yield from _changed("claim.shapes", [group.shape for group in demand.shapes], list(wanted.shapes))
    asked = demand.requirements
    if asked.regions is None:
        asked = asked.model_copy(update={"regions": (stored.home_region,)})
    yield from _changed("claim.requirements", asked, wanted.requirements)
    yield from _parts("shortlist.fill", listed["fill"], [entry.pool_id for entry in again.fill])
    yield from _parts("shortlist.floor", listed["floor"], [entry.pool_id for entry in again.floor])
    refused = {pool_id: reason.value for pool_id, reason in again.refused.items()}
    yield from _parts("shortlist.refused", listed["refused"], refused)


def _of_decision(stored: sa.RowMapping, question: Question) -> Iterator[Difference]:
    answer = plan(question)
    common = {name: stored[name] for name in ("tenant_id", "decision_id", "workload_id", "generation")}
    again = decision_row(question, answer, common, stored["decided_at"]) | generation_row(answer, common)
    yield from _parts("decision.question", stored["question"], question_document(question, answer))
    for name in DECIDED:
        yield from _parts(f"decision.{name}", stored[name], again[name])
    for name in GENERATION:
        yield from _changed(f"generation.{name}", stored[name], again[name])


def _parts(part: str, stored: object, again: object) -> Iterator[Difference]:
    """Documents are compared key by key, lists up to the first place at which they differ."""
    if isinstance(stored, dict) and isinstance(again, dict):
        for key in sorted(stored.keys() | again.keys()):
            yield from _parts(f"{part}[{key}]", stored.get(key, ABSENT), again.get(key, ABSENT))
    elif isinstance(stored, list) and isinstance(again, list):
        for place, (one, other) in enumerate(zip_longest(stored, again, fillvalue=ABSENT)):
            if one != other:
                yield from _parts(f"{part}[{place}]", one, other)
                return
    else:
        yield from _changed(part, stored, again)


def _changed(part: str, stored: object, recomputed: object) -> Iterator[Difference]:
    if stored != recomputed:
        yield Difference(part=part, stored=_text(stored), recomputed=_text(recomputed))


def _unreadable(part: str, error: Exception) -> Difference:
    return Difference(part=part, stored="cannot be read as what it should be", recomputed=_text(error))


def _text(value: object) -> str:
    return clean(str(value), MAX_SHOWN)

"""The hand that decides a placement: one transaction from the newest claim to a committed plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog
from psycopg.errors import CheckViolation
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities import metrics
from activities.placement_calls import (
    CAPACITY_CONTENDED,
    DECIDE,
    NO_RANKING,
    NOTHING_TO_PLACE,
    Decided,
    DecideRequest,
)
from activities.plan_rows import (
    Booking,
    booking,
    decided,
    decision_row,
    generation_row,
    holdings,
    is_same_plan,
    outcome_of,
)
from activities.shortlisting import ShortlistCache
from domain.claim import Demand
from domain.placement.caps import Terms, cap_units
from domain.placement.draft import Live
from domain.placement.filters import RequirementClass, Shortlist, pool_cap_units_that_matter
from domain.placement.liveness import backed_off, live_of
from domain.placement.portfolio import Plan, Question, plan
from domain.placement.scoring import Ranking
from domain.policy import PlacementPolicy
from store import decisions, fleet, outbox, planning, rankings
from store.engine import Connection, Driver, Engine, driver_of
from wire.payloads import PlanCommitted

# What a decision runs into when a pool filled up, or left its active state, after it was read.
CHANGED_MEANWHILE = ("never_double_booked_check", "pool_takes_slots")
ATTEMPTS_WHEN_CONTENDED = 6
log = structlog.get_logger("placing")


@dataclass(frozen=True, slots=True)
class _Intent:
    """What is to be decided, as the database holds it under lock."""

    request: DecideRequest
    row: Mapping[str, Any]
    demand: Demand
    wanted: RequirementClass
    listed: Shortlist
    unsaved: bool
    held: list[decisions.HeldRow]

    @property
    def planned_before(self) -> bool:
        """Whether there can be holdings, failed launches or servers to give back at all."""
        return bool(self.row["generation"] > 0)

    @property
    def common(self) -> dict[str, Any]:
        return {
            "tenant_id": self.request.tenant_id,
            "decision_id": self.request.decision_id,
            "workload_id": self.request.workload_id,
            "generation": self.row["generation"] + 1,
            "claim_version": self.row["claim_version"],
        }


class PlacingActivities:
    """Decides placements against one database.

    `pulse_age` bounds how old the pools' live state may be when it is planned on; the capacity
    constraint catches what changed since, and the decision is then made again on fresh state.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        policy: PlacementPolicy,
        now: Callable[[], datetime],
        pulse_age: timedelta = timedelta(seconds=1),
    ) -> None:
        self._engine = engine
        self._policy = policy
        self._now = now
        self._pulse_age = pulse_age
        self._cache = ShortlistCache()
        self._live: dict[str, tuple[datetime, dict[str, Live]]] = {}

    @activity.defn(name=DECIDE)
    async def decide_placement(self, request: DecideRequest) -> Decided:
        """Commit a plan generation for the newest claim; asked again with the same id, the same answer.

        When nothing changed since the last plan, that plan is the answer and no generation is added.
        """
        for attempt in range(ATTEMPTS_WHEN_CONTENDED):
            try:
                with metrics.DECISION_SECONDS.time():
                    async with self._engine.begin() as connection:
                        answer, listed = await self._decide(connection, request, fresh=attempt > 0)
            except CheckViolation as error:
                if not str(error.diag.constraint_name).endswith(CHANGED_MEANWHILE):
                    raise
                metrics.CONTENDED.inc()
                continue
            if listed is not None:
                self._cache.stored(listed)
            return answer
        raise ApplicationError(
            f"capacity changed under {ATTEMPTS_WHEN_CONTENDED} decisions in a row", type=CAPACITY_CONTENDED
        )

    async def _decide(
        self, connection: Connection, request: DecideRequest, *, fresh: bool
    ) -> tuple[Decided, Shortlist | None]:
        """The answer, and the shortlist that this transaction stores for the first time."""
        driver = await driver_of(connection)
        row = await decisions.lock_intent(driver, request.tenant_id, request.workload_id)
        if row is None:
            raise ApplicationError(
                f"workload {request.workload_id!r} has no claim", type=NOTHING_TO_PLACE, non_retryable=True
            )
        if row["generation"] > 0:  # only then can it have been decided already
            known = await decisions.find_decision(connection, request.tenant_id, request.decision_id)
            if known is not None:
                return await self._as_answer(connection, known), None
        intent = await self._intent(connection, request, row)
        question = await self._question(connection, intent, fresh=fresh)
        answer = plan(question)
        booked = booking(
            request.decision_id,
            answer,
            wanted=intent.wanted,
            listed=intent.listed,
            held=intent.held,
            batch_instances=self._policy.batch_instances,
        )
        same_claim = row["planned_version"] == row["claim_version"]
        if same_claim and is_same_plan(answer, booked, intent.held, row["shortfall_units"]):
            newest = await decisions.decision_id_of(connection, request.tenant_id, request.workload_id, None)
            if newest is not None:
                known = await decisions.find_decision(connection, request.tenant_id, newest)
                assert known is not None
                return await self._as_answer(connection, known), None
        stored = await self._commit(connection, intent, question, answer, booked)
        unsaved = intent.listed if intent.unsaved else None
        if intent.planned_before:
            return await self._as_answer(connection, stored), unsaved
        return decided(stored, sorted({slot.region for slot in booked.slots}), releases=False), unsaved

    async def _intent(
        self, connection: Connection, request: DecideRequest, row: Mapping[str, Any]
    ) -> _Intent:
        ranking = await self._ranking(connection, request.tenant_id, row)
        demand = Demand.model_validate(row["demand"])
        wanted = requirement_class(demand, row, ranking)
        listed, unsaved = self._cache.shortlist(ranking, wanted)
        held = (
            await decisions.held_by(connection, request.tenant_id, request.workload_id)
            if row["generation"] > 0
            else []
        )
        return _Intent(request, row, demand, wanted, listed, unsaved, held)

    async def _ranking(self, connection: Connection, tenant_id: str, row: Mapping[str, Any]) -> Ranking:
        if row["ranking_id"] is None:
            raise ApplicationError(
                f"partition {row['partition_id']!r} has no ranking yet: scoring runs every five minutes",
                type=NO_RANKING,
                category=ApplicationErrorCategory.BENIGN,
            )
        return await self._cache.ranking(connection, tenant_id, row["ranking_id"])

    async def _question(self, connection: Connection, intent: _Intent, *, fresh: bool) -> Question:
        tenant_id, workload_id = intent.request.tenant_id, intent.request.workload_id
        live = await self._fresh_live(connection, tenant_id, fresh=fresh)
        if intent.planned_before:
            off = await decisions.backed_off(connection, tenant_id, workload_id, self._now())
            live = live | {pool_id: backed_off(live[pool_id]) for pool_id in off & live.keys()}
        return Question(
            units=tuple(group.units for group in intent.demand.shapes),
            terms=terms_of(intent.row, self._policy),
            shortlist=intent.listed,
            live=live,
            holdings=holdings(intent.held, intent.wanted),
        )

    async def _fresh_live(self, connection: Connection, tenant_id: str, *, fresh: bool) -> dict[str, Live]:
        """What every pool may take now, as old as `pulse_age` allows."""
        now = self._now()
        read_at, live = self._live.get(tenant_id, (None, {}))
        if fresh or read_at is None or now - read_at > self._pulse_age:
            staleness = timedelta(seconds=self._policy.staleness_seconds)
            pulses = await decisions.read_pulses(connection, tenant_id)
            live = {
                pool_id: live_of(pulse, now=now, staleness=staleness) for pool_id, pulse in pulses.items()
            }
            self._live[tenant_id] = (now, live)
        return live

    async def _commit(
        self, connection: Connection, intent: _Intent, question: Question, answer: Plan, booked: Booking
    ) -> dict[str, Any]:
        request, common = intent.request, intent.common
        tenant_id, workload_id, number = request.tenant_id, request.workload_id, common["generation"]
        decision = decision_row(question, answer, common, self._now())
        generation = generation_row(answer, common)
        if intent.unsaved:
            await rankings.save_shortlist(connection, tenant_id, intent.wanted, intent.listed)
        driver = await driver_of(connection)
        async with driver.pipeline():
            if intent.held:
                await planning.clear_targets(driver, tenant_id, workload_id)
            await planning.write_targets(driver, tenant_id, workload_id, number, booked.targets)
            await planning.write_slots(
                driver,
                tenant_id=tenant_id,
                workload_id=workload_id,
                partition_id=intent.row["partition_id"],
                generation=number,
                slots=booked.slots,
            )
            await planning.commit_plan(driver, decision, generation)
            await self._announce(driver, intent, answer)
        self._book_in_memory(tenant_id, booked)
        metrics.DECISIONS.labels(decision["outcome"]).inc()
        log.info(
            "placement_planned",
            workload=workload_id,
            generation=number,
            units=answer.caps.units,
            placed_units=answer.placed_units,
            new_instances=len(booked.slots),
            shortfalls={one.reason.value: one.units for one in answer.shortfalls},
        )
        return decision | generation

    async def _announce(self, driver: Driver, intent: _Intent, answer: Plan) -> None:
        request = intent.request
        payload = PlanCommitted(
            placement_id=request.decision_id,
            tenant_id=request.tenant_id,
            workload_id=request.workload_id,
            generation=intent.common["generation"],
            outcome=outcome_of(answer),
            units=answer.caps.units,
            placed_units=answer.placed_units,
        )
        await outbox.add_event(driver, payload, once=str(request.decision_id))

    def _book_in_memory(self, tenant_id: str, booked: Booking) -> None:
        """Count our own new slots at once, so that the next decision does not plan on them again."""
        _, live = self._live[tenant_id]
        for slot in booked.slots:
            state = live[slot.pool_id]
            live[slot.pool_id] = state._replace(free=state.free - 1)

    async def _as_answer(self, connection: Connection, stored: Any) -> Decided:
        regions = await fleet.regions_at_work(connection, stored["tenant_id"], stored["workload_id"])
        return decided(
            stored,
            [one.region for one in regions if one.opening],
            releases=any(one.releasing or one.surplus for one in regions),
        )


def requirement_class(demand: Demand, row: Mapping[str, Any], ranking: Ranking) -> RequirementClass:
    """The class of a claim under its contract: what shortlists are shared by.

    A claim that names no region runs in the region of its partition's scheduler.
    """
    requirements = demand.requirements
    if requirements.regions is None:
        requirements = requirements.model_copy(update={"regions": (row["region"],)})
    shapes = tuple(group.shape for group in demand.shapes)
    cap = cap_units(row["pool_cap_share"], demand.units)
    return RequirementClass(
        requirements=requirements,
        shapes=shapes,
        tolerated_interruptions_per_hour=row["tolerated_interruptions_per_hour"].normalize(),
        pool_cap_units=pool_cap_units_that_matter(ranking, shapes, cap) if shapes else 1,
    )


def terms_of(row: Mapping[str, Any], policy: PlacementPolicy) -> Terms:
    return Terms(
        floor_share=row["floor_share"],
        pool_cap_share=row["pool_cap_share"],
        group_cap_share=row["group_cap_share"],
        probation_cap_share=policy.probation_cap_share,
        floor_min_halls=policy.floor_min_halls,
    )

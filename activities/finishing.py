"""The hand that closes a placement: what is to be given back, and how far it came."""

from __future__ import annotations

import structlog
from temporalio import activity

from activities import metrics
from activities.placement_calls import (
    FINISH,
    PLAN_RELEASE,
    Finished,
    FinishRequest,
    ReleasePlan,
    WorkloadRequest,
)
from domain.reasons import ShortfallReason
from store import fleet, outbox, releases, workloads
from store.engine import Engine
from store.tables import Phase
from wire.payloads import PlacementFinished

log = structlog.get_logger("finishing")


class FinishingActivities:
    """Store-backed ends of a placement."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @activity.defn(name=PLAN_RELEASE)
    async def plan_release(self, request: WorkloadRequest) -> ReleasePlan:
        """Mark what the workload holds beyond its plan; returns the regions where servers are to go."""
        async with self._engine.begin() as connection:
            leaving = await releases.mark_surplus(connection, request.tenant_id, request.workload_id)
        return ReleasePlan(regions=tuple(sorted({row["region"] for row in leaving})))

    @activity.defn(name=FINISH)
    async def finish_placement(self, request: FinishRequest) -> Finished:
        """Record the outcome: placed, or a shortfall with its reason, or still planned.

        It is still planned where a region was not reached: what is planned there does not run yet, and
        the sweep takes it up again.
        """
        async with self._engine.begin() as connection:
            await workloads.lock_workload(connection, request.tenant_id, request.workload_id)
            workload = await workloads.find_workload(connection, request.tenant_id, request.workload_id)
            claim = await workloads.find_claim(
                connection, request.tenant_id, request.workload_id, workload["planned_version"]
            )
            placed = await fleet.planned_units(connection, request.tenant_id, request.workload_id)
            states = await fleet.counts_by_state(connection, request.tenant_id, request.workload_id)
            missing = max(0, claim["units"] - placed)
            reason = _reason(missing, workload["shortfall_units"], workload["shortfall_reason"])
            finished = Finished(
                phase=_phase(missing, open_slots=states.get("planned", 0) + states.get("building", 0)),
                units=claim["units"],
                placed_units=placed,
                active_instances=states.get("active", 0),
                shortfall_units=missing,
                shortfall_reason=reason,
                newer_claim=workload["claim_version"] > workload["planned_version"],
            )
            await fleet.finish(
                connection,
                tenant_id=request.tenant_id,
                workload_id=request.workload_id,
                phase=finished.phase,
                shortfall_units=missing,
                shortfall_reason=reason,
            )
            told = PlacementFinished(
                tenant_id=request.tenant_id,
                workload_id=request.workload_id,
                phase=finished.phase,
                units=finished.units,
                placed_units=placed,
                active_instances=finished.active_instances,
                shortfall_units=missing,
                shortfall_reason=reason,
            )
            await outbox.add_event(connection, told, once=str(request.finish_id))
        metrics.FINISHED.labels(finished.phase).inc()
        log.info("placement_finished", workload=request.workload_id, **finished.model_dump())
        return finished


def _phase(missing: int, *, open_slots: int) -> Phase:
    if open_slots:
        return Phase.PLANNED
    return Phase.SHORTFALL if missing else Phase.PLACED


def _reason(missing: int, planned_missing: int, planned_reason: str | None) -> str | None:
    """Why units are missing: as planned, or because launches failed after the plan."""
    if missing == 0:
        return None
    return planned_reason if missing <= planned_missing else ShortfallReason.LAUNCHES_FAILED.value

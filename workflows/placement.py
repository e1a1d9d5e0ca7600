"""The promise of placement: from a claim to running instances, or to a recorded shortfall.

One workflow per workload and run. It decides (one store transaction), acquires what is new region by
region, gives back what is too much once its replacement runs, and records the outcome. Claims that
arrive meanwhile are coalesced: the next decision reads the newest. Launches that fail are planned again
elsewhere a bounded number of times; then what is missing is a shortfall, and the sweep tries later.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.placement_calls import (
        ACQUIRE,
        CLAIM_CHANGED,
        DECIDE,
        FINISH,
        PLACEMENT,
        PLAN_RELEASE,
        RELEASE,
        ClaimChanged,
        Decided,
        DecideRequest,
        Finished,
        FinishRequest,
        PlacementInput,
        RegionAcquired,
        RegionReleased,
        RegionRequest,
        ReleasePlan,
        WorkloadRequest,
    )
    from domain.ids import provider_queue
    from workflows import terms

Answer = TypeVar("Answer", RegionAcquired, RegionReleased)


class Launched(Enum):
    """How far the launches of one plan came. A region that was not reached keeps its units: planning
    again would wait for it again."""

    FULLY = auto()
    PARTLY = auto()
    NOT_REACHED = auto()


@workflow.defn(name=PLACEMENT)
class Placement:
    """Places one workload. `claim_changed` says that there is something newer to plan for."""

    def __init__(self) -> None:
        self._told_version = 0
        self._planned_version = 0
        self._poked = False

    @workflow.signal(name=CLAIM_CHANGED)
    def claim_changed(self, change: ClaimChanged | None = None) -> None:
        """A newer claim, or without a version: plan again. A signal without a body plans again too."""
        if change is None or change.claim_version is None:
            self._poked = True
        else:
            self._told_version = max(self._told_version, change.claim_version)

    @workflow.run
    async def run(self, request: PlacementInput) -> Finished:
        while True:
            finished = await self._place(request)
            if not self._something_newer(finished):
                await workflow.wait_condition(workflow.all_handlers_finished)
                return finished
            if workflow.info().is_continue_as_new_suggested():
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(request)
            workflow.upsert_search_attributes([terms.PHASE.value_set(terms.PLACING)])

    def _something_newer(self, finished: Finished) -> bool:
        return self._poked or finished.newer_claim or self._told_version > self._planned_version

    async def _place(self, request: PlacementInput) -> Finished:
        """Plan, launch and plan again while launches fail; then give back and record."""
        for attempt in range(terms.MAX_REPLANS + 1):
            decided = await self._decide(request, attempt)
            launched = await self._acquire(request, decided)
            if launched is not Launched.PARTLY or self._told_version > self._planned_version:
                break
        if decided.releases and launched is Launched.FULLY:
            await self._release(request)
        return await self._finish(request)

    async def _decide(self, request: PlacementInput, attempt: int) -> Decided:
        workflow.set_current_details(_planning(request, attempt))
        # A claim is committed before its signal is sent, so this decision reads whatever was told so far.
        # A version that does not exist, typed by a person, asks for one more plan and not for one forever.
        self._poked, self._told_version = False, 0
        decided: Decided = await workflow.execute_local_activity(
            DECIDE,
            DecideRequest(
                tenant_id=request.tenant_id,
                workload_id=request.workload_id,
                decision_id=workflow.uuid4(),
            ),
            result_type=Decided,
            start_to_close_timeout=terms.DECIDE_TIMEOUT,
            retry_policy=terms.DECIDE_RETRY,
            local_retry_threshold=terms.LOCAL_RETRY_THRESHOLD,
            summary="decide and commit a plan generation",
        )
        self._planned_version = decided.claim_version
        return decided

    async def _acquire(self, request: PlacementInput, decided: Decided) -> Launched:
        """Launch in every region at once."""
        if not decided.acquire_regions:
            return Launched.FULLY
        workflow.set_current_details(_launching(decided))
        answers = await asyncio.gather(
            *(
                self._in_region(ACQUIRE, request, region, RegionAcquired, f"launch in {region}")
                for region in decided.acquire_regions
            )
        )
        if any(answer is None for answer in answers):
            return Launched.NOT_REACHED
        return Launched.PARTLY if any(answer and answer.failures for answer in answers) else Launched.FULLY

    async def _release(self, request: PlacementInput) -> None:
        plan: ReleasePlan = await workflow.execute_activity(
            PLAN_RELEASE,
            WorkloadRequest(tenant_id=request.tenant_id, workload_id=request.workload_id),
            result_type=ReleasePlan,
            start_to_close_timeout=terms.STORE_TIMEOUT,
            heartbeat_timeout=terms.HEARTBEAT,
            retry_policy=terms.STORE_RETRY,
            summary="choose what to give back",
        )
        if plan.regions:
            workflow.set_current_details(f"giving back surplus instances in {', '.join(plan.regions)}")
        await asyncio.gather(
            *(
                self._in_region(RELEASE, request, region, RegionReleased, f"give back in {region}")
                for region in plan.regions
            )
        )

    async def _in_region(
        self, name: str, request: PlacementInput, region: str, answer: type[Answer], summary: str
    ) -> Answer | None:
        """One provider hand; None when the region could not be reached within its patience."""
        try:
            answered: Answer = await workflow.execute_activity(
                name,
                RegionRequest(
                    tenant_id=request.tenant_id,
                    partition_id=request.partition_id,
                    workload_id=request.workload_id,
                    region=region,
                ),
                task_queue=provider_queue(request.tenant_id, region),
                result_type=answer,
                start_to_close_timeout=terms.REGION_TIMEOUT,
                schedule_to_close_timeout=terms.REGION_PATIENCE,
                heartbeat_timeout=terms.HEARTBEAT,
                retry_policy=terms.REGION_RETRY,
                summary=summary,
            )
            return answered
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            workflow.logger.warning("region %s was not reached: %s", region, error.cause)
            return None

    async def _finish(self, request: PlacementInput) -> Finished:
        finished: Finished = await workflow.execute_activity(
            FINISH,
            FinishRequest(
                tenant_id=request.tenant_id, workload_id=request.workload_id, finish_id=workflow.uuid4()
            ),
            result_type=Finished,
            start_to_close_timeout=terms.STORE_TIMEOUT,
            heartbeat_timeout=terms.HEARTBEAT,
            retry_policy=terms.STORE_RETRY,
            summary="record the outcome",
        )
        workflow.set_current_details(_outcome(finished))
        workflow.upsert_search_attributes([terms.PHASE.value_set(finished.phase)])
        return finished


def _planning(request: PlacementInput, attempt: int) -> str:
    again = f", plan {attempt + 1} after failed launches" if attempt else ""
    return f"planning the newest claim of {request.workload_id}{again}"


def _launching(decided: Decided) -> str:
    missing = (
        f"; {decided.shortfall_units} units missing ({decided.shortfall_reason})"
        if decided.shortfall_units
        else ""
    )
    return (
        f"generation {decided.generation}: {decided.placed_units} of {decided.units} units"
        f" ({decided.floor_units} floor) for {decided.cost_per_hour} {decided.currency} per hour,"
        f" waiting for instances in {', '.join(decided.acquire_regions)}{missing}"
    )


def _outcome(finished: Finished) -> str:
    text = (
        f"{finished.phase}: {finished.placed_units} of {finished.units} units"
        f" on {finished.active_instances} instances"
    )
    if finished.shortfall_units:
        text += f"; {finished.shortfall_units} units missing ({finished.shortfall_reason})"
    return text

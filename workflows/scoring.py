"""The promises of scoring: every region is observed each minute, every partition ranked every five."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.placement_calls import SWEEP, SweepRequest, Swept
    from activities.scoring_calls import OBSERVE, SCORE, Observed, ObserveRequest, Scored, ScoreRequest
    from domain.ids import provider_queue
    from domain.model import Frozen
    from workflows import terms


class ScoringInput(Frozen):
    tenant_id: str
    partition_id: str


class ObservationInput(Frozen):
    tenant_id: str
    region: str


@workflow.defn(name="Scoring")
class Scoring:
    """Ranks the pools of one partition."""

    @workflow.run
    async def run(self, request: ScoringInput) -> Scored:
        scored: Scored = await workflow.execute_activity(
            SCORE,
            ScoreRequest(
                tenant_id=request.tenant_id, partition_id=request.partition_id, ranking_id=workflow.uuid4()
            ),
            result_type=Scored,
            start_to_close_timeout=terms.SCORE_TIMEOUT,
            heartbeat_timeout=terms.HEARTBEAT,
            retry_policy=terms.STORE_RETRY,
            summary=f"rank the pools of {request.partition_id}",
        )
        workflow.set_current_details(
            f"ranking {scored.version}: {scored.open_pools} of {scored.pools} pools open,"
            f" {scored.without_history} without history"
        )
        return scored


@workflow.defn(name="Observation")
class Observation:
    """Asks the provider of one region how its pools are."""

    @workflow.run
    async def run(self, request: ObservationInput) -> Observed:
        observed: Observed = await workflow.execute_activity(
            OBSERVE,
            ObserveRequest(tenant_id=request.tenant_id, region=request.region),
            task_queue=provider_queue(request.tenant_id, request.region),
            result_type=Observed,
            start_to_close_timeout=terms.OBSERVE_TIMEOUT,
            heartbeat_timeout=terms.HEARTBEAT,
            retry_policy=terms.OBSERVE_RETRY,
            summary=f"observe {request.region}",
        )
        return observed


@workflow.defn(name="PlacementSweep")
class PlacementSweep:
    """Takes up placements that were committed but not carried out, or that a change has spoilt."""

    @workflow.run
    async def run(self, request: ScoringInput) -> Swept:
        swept: Swept = await workflow.execute_activity(
            SWEEP,
            SweepRequest(
                tenant_id=request.tenant_id, partition_id=request.partition_id, limit=terms.SWEEP_LIMIT
            ),
            result_type=Swept,
            start_to_close_timeout=terms.SWEEP_TIMEOUT,
            heartbeat_timeout=terms.HEARTBEAT,
            retry_policy=terms.SWEEP_RETRY,
            summary=f"sweep {request.partition_id}",
        )
        return swept

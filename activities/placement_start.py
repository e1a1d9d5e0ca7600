"""Start a placement, or tell the one that runs: one way in for the API, the sweep and tools."""

from __future__ import annotations

from temporalio.client import Client
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from activities.placement_calls import CLAIM_CHANGED, PLACEMENT, ClaimChanged, PlacementInput
from domain.ids import partition_queue, placement_workflow_id

TENANT = SearchAttributeKey.for_keyword("ScoTenant")
PARTITION = SearchAttributeKey.for_keyword("ScoPartition")
WORKLOAD = SearchAttributeKey.for_keyword("ScoWorkload")
PHASE = SearchAttributeKey.for_keyword("ScoPhase")


async def start_placement(client: Client, request: PlacementInput, change: ClaimChanged) -> str:
    """Signal the placement of a workload and start it where none runs; returns the workflow id.

    One workload has at most one running placement; what arrives while it plans is taken into account
    before it ends.
    """
    workflow_id = placement_workflow_id(request.partition_id, request.workload_id)
    await client.start_workflow(
        PLACEMENT,
        request,
        id=workflow_id,
        task_queue=partition_queue(request.partition_id),
        start_signal=CLAIM_CHANGED,
        start_signal_args=[change],
        static_summary=f"Place {request.workload_id} in {request.partition_id}",
        search_attributes=TypedSearchAttributes(
            [
                SearchAttributePair(TENANT, request.tenant_id),
                SearchAttributePair(PARTITION, request.partition_id),
                SearchAttributePair(WORKLOAD, request.workload_id),
                SearchAttributePair(PHASE, "placing"),
            ]
        ),
    )
    return workflow_id

"""Start a placement, or tell the one that runs: one way in for the API, the sweep and tools."""

from __future__ import annotations

from temporalio.client import Client
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activities.placement_calls import CLAIM_CHANGED, PLACEMENT, ClaimChanged, PlacementInput
from domain.ids import partition_queue, placement_workflow_id
from store.licences import Place

TENANT = SearchAttributeKey.for_keyword("ScoTenant")
PARTITION = SearchAttributeKey.for_keyword("ScoPartition")
WORKLOAD = SearchAttributeKey.for_keyword("ScoWorkload")
PHASE = SearchAttributeKey.for_keyword("ScoPhase")
# A placement that ends while it is told is started instead; losing that race so often is no race.
ATTEMPTS = 5


async def start_placement(client: Client, request: PlacementInput, change: ClaimChanged) -> str:
    """Start the placement of a workload, or tell the one that runs; returns the workflow id.

    One workload has at most one running placement; what arrives while it plans is taken into account
    before it ends. A start reads the newest claim anyway, so it carries no signal of its own.
    """
    workflow_id = placement_workflow_id(request.tenant_id, request.partition_id, request.workload_id)
    for _ in range(ATTEMPTS):
        try:
            await _start(client, workflow_id, request, change)
        except WorkflowAlreadyStartedError:
            if not await _tell(client, workflow_id, change):
                continue
        return workflow_id
    raise RuntimeError(f"{workflow_id} ended and started {ATTEMPTS} times while it was told of a change")


async def _start(client: Client, workflow_id: str, request: PlacementInput, change: ClaimChanged) -> None:
    await client.start_workflow(
        PLACEMENT,
        request,
        id=workflow_id,
        task_queue=partition_queue(request.tenant_id, request.partition_id),
        static_summary=f"Place {request.workload_id} in {request.partition_id}",
        static_details=change.why or None,
        search_attributes=TypedSearchAttributes(
            [
                SearchAttributePair(TENANT, request.tenant_id),
                SearchAttributePair(PARTITION, request.partition_id),
                SearchAttributePair(WORKLOAD, request.workload_id),
                SearchAttributePair(PHASE, "placing"),
            ]
        ),
    )


async def _tell(client: Client, workflow_id: str, change: ClaimChanged) -> bool:
    """Signal the running placement; False when it ended meanwhile."""
    try:
        await client.get_workflow_handle(workflow_id).signal(CLAIM_CHANGED, change)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return True


class PlacementPoke:
    """Tells placements through one Temporal client. One that is not told is taken up by the sweep."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def __call__(self, place: Place, workload_id: str) -> None:
        await self.tell(place.tenant_id, place.partition_id, workload_id, "it lost instances")

    async def pool_drains(self, tenant_id: str, partition_id: str, workload_id: str) -> None:
        """Plan again because a pool that the workload holds units in drains."""
        await self.tell(tenant_id, partition_id, workload_id, "a pool that it is in drains")

    async def tell(self, tenant_id: str, partition_id: str, workload_id: str, why: str) -> None:
        request = PlacementInput(tenant_id=tenant_id, partition_id=partition_id, workload_id=workload_id)
        await start_placement(self._client, request, ClaimChanged(why=why))

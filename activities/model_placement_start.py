"""Start the workflow of a model placement, or tell the one that runs: one way in for API, hand and sweep."""

from __future__ import annotations

from temporalio.client import Client
from temporalio.common import SearchAttributePair, TypedSearchAttributes, WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode

from activities.drain_start import POOL
from activities.model_placement_calls import (
    MODEL_PLACEMENT,
    PLACEMENT_RELEASED,
    ModelPlacementInput,
    PlacementReleased,
    PlacementRequest,
)
from activities.placement_start import PHASE, TENANT
from domain.ids import SERVING_QUEUE, model_placement_workflow_id


async def start_model_placement(
    client: Client, request: ModelPlacementInput, queue: str = SERVING_QUEUE
) -> str:
    """Start what sees to a placement's load and end; returns the workflow id. One that runs goes on."""
    workflow_id = model_placement_workflow_id(request.tenant_id, request.placement_id)
    await client.start_workflow(
        MODEL_PLACEMENT,
        request,
        id=workflow_id,
        task_queue=queue,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        static_summary=f"Place {request.model} on {request.pool_id}",
        search_attributes=TypedSearchAttributes(
            [
                SearchAttributePair(TENANT, request.tenant_id),
                SearchAttributePair(POOL, request.pool_id),
                SearchAttributePair(PHASE, "loading"),
            ]
        ),
    )
    return workflow_id


async def tell_model_placement(client: Client, request: PlacementRequest, release: PlacementReleased) -> bool:
    """Tell the workflow of a placement that it was released; False where none runs, which is no failure."""
    workflow_id = model_placement_workflow_id(request.tenant_id, request.placement_id)
    try:
        await client.get_workflow_handle(workflow_id).signal(PLACEMENT_RELEASED, release)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return True


class ModelPlacementStarter:
    """Starts and tells workflows of model placements through one Temporal client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def start_model_placement(self, request: ModelPlacementInput) -> str:
        """The workflow id, once it is started. `RPCError` when Temporal does not answer."""
        return await start_model_placement(self._client, request)

    async def tell_model_placement(self, request: PlacementRequest) -> None:
        """`RPCError` when Temporal does not answer; that no workflow runs is none."""
        await tell_model_placement(self._client, request, PlacementReleased(why="asked for"))

"""Start the drain of a pool, or tell the one that runs: one way in for the API and the sweep."""

from __future__ import annotations

from temporalio.client import Client
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
)
from temporalio.service import RPCError, RPCStatusCode

from activities.drain_calls import POOL_CHANGED, POOL_DRAIN, PoolChanged, PoolDrainInput
from activities.placement_start import PHASE, TENANT
from domain.ids import SERVING_QUEUE, pool_drain_workflow_id

POOL = SearchAttributeKey.for_keyword("ScoPool")


async def start_drain(
    client: Client, request: PoolDrainInput, change: PoolChanged | None = None, queue: str = SERVING_QUEUE
) -> str:
    """Start the drain of a pool with the worker of serving pools; returns the workflow id.

    One that runs already goes on; with `change` it looks at the pool at once.
    """
    workflow_id = pool_drain_workflow_id(request.tenant_id, request.pool_id)
    await client.start_workflow(
        POOL_DRAIN,
        request,
        id=workflow_id,
        task_queue=queue,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        start_signal=POOL_CHANGED if change is not None else None,
        start_signal_args=[change] if change is not None else [],
        static_summary=f"Drain {request.pool_id}",
        search_attributes=TypedSearchAttributes(
            [
                SearchAttributePair(TENANT, request.tenant_id),
                SearchAttributePair(POOL, request.pool_id),
                SearchAttributePair(PHASE, "draining"),
            ]
        ),
    )
    return workflow_id


async def tell_drain(client: Client, tenant_id: str, pool_id: str, change: PoolChanged) -> bool:
    """Tell the drain of a pool that the pool changed; False where none runs, which is no failure."""
    handle = client.get_workflow_handle(pool_drain_workflow_id(tenant_id, pool_id))
    try:
        await handle.signal(POOL_CHANGED, change)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return True

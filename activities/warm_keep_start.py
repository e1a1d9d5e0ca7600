"""Start the keeping of a pool, or tell the one that runs: one way in for the API and the chore."""

from __future__ import annotations

from temporalio.client import Client
from temporalio.common import SearchAttributePair, TypedSearchAttributes, WorkflowIDConflictPolicy

from activities.drain_start import POOL
from activities.placement_start import PHASE, TENANT
from activities.warm_calls import WANTED, WARM_KEEP, Wanted, WarmKeepInput
from domain.ids import SERVING_QUEUE, warm_keep_workflow_id

# What its phase is until the first look.
UNSEEN = "unseen"


async def start_warm_keep(
    client: Client, request: WarmKeepInput, wanted: Wanted | None = None, queue: str = SERVING_QUEUE
) -> str:
    """Start what keeps a pool warm; returns the workflow id. One that runs goes on.

    With `wanted` it looks at the pool at once.
    """
    workflow_id = warm_keep_workflow_id(request.tenant_id, request.pool_id)
    await client.start_workflow(
        WARM_KEEP,
        request,
        id=workflow_id,
        task_queue=queue,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        start_signal=WANTED if wanted is not None else None,
        start_signal_args=[wanted] if wanted is not None else [],
        static_summary=f"Keep {request.pool_id} warm",
        search_attributes=TypedSearchAttributes(
            [
                SearchAttributePair(TENANT, request.tenant_id),
                SearchAttributePair(POOL, request.pool_id),
                SearchAttributePair(PHASE, UNSEEN),
            ]
        ),
    )
    return workflow_id

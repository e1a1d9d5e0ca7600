"""Telling a placement that its claim changed, without making the caller wait for a Temporal that is down."""

from __future__ import annotations

import asyncio

import structlog
from temporalio.service import RPCError

from api.claim_view import Launch
from api.deps import Deps
from domain.ids import placement_workflow_id

START_SECONDS = 3.0
RETRY_SOON = {"Retry-After": "2"}
# Temporal's client raises RuntimeError when it cannot connect at all.
NOT_STARTED = (RPCError, RuntimeError, OSError, TimeoutError)
log = structlog.get_logger("api")


async def launch(
    deps: Deps, tenant_id: str, partition_id: str, workload_id: str, claim_version: int | None
) -> Launch:
    """Start a placement, or leave it to the sweep that looks for claims without a plan."""
    workflow_id = placement_workflow_id(tenant_id, partition_id, workload_id)
    try:
        async with asyncio.timeout(START_SECONDS):
            workflow_id = await deps.starter.start(tenant_id, partition_id, workload_id, claim_version)
    except NOT_STARTED as error:
        log.warning("placement_queued", workload=workload_id, error=type(error).__name__)
        return Launch(workflow_id=workflow_id, started="queued")
    return Launch(workflow_id=workflow_id, started=True)

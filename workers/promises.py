"""Promises that are always waited for: started with the worker, and again should a person end them."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import structlog
from temporalio.client import Client
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
)
from temporalio.service import RPCError

from activities.reconcile_calls import RECONCILE, WATCH_REGIONS, ReconcileInput, WatchRegions
from domain.ids import partition_queue, reconcile_workflow_id
from workers.settings import WorkerSettings

ENSURE_EVERY_SECONDS = 60.0
TENANT = SearchAttributeKey.for_keyword("ScoTenant")
PARTITION = SearchAttributeKey.for_keyword("ScoPartition")
log = structlog.get_logger("promises")


async def keep_reconciling(client: Client, settings: WorkerSettings, stop: asyncio.Event) -> None:
    """See to it, until told to stop, that every partition of this process is reconciled."""
    told: set[str] = set()
    while not stop.is_set():
        for partition_id in settings.partitions:
            try:
                await _ensure(client, settings, partition_id, tell=partition_id not in told)
                told.add(partition_id)
            except RPCError as error:
                log.warning("reconcile_not_started", partition=partition_id, problem=str(error))
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), ENSURE_EVERY_SECONDS)


async def _ensure(client: Client, settings: WorkerSettings, partition_id: str, *, tell: bool) -> None:
    """Start the reconcile of a partition; with `tell` one that runs is told of this process's regions."""
    await client.start_workflow(
        RECONCILE,
        ReconcileInput(
            tenant_id=settings.tenant_id, partition_id=partition_id, regions=tuple(settings.regions)
        ),
        id=reconcile_workflow_id(settings.tenant_id, partition_id),
        task_queue=partition_queue(settings.tenant_id, partition_id),
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        start_signal=WATCH_REGIONS if tell else None,
        start_signal_args=[WatchRegions(regions=tuple(settings.regions))] if tell else [],
        static_summary=f"Compare the fleet of {partition_id} with what exists",
        search_attributes=TypedSearchAttributes(
            [
                SearchAttributePair(TENANT, settings.tenant_id),
                SearchAttributePair(PARTITION, partition_id),
            ]
        ),
    )

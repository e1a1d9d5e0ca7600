"""Start an audit."""

from __future__ import annotations

from contextlib import suppress

from temporalio.client import Client
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.exceptions import WorkflowAlreadyStartedError

from activities.audit_calls import AUDIT, AuditInput
from activities.placement_start import PARTITION, TENANT
from domain.ids import audit_workflow_id, partition_queue


async def start_audit(client: Client, request: AuditInput, served_by: str) -> str:
    """Start an audit with the worker of partition `served_by`; returns the workflow id.

    Starting one that runs or has ended changes nothing.
    """
    workflow_id = audit_workflow_id(request.audit_id)
    attributes = [SearchAttributePair(TENANT, request.tenant_id)]
    if request.partition_id is not None:
        attributes.append(SearchAttributePair(PARTITION, request.partition_id))
    with suppress(WorkflowAlreadyStartedError):
        await client.start_workflow(
            AUDIT,
            request,
            id=workflow_id,
            task_queue=partition_queue(request.tenant_id, served_by),
            static_summary=f"Audit {request.partition_id or 'everything'}",
            search_attributes=TypedSearchAttributes(attributes),
        )
    return workflow_id

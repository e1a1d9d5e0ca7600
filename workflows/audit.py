"""The promise of an audit: every region is looked at, and one report is kept."""

from __future__ import annotations

import asyncio

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.audit_calls import (
        AUDIT,
        AUDIT_REGION,
        CLOSE_AUDIT,
        OPEN_AUDIT,
        AuditClosed,
        AuditInput,
        AuditOpened,
        AuditRegionRequest,
        CloseAuditRequest,
    )
    from domain.audit import AuditReport, failed, merged
    from domain.ids import provider_queue
    from workflows import terms


@workflow.defn(name=AUDIT)
class Audit:
    """Audits everything, or one partition. A region that was not seen makes it a failed one."""

    @workflow.run
    async def run(self, request: AuditInput) -> AuditClosed:
        opened: AuditOpened = await workflow.execute_activity(
            OPEN_AUDIT,
            request,
            result_type=AuditOpened,
            start_to_close_timeout=terms.STORE_TIMEOUT,
            heartbeat_timeout=terms.HEARTBEAT,
            retry_policy=terms.STORE_RETRY,
            summary="record that the audit runs",
        )
        workflow.set_current_details(f"looking at {', '.join(opened.regions) or 'no region'}")
        reports = await asyncio.gather(*(self._in_region(request, region) for region in opened.regions))
        return await self._close(request, merged(reports))

    async def _in_region(self, request: AuditInput, region: str) -> AuditReport:
        try:
            report: AuditReport = await workflow.execute_activity(
                AUDIT_REGION,
                AuditRegionRequest(
                    tenant_id=request.tenant_id, region=region, partition_id=request.partition_id
                ),
                task_queue=provider_queue(request.tenant_id, region),
                result_type=AuditReport,
                start_to_close_timeout=terms.AUDIT_TIMEOUT,
                schedule_to_close_timeout=terms.AUDIT_PATIENCE,
                heartbeat_timeout=terms.HEARTBEAT,
                retry_policy=terms.AUDIT_RETRY,
                summary=f"audit {region}",
            )
            return report
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            return failed(region, _reason(error))

    async def _close(self, request: AuditInput, report: AuditReport) -> AuditClosed:
        closed: AuditClosed = await workflow.execute_activity(
            CLOSE_AUDIT,
            CloseAuditRequest(audit=request, report=report),
            result_type=AuditClosed,
            start_to_close_timeout=terms.STORE_TIMEOUT,
            heartbeat_timeout=terms.HEARTBEAT,
            retry_policy=terms.STORE_RETRY,
            summary="keep the report",
        )
        workflow.set_current_details(_outcome(closed, report))
        return closed


def _reason(error: ActivityError) -> str:
    if isinstance(error.cause, ApplicationError):
        return error.cause.message
    return f"no worker of the region answered within {terms.AUDIT_PATIENCE}"


def _outcome(closed: AuditClosed, report: AuditReport) -> str:
    counts = report.counts
    missing = "".join(f"; {one.region}: {one.reason}" for one in report.failures)
    return (
        f"{closed.status}: findings {closed.findings}; looked at servers {counts.servers},"
        f" slots {counts.slots}, workloads {counts.workloads}{missing}"
    )

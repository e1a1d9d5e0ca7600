"""Hands of an audit that only say what they would have seen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.audit_calls import (
    AUDIT_REGION,
    CLOSE_AUDIT,
    OPEN_AUDIT,
    AuditClosed,
    AuditInput,
    AuditOpened,
    AuditRegionRequest,
    CloseAuditRequest,
)
from domain.audit import AuditCounts, AuditReport, Finding, FindingKind

FINDING = Finding(kind=FindingKind.LOST, subject="b-1-001", problem="it is gone", what_to_do="Look.")


class AuditHands:
    """Every region has ten servers; in a `spoilt` one a server is lost, a `silent` one does not answer.

    `called` is told of every call, and may hold it.
    """

    def __init__(self, regions: Sequence[str], called: Callable[[str, Any], Awaitable[None]]) -> None:
        self._regions = tuple(regions)
        self._called = called
        self.spoilt: frozenset[str] = frozenset()
        self.silent: frozenset[str] = frozenset()
        self.kept: list[AuditReport] = []

    @activity.defn(name=OPEN_AUDIT)
    async def open_audit(self, request: AuditInput) -> AuditOpened:
        await self._called(OPEN_AUDIT, request)
        return AuditOpened(regions=self._regions)

    @activity.defn(name=AUDIT_REGION)
    async def audit_region(self, request: AuditRegionRequest) -> AuditReport:
        await self._called(AUDIT_REGION, request)
        if request.region in self.silent:
            raise ApplicationError("HTTP 503", type="unavailable", non_retryable=True)
        findings = (FINDING,) if request.region in self.spoilt else ()
        return AuditReport(
            regions=(request.region,),
            counts=AuditCounts(servers=10, slots=10, workloads=1),
            findings=findings,
            findings_by_kind={one.kind: 1 for one in findings},
        )

    @activity.defn(name=CLOSE_AUDIT)
    async def close_audit(self, request: CloseAuditRequest) -> AuditClosed:
        await self._called(CLOSE_AUDIT, request)
        self.kept.append(request.report)
        return AuditClosed(status=request.report.verdict, findings=request.report.findings_total)

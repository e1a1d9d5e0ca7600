"""What others say of pools, handed to the rows of the tenant that says it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from uuid import uuid4

import structlog
from grpc import StatusCode

from activities.reporting import report_endpoint, report_utilization
from api.grpc.batches import Verdict
from api.grpc.calls import Refused
from api.grpc.deadline import ends_in
from api.grpc.ports import EndpointReported
from api.grpc.reading import EndpointProblem
from api.grpc.refusals import refusal_of, unforeseen
from domain.policy import Policy
from domain.serving.utilization import ReportRefusal, UtilizationReport, refusal_of_time
from store.engine import Engine, of_tenant

# Nobody waits for a batch of reports, and the next one comes soon.
WRITE_SECONDS = 5.0
log = structlog.get_logger("grpc")


class StoreReporting:
    """Reports as rows. `policy` is asked for each, so that changed figures count from the next one on."""

    def __init__(self, engine: Engine, policy: Callable[[], Policy], now: Callable[[], datetime]) -> None:
        self._engine = engine
        self._policy = policy
        self._now = now

    async def utilization(self, tenant_id: str, reports: Sequence[UtilizationReport]) -> Sequence[Verdict]:
        """Says of each report why it was refused, or None. Where the store is away it refuses all of them."""
        terms, at = self._policy().utilization, self._now()
        own = of_tenant(self._engine, tenant_id)
        try:
            with ends_in(WRITE_SECONDS):
                async with asyncio.timeout(WRITE_SECONDS):
                    done = await report_utilization(own, tenant_id, reports, at, terms=terms)
        except Exception as error:
            return [_not_written(tenant_id, error)] * len(reports)
        of_pools = {one.pool_id: one for one in done.refused if one.reason is not ReportRefusal.FUTURE}

        def verdict(report: UtilizationReport) -> Verdict:
            problem = refusal_of_time(report.reported_at, at, terms)
            if problem is not None:
                return Refused(StatusCode.OUT_OF_RANGE, problem, reason=ReportRefusal.FUTURE.value)
            refused = of_pools.get(report.pool_id)
            if refused is None:
                return None
            return Refused(StatusCode.FAILED_PRECONDITION, refused.text, reason=refused.reason.value)

        return [verdict(report) for report in reports]

    async def endpoint(self, tenant_id: str, seen: EndpointProblem) -> EndpointReported:
        """Keep a tenant from a pool for a while. LookupError where it sees no such pool."""
        terms = self._policy().health
        kept = await report_endpoint(
            of_tenant(self._engine, tenant_id),
            tenant_id,
            seen.pool.tenant_id,
            seen.pool.pool_id,
            seen.problem,
            self._now(),
            terms=terms,
        )
        return EndpointReported(kept, int(terms.report_hold_seconds))


def _not_written(tenant_id: str, error: Exception) -> Refused:
    """A batch whose transaction failed as a whole."""
    request_id = uuid4().hex
    log.error("reports_not_written", tenant=tenant_id, request_id=request_id, error=type(error).__name__)
    return refusal_of(error) or unforeseen(request_id)

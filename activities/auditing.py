"""The hand that audits: it reads the records and lists the servers, and changes neither.

A control plane at work changes both while they are read. So whatever looks wrong is looked at again
after the settle time, and counts only if it is still there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog
from prometheus_client import Gauge
from temporalio import activity

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
from activities.errors import application_error
from activities.ports import Catalog, Compute, ProviderError, Server
from domain.acquisition import AcquisitionTerms
from domain.audit import (
    AuditReport,
    AuditTerms,
    Facts,
    Finding,
    FindingKind,
    InFlight,
    ServerFact,
    Verdict,
    failed,
    merged,
    report_of,
)
from domain.audit import audit as judge
from store import audits
from store.audit_facts import Scope, read_facts, regions_of
from store.engine import Engine

FINDINGS = Gauge("sco_audit_findings", "What the last audit of everything found", ["kind"])
CLEAN_AT = Gauge("sco_audit_last_clean_timestamp_seconds", "When the last clean audit of everything ended")
SETTLE_SECONDS = AcquisitionTerms().settle_seconds
# Servers that a list does not show are asked for one by one, so that a tag that was taken away is not
# taken for a loss. Beyond this many the list is believed.
FINDS_PER_LOOK = 50
# Longer than a workflow waits for its regions.
GIVEN_UP_AFTER = timedelta(hours=1)
PARTITION_KEY, TENANT_KEY = "sco_partition", "sco_tenant"
log = structlog.get_logger("auditing")


class _Seen(NamedTuple):
    """What one look saw."""

    facts: Facts
    findings: tuple[Finding, ...]
    in_flight: InFlight


async def audit(
    engine: Engine,
    compute: Compute,
    *,
    tenant_id: str,
    partitions: tuple[str, ...] | None,
    regions: Sequence[str],
    now: Callable[[], datetime],
    settle_seconds: float = SETTLE_SECONDS,
    catalog: Catalog | None = None,
) -> AuditReport:
    """Audit some partitions, or with None all, in some regions. A region that does not answer fails it."""
    auditor = Auditor(engine, compute, now=now, settle_seconds=settle_seconds, catalog=catalog)
    reports = []
    for region in regions:
        try:
            reports.append(await auditor.audit_region(Scope(tenant_id, (region,), partitions)))
        except ProviderError as error:
            reports.append(failed(region, str(error)))
    return merged(reports)


class Auditor:
    """Compares the records of regions with their servers. `catalog` counts the servers of others."""

    def __init__(
        self,
        engine: Engine,
        compute: Compute,
        *,
        now: Callable[[], datetime],
        settle_seconds: float = SETTLE_SECONDS,
        catalog: Catalog | None = None,
    ) -> None:
        self._engine = engine
        self._compute = compute
        self._catalog = catalog
        self._now = now
        self._terms = AuditTerms(settle_seconds=settle_seconds)

    async def audit_region(self, scope: Scope) -> AuditReport:
        """The report of the one region in `scope`. `ProviderError` where its servers cannot be listed."""
        assert scope.regions is not None, "a provider answers for one region at a time"
        (region,) = scope.regions
        seen = await self._look(scope, region)
        if seen.findings:
            suspected = {(one.kind, one.subject) for one in seen.findings}
            await asyncio.sleep(self._terms.settle_seconds)
            seen = await self._look(scope, region)
            standing = tuple(one for one in seen.findings if (one.kind, one.subject) in suspected)
            seen = seen._replace(findings=standing)
        return report_of(scope.regions, *seen)

    async def _look(self, scope: Scope, region: str) -> _Seen:
        listed = await asyncio.to_thread(self._compute.list_managed, region)
        foreign = await asyncio.to_thread(self._foreign, region, len(listed))
        ours = [one for one in listed if one.metadata.get(TENANT_KEY, scope.tenant_id) == scope.tenant_id]
        servers = [server_fact(region, one) for one in ours]
        facts = await read_facts(self._engine, scope, servers, self._now())
        unlisted = await asyncio.to_thread(self._unlisted, region, facts)
        facts = replace(facts, servers=(*facts.servers, *unlisted), foreign=foreign)
        # Tens of thousands of servers take half a second, in which other hands of this worker go on.
        return _Seen(facts, *await asyncio.to_thread(judge, facts, self._terms))

    def _unlisted(self, region: str, facts: Facts) -> list[ServerFact]:
        """Servers that slots hold and the list does not show, as far as they exist."""
        listed = {one.server_id for one in facts.servers}
        missing = [
            slot.server_id
            for slot in facts.slots
            if slot.is_live and slot.region == region and slot.server_id not in listed
        ]
        named = [server_id for server_id in missing if server_id is not None][:FINDS_PER_LOOK]
        found = (self._compute.find(region, server_id) for server_id in named)
        return [server_fact(region, one) for one in found if one is not None]

    def _foreign(self, region: str, listed: int) -> int | None:
        """How many servers of the project are not ours, as its quota counts them."""
        if self._catalog is None:
            return None
        return max(0, self._catalog.quota(region).instances_used - listed)


def server_fact(region: str, one: Server) -> ServerFact:
    """A server as the rules see it."""
    return ServerFact(
        server_id=one.server_id,
        region=region,
        status=one.status,
        tags=frozenset(one.tags),
        batch_key=one.batch_key,
        pool_id=one.pool_id,
        workload_id=one.workload_id,
        partition_id=one.metadata.get(PARTITION_KEY),
        fault=one.fault,
    )


class AuditingActivities:
    """Audits the regions that one provider serves."""

    def __init__(
        self,
        engine: Engine,
        compute: Compute,
        *,
        now: Callable[[], datetime],
        settle_seconds: float = SETTLE_SECONDS,
        catalog: Catalog | None = None,
    ) -> None:
        self._auditor = Auditor(engine, compute, now=now, settle_seconds=settle_seconds, catalog=catalog)

    @activity.defn(name=AUDIT_REGION)
    async def audit_region(self, request: AuditRegionRequest) -> AuditReport:
        """Compare the records of one region with its servers."""
        partitions = None if request.partition_id is None else (request.partition_id,)
        try:
            return await self._auditor.audit_region(Scope(request.tenant_id, (request.region,), partitions))
        except ProviderError as error:
            raise application_error(error) from error


class AuditRecordsActivities:
    """Store-backed beginning and end of an audit."""

    def __init__(self, engine: Engine, *, now: Callable[[], datetime]) -> None:
        self._engine = engine
        self._now = now

    @activity.defn(name=OPEN_AUDIT)
    async def open_audit(self, request: AuditInput) -> AuditOpened:
        """Record that the audit runs, end those that were given up, and say where to look."""
        now = self._now()
        async with self._engine.begin() as connection:
            await audits.add_audit(connection, request.tenant_id, request.audit_id, request.partition_id, now)
            await audits.give_up(connection, request.tenant_id, now - GIVEN_UP_AFTER, now)
        return AuditOpened(regions=await regions_of(self._engine, request.tenant_id))

    @activity.defn(name=CLOSE_AUDIT)
    async def close_audit(self, request: CloseAuditRequest) -> AuditClosed:
        """Keep the report."""
        asked, report = request.audit, request.report
        async with self._engine.begin() as connection:
            await audits.end_audit(connection, asked.tenant_id, asked.audit_id, report, self._now())
        if asked.partition_id is None:
            _publish(report, self._now())
        log.info(
            "audit_finished",
            audit=str(asked.audit_id),
            partition=asked.partition_id,
            status=report.verdict,
            findings=report.findings_total,
            kinds=report.findings_by_kind,
            failures={one.region: one.reason for one in report.failures},
            **report.counts.model_dump(),
        )
        return AuditClosed(status=report.verdict, findings=report.findings_total)


def _publish(report: AuditReport, now: datetime) -> None:
    """An audit that failed says nothing of what it did not see, so the gauges stay."""
    if report.verdict is Verdict.FAILED:
        return
    for kind in FindingKind:
        FINDINGS.labels(kind.value).set(report.findings_by_kind.get(kind, 0))
    if report.verdict is Verdict.CLEAN:
        CLEAN_AT.set(now.timestamp())

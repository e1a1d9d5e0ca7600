"""Audits: whether what is recorded and what exists at the provider are one world."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID, uuid4

from fastapi import APIRouter, Path, Query, Request, Response, status

from api import problems
from api.deps import Deps, Tenant, Uses
from api.idempotency import IdempotencyKey, keyed, once
from api.launching import NOT_STARTED, RETRY_SOON, START_SECONDS
from api.paging import PageQuery, after_of, cut, listing_key
from api.problems import Problem
from api.shapes import Body, View, json_text
from domain.audit import AuditReport, FindingKind
from domain.ids import audit_workflow_id
from domain.pool import Name
from store import audits, overview
from store.audits import StoredAudit
from store.engine import Connection
from store.idempotency import Answer
from store.overview import PartitionRanking
from store.tables import AuditStatus

AUDITS = "/factory/audits"
router = APIRouter(prefix=AUDITS, tags=["audits"])
AuditPath = Annotated[UUID, Path(alias="auditId", description="The id of an audit")]
NEVER = datetime.min.replace(tzinfo=UTC)


class AuditBody(Body):
    """What to audit: one partition, or everything where none is named."""

    partition_id: Name | None = None


class CountsView(View):
    """What was looked at. `foreign` servers are not ours; null where they were not counted."""

    servers: int
    slots: int
    workloads: int
    foreign: int | None
    servers_in_flight: int
    workloads_in_flight: int
    gaps: int


class RegionFailureView(View):
    """A region that could not be looked at."""

    region: str
    reason: str


class FindingView(View):
    """One thing that is wrong. `subject` is the id of the pool, workload, batch, slot or server."""

    kind: FindingKind
    subject: str
    problem: str
    what_to_do: str
    region: str | None
    workload_id: str | None
    pool_id: str | None
    server_ids: tuple[str, ...]


class AuditSummary(View):
    """An audit, and how many findings of which kind it has. `failed` means that not all was seen."""

    audit_id: UUID
    partition_id: str | None
    status: AuditStatus
    started_at: datetime
    finished_at: datetime | None
    workflow_id: str
    temporal_url: str | None
    regions: tuple[str, ...]
    failures: tuple[RegionFailureView, ...]
    counts: CountsView
    findings_total: int
    findings_by_kind: dict[FindingKind, int]
    notes: tuple[str, ...]


class AuditView(AuditSummary):
    """An audit in full; `findings` are the first thousand of them."""

    findings: tuple[FindingView, ...]


class AuditPage(View):
    items: list[AuditSummary]
    next_page_token: str | None


@router.post("", status_code=status.HTTP_202_ACCEPTED, response_model=AuditSummary)
async def start_audit(
    *,
    body: AuditBody | None = None,
    request: Request,
    deps: Uses,
    tenant_id: Tenant,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Start an audit. It changes nothing; its report is at the Location that is answered."""
    partition_id = body.partition_id if body else None
    key = keyed(request, tenant_id, idempotency_key, await request.body())

    async def work(connection: Connection) -> Answer:
        served_by = await _served_by(connection, tenant_id, partition_id)
        audit_id, now = uuid4(), deps.now()
        await audits.add_audit(connection, tenant_id, audit_id, partition_id, now)
        await _start(deps, tenant_id, audit_id, partition_id, served_by)
        running = StoredAudit(audit_id, partition_id, AuditStatus.RUNNING, AuditReport(), now, None)
        location = {"Location": f"{AUDITS}/{audit_id}"}
        return Answer(status.HTTP_202_ACCEPTED, json_text(audit_summary(running, deps)), location)

    return await once(deps, key, work)


async def _served_by(connection: Connection, tenant_id: str, partition_id: str | None) -> str:
    """The partition whose worker runs the audit: its own, or the one that was last seen to work."""
    known = await overview.partition_rankings(connection, tenant_id)
    if not known:
        raise Problem(problems.UNKNOWN_PARTITION, "no partition exists, so no worker can run an audit")
    if partition_id is None:
        return max(known, key=_ranked_at).partition_id
    if partition_id not in {one.partition_id for one in known}:
        names = ", ".join(one.partition_id for one in known)
        raise Problem(problems.UNKNOWN_PARTITION, f"no partition {partition_id!r}: there are {names}")
    return partition_id


def _ranked_at(one: PartitionRanking) -> datetime:
    return one.ranked_at or NEVER


async def _start(
    deps: Deps, tenant_id: str, audit_id: UUID, partition_id: str | None, served_by: str
) -> None:
    """Without Temporal nothing is stored, so that the request may be repeated."""
    try:
        async with asyncio.timeout(START_SECONDS):
            await deps.starter.start_audit(tenant_id, audit_id, partition_id, served_by)
    except NOT_STARTED:
        detail = "Temporal cannot be reached, so no audit was started"
        raise Problem(problems.NOT_READY, detail, headers=RETRY_SOON) from None


@router.get("")
async def list_audits(query: Annotated[PageQuery, Query()], deps: Uses, tenant_id: Tenant) -> AuditPage:
    """Audits, newest first, without their findings, a page at a time."""
    listing = listing_key("audits")
    before = _before(after_of(query.page_token, listing))
    async with deps.engine.connect() as connection:
        found = await audits.audits_before(connection, tenant_id, before, query.page_size + 1)
    page, token = cut(found, query, listing, lambda one: f"{one.started_at.isoformat()} {one.audit_id}")
    return AuditPage(items=summaries(page, deps), next_page_token=token)


def _before(after: str) -> tuple[datetime, UUID] | None:
    if not after:
        return None
    moment, _, audit_id = after.partition(" ")
    try:
        return datetime.fromisoformat(moment).astimezone(UTC), UUID(audit_id)
    except (ValueError, OverflowError):
        raise Problem(problems.BAD_PAGE_TOKEN, "the pageToken is not one of ours") from None


@router.get("/{auditId}")
async def get_audit(audit_id: AuditPath, deps: Uses, tenant_id: Tenant) -> AuditView:
    """One audit with its findings."""
    async with deps.engine.connect() as connection:
        return audit_view(await audits.find_audit(connection, tenant_id, audit_id), deps)


def summaries(found: Sequence[StoredAudit], deps: Deps) -> list[AuditSummary]:
    return [audit_summary(one, deps) for one in found]


def audit_summary(one: StoredAudit, deps: Deps) -> AuditSummary:
    return AuditSummary.model_validate(_told(one, deps))


def audit_view(one: StoredAudit, deps: Deps) -> AuditView:
    return AuditView.model_validate(_told(one, deps))


def _told(one: StoredAudit, deps: Deps) -> dict[str, object]:
    workflow_id = audit_workflow_id(one.audit_id)
    return {
        **one._asdict(),
        **one.report.model_dump(),
        "findings_total": one.report.findings_total,
        "workflow_id": workflow_id,
        "temporal_url": deps.workflow_url(workflow_id),
    }

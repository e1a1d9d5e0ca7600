"""The screens: overview, regions, workloads, "why these pools?". The same data as the API gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse

from activities.explaining import explain_decision, find_generation
from activities.replaying import Replay, replay_placement
from api.contracts import cap_warnings, terms_under
from api.deps import Tenant, Uses, WorkloadPath
from api.explanation_view import CandidateView, explanation_view
from api.placements import generation_view, placement_view
from api.regions import region_view
from api.status import status_view
from api.web.forms import Form, WhyForm, rows_of, sheet
from api.web.render import page
from api.workloads import WorkloadSummary, summary, workload_view
from domain.contract import contract_warnings
from domain.pool import PoolState, PurchaseModel
from domain.reasons import Reason
from store import fleet, generations, overview, workloads
from store.engine import Connection
from store.regions import list_regions

router = APIRouter()
ALL = 100_000
GENERATIONS_SHOWN = 50


@router.get("/")
async def show_overview(request: Request, deps: Uses, tenant_id: Tenant) -> HTMLResponse:
    """Everything in counts, and the workloads that fall short."""
    status = await status_view(deps, tenant_id)
    async with deps.engine.connect() as connection:
        found = await _all_workloads(connection, tenant_id)
    short = [one for one in found if one.shortfall is not None]
    totals = {
        model: {one.state: one.pools for one in status.pools if one.purchase_model is model}
        for model in PurchaseModel
    }
    return page(request, "overview.html", status=status, totals=totals, states=list(PoolState), short=short)


async def _all_workloads(connection: Connection, tenant_id: str) -> list[WorkloadSummary]:
    return [summary(row) for row in await workloads.list_workloads(connection, tenant_id, limit=ALL)]


@router.get("/ui/regions")
async def show_regions(request: Request, deps: Uses, tenant_id: Tenant) -> HTMLResponse:
    """Every region of the provider: whether it is well, what its quota leaves, and who may act there."""
    async with deps.snapshot() as connection:
        found = await list_regions(connection, tenant_id, limit=ALL)
    now = deps.now()
    return page(request, "regions.html", regions=[region_view(rows, now) for rows in found], now=now)


@router.get("/ui/workloads")
async def show_workloads(
    request: Request, form: Annotated[Form, Query()], deps: Uses, tenant_id: Tenant
) -> HTMLResponse:
    """Every workload and how far its claim is."""
    async with deps.engine.connect() as connection:
        found = await _all_workloads(connection, tenant_id)
    return page(
        request,
        "workloads.html",
        form=form,
        rows=rows_of(form.page, found),
        sheet=sheet(form.page, len(found)),
        now=deps.now(),
    )


@router.get("/ui/workloads/{workloadId}")
async def show_workload(
    request: Request, workload_id: WorkloadPath, deps: Uses, tenant_id: Tenant
) -> HTMLResponse:
    """One workload: claim, plan, and its fleet by pool, group and hall against the caps."""
    async with deps.snapshot() as connection:
        view = await workload_view(connection, deps, tenant_id, workload_id)
        placement = await placement_view(connection, deps, tenant_id, workload_id)
        plans = await generations.generations_before(
            connection, tenant_id, workload_id, before=None, limit=GENERATIONS_SHOWN
        )
        contract = await fleet.contract_of(connection, tenant_id, workload_id)
        existing = await overview.count_reclaimable(connection, tenant_id)
    return page(
        request,
        "workload.html",
        workload=view,
        placement=placement,
        plans=[generation_view(row) for row in plans],
        contract=contract,
        warnings=[*cap_warnings(terms_under(contract, deps), *existing), *contract_warnings(contract)],
        now=deps.now(),
    )


@router.get("/ui/placements/{workloadId}/why")
async def show_why(
    request: Request,
    workload_id: WorkloadPath,
    form: Annotated[WhyForm, Query()],
    deps: Uses,
    tenant_id: Tenant,
) -> HTMLResponse:
    """Why this pool: every pool of one decision with its reason."""
    async with deps.snapshot() as connection:
        await workloads.find_workload(connection, tenant_id, workload_id)
        decision_id = await find_generation(connection, tenant_id, workload_id, form.generation)
        decided = await explain_decision(connection, tenant_id, decision_id)
        plans = await generations.generations_before(
            connection, tenant_id, workload_id, before=None, limit=GENERATIONS_SHOWN
        )
        replayed: Replay | None = None
        if form.replay:
            replayed = await replay_placement(connection, tenant_id, workload_id, decided.generation)
    view = explanation_view(decided)
    found = candidates_of(view.candidates, form)
    return page(
        request,
        "why.html",
        decision=view,
        form=form,
        rows=rows_of(form.page, found),
        sheet=sheet(form.page, len(found)),
        generations=sorted({view.generation, *(row["generation"] for row in plans)}, reverse=True),
        reasons=list(Reason),
        replayed=replayed,
    )


def candidates_of(candidates: Sequence[CandidateView], form: WhyForm) -> list[CandidateView]:
    """The candidates that a person asked to see."""
    return [
        one
        for one in candidates
        if form.search.lower() in f"{one.pool_id} {one.group_id}".lower()
        and form.reason in (None, one.reason)
        and (form.show == "all" or one.kept is (form.show == "kept"))
    ]

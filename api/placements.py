"""Placements: how far they are, which plans they made, and why."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import sqlalchemy as sa
from fastapi import APIRouter, Query, status

from activities.explaining import explain_decision, find_generation
from activities.replaying import replay_placement
from api import problems
from api.claim_view import Launch
from api.deps import Deps, Tenant, Uses, WorkloadPath
from api.explanation_view import ExplanationView, Wanted, explanation_view
from api.launching import RETRY_SOON, launch
from api.paging import PageQuery, after_of, cut, listing_key
from api.problems import Problem
from api.shapes import Body, Generation, MoneyView, View, money
from api.workloads import ShortfallView, shortfall_of
from domain.claim import WorkloadId
from domain.ids import placement_workflow_id
from domain.pool import PoolId
from domain.reasons import Reason
from store import fleet, generations, workloads
from store.engine import Connection
from store.tables import Phase

router = APIRouter(prefix="/placements", tags=["placements"])


class PlaceBody(Body):
    """Which workload to place again."""

    workload_id: WorkloadId


class PlaceAnswer(View):
    """The placement that was told to look at its workload again."""

    workload_id: str
    claim_version: int
    placement: Launch


class PlacementView(View):
    """How far the placement of a workload is. `units` is what is claimed, `placedUnits` what is planned."""

    workload_id: str
    workflow_id: str
    phase: Phase
    claim_version: int
    planned_version: int
    generation: int
    units: int
    placed_units: int
    active_instances: int
    instances_by_state: dict[str, int]
    shortfall: ShortfallView | None
    updated_at: datetime
    temporal_url: str | None


class GenerationView(View):
    """One plan generation with what it costs and how it spreads."""

    generation: int
    decision_id: UUID
    ranking_id: UUID
    claim_version: int
    outcome: str
    units: int
    placed_units: int
    floor_units: int
    pool_cap_units: int
    group_cap_units: int
    floor_spread_met: bool
    hall_spread_met: bool
    cost_per_hour: MoneyView
    depth_premium_per_hour: MoneyView
    decided_at: datetime
    committed_at: datetime


class GenerationPage(View):
    items: list[GenerationView]
    next_page_token: str | None


class ExplanationQuery(Body):
    """Which decision, and which of its candidates."""

    generation: Generation | None = None
    pool_id: PoolId | None = None
    reason: Reason | None = None


class ReplayQuery(Body):
    """Which decision; the newest unless one is named."""

    generation: Generation | None = None


class DifferenceView(View):
    """One part that does not come out as it was stored."""

    part: str
    stored: str
    recomputed: str


class ReplayView(View):
    """A past decision, decided again. `omitted` counts differences beyond those listed."""

    workload_id: str
    generation: int
    decision_id: UUID
    ranking_id: UUID
    scorer_version: str
    same: bool
    differences: list[DifferenceView]
    omitted: int


@router.post("", status_code=status.HTTP_202_ACCEPTED)
async def place_again(body: PlaceBody, deps: Uses, tenant_id: Tenant) -> PlaceAnswer:
    """Run the placement of a workload again. Nothing changes where its plan still holds.

    Repeating this is harmless. Only a claim without a plan is taken up later if Temporal is away now.
    """
    async with deps.engine.connect() as connection:
        row = await workloads.find_workload(connection, tenant_id, body.workload_id)
    if row["claim_version"] == 0:
        raise Problem(problems.NO_CLAIM, f"workload {body.workload_id!r} has no claim to place")
    told = await launch(deps, tenant_id, row["partition_id"], body.workload_id, None)
    if told.started == "queued" and row["planned_version"] == row["claim_version"]:
        raise Problem(
            problems.NOT_READY, "Temporal cannot be reached, so nothing was started", headers=RETRY_SOON
        )
    return PlaceAnswer(workload_id=body.workload_id, claim_version=row["claim_version"], placement=told)


@router.get("/{workloadId}")
async def get_placement(workload_id: WorkloadPath, deps: Uses, tenant_id: Tenant) -> PlacementView:
    """How far the placement of a workload is."""
    async with deps.snapshot() as connection:
        return await placement_view(connection, deps, tenant_id, workload_id)


async def placement_view(
    connection: Connection, deps: Deps, tenant_id: str, workload_id: str
) -> PlacementView:
    row = await workloads.find_workload(connection, tenant_id, workload_id)
    units = 0
    if row["claim_version"] > 0:
        units = (await workloads.find_claim(connection, tenant_id, workload_id))["units"]
    states = await fleet.counts_by_state(connection, tenant_id, workload_id)
    workflow_id = placement_workflow_id(tenant_id, row["partition_id"], workload_id)
    return PlacementView(
        workload_id=workload_id,
        workflow_id=workflow_id,
        phase=row["phase"],
        claim_version=row["claim_version"],
        planned_version=row["planned_version"],
        generation=row["generation"],
        units=units,
        placed_units=await fleet.planned_units(connection, tenant_id, workload_id),
        active_instances=states.get("active", 0),
        instances_by_state=states,
        shortfall=shortfall_of(row),
        updated_at=row["updated_at"],
        temporal_url=deps.workflow_url(workflow_id),
    )


@router.get("/{workloadId}/generations")
async def list_generations(
    workload_id: WorkloadPath, query: Annotated[PageQuery, Query()], deps: Uses, tenant_id: Tenant
) -> GenerationPage:
    """The plan generations of a workload, newest first, a page at a time."""
    listing = listing_key("generations", workload_id)
    after = after_of(query.page_token, listing)
    async with deps.snapshot() as connection:
        await workloads.find_workload(connection, tenant_id, workload_id)
        found = await generations.generations_before(
            connection,
            tenant_id,
            workload_id,
            before=_generation_of(after),
            limit=query.page_size + 1,
        )
    page, token = cut(found, query, listing, lambda row: str(row["generation"]))
    return GenerationPage(items=[generation_view(row) for row in page], next_page_token=token)


def _generation_of(after: str) -> int | None:
    if not after:
        return None
    if after.isascii() and after.isdigit() and len(after) <= 9:  # noqa: PLR2004 fits an integer
        return int(after)
    raise Problem(problems.BAD_PAGE_TOKEN, "the pageToken is not one of ours")


def generation_view(row: sa.RowMapping) -> GenerationView:
    priced = ("cost_per_hour", "depth_premium_per_hour")
    names = set(GenerationView.model_fields) - set(priced)
    return GenerationView(
        **{name: row[name] for name in names} | {name: money(row[name], row["currency"]) for name in priced}
    )


@router.get("/{workloadId}/explanation")
async def get_explanation(
    workload_id: WorkloadPath, query: Annotated[ExplanationQuery, Query()], deps: Uses, tenant_id: Tenant
) -> ExplanationView:
    """Why these pools: every pool of the ranking with its keep or exclude reason, as it was decided."""
    async with deps.snapshot() as connection:
        await workloads.find_workload(connection, tenant_id, workload_id)
        decision_id = await find_generation(connection, tenant_id, workload_id, query.generation)
        decided = await explain_decision(connection, tenant_id, decision_id)
    return explanation_view(decided, Wanted(query.pool_id, query.reason))


@router.post("/{workloadId}/replay")
async def replay(
    workload_id: WorkloadPath, query: Annotated[ReplayQuery, Query()], deps: Uses, tenant_id: Tenant
) -> ReplayView:
    """Decide again from the stored inputs and compare; nothing is changed."""
    async with deps.snapshot() as connection:
        await workloads.find_workload(connection, tenant_id, workload_id)
        found = await replay_placement(connection, tenant_id, workload_id, query.generation)
    return ReplayView(**found.model_dump())

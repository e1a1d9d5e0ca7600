"""Workloads: who owns them, under which contract, what they claim and where they run."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import sqlalchemy as sa
from fastapi import APIRouter, Query, Response, status
from pydantic import Field, StringConstraints

from api import problems
from api.claim_view import ClaimView, claim_view
from api.contracts import terms_under
from api.deps import Deps, Tenant, Uses, WorkloadPath
from api.fleet_view import (
    FleetRow,
    GroupRow,
    HallRow,
    Waste,
    fleet_rows,
    group_rows,
    hall_rows,
    waste_of,
)
from api.paging import PageQuery, after_of, cut, listing_key
from api.problems import Problem, require_same_id
from api.shapes import Body, MoneyView, View, money
from domain.claim import Demand, WorkloadId
from domain.placement.caps import Caps, caps_for
from domain.pool import Name
from domain.reasons import SHORTFALL_TEXT, ShortfallReason
from store import decisions, fleet, workloads
from store.engine import Connection
from store.tables import Phase

router = APIRouter(prefix="/workloads", tags=["workloads"])
# One line with something to see in it.
_LINE = r"[^\u0000-\u001f\u007f]*"
Owner = Annotated[str, StringConstraints(max_length=100, pattern=rf"^{_LINE}[^\u0000-\u0020\u007f]{_LINE}$")]


class WorkloadBody(Body):
    """A workload; its id stands in the path. The partition is fixed once it is created."""

    workload_id: WorkloadId | None = None
    partition_id: Name
    contract_id: Name
    owner_team: Owner


class ShortfallView(View):
    """Units that are not placed, and why."""

    units: int
    reason: ShortfallReason
    text: str


class CapsView(View):
    """What contract and policy mean for the newest claim, in units."""

    units: int
    floor_units: int
    pool_units: int
    group_units: int
    probation_units: int
    hall_units: int


class WorkloadSummary(View):
    """A workload and how far its claim is."""

    workload_id: str
    partition_id: str
    contract_id: str
    owner_team: str
    phase: Phase
    claim_version: int
    planned_version: int
    generation: int
    shortfall: ShortfallView | None
    updated_at: datetime


class WorkloadView(WorkloadSummary):
    """A workload in full. Costs are those of the newest plan. Before the first claim there is no fleet."""

    claim: ClaimView | None = None
    caps: CapsView | None = None
    fleet: list[FleetRow] = Field(default_factory=list)
    by_group: list[GroupRow] = Field(default_factory=list)
    by_hall: list[HallRow] = Field(default_factory=list)
    waste: Waste | None = None
    cost_per_hour: MoneyView | None = None
    depth_premium_per_hour: MoneyView | None = None
    instances_by_state: dict[str, int] = Field(default_factory=dict)


class WorkloadPage(View):
    items: list[WorkloadSummary]
    next_page_token: str | None


def summary(row: sa.RowMapping) -> WorkloadSummary:
    names = set(WorkloadSummary.model_fields) - {"shortfall"}
    return WorkloadSummary(**{name: row[name] for name in names}, shortfall=shortfall_of(row))


def shortfall_of(row: sa.RowMapping) -> ShortfallView | None:
    """What the newest placement left unplaced."""
    if not row["shortfall_units"] or row["shortfall_reason"] is None:
        return None
    reason = ShortfallReason(row["shortfall_reason"])
    return ShortfallView(units=row["shortfall_units"], reason=reason, text=SHORTFALL_TEXT[reason])


async def workload_view(connection: Connection, deps: Deps, tenant_id: str, workload_id: str) -> WorkloadView:
    """Everything that is known of one workload, read in the caller's transaction."""
    row = await workloads.find_workload(connection, tenant_id, workload_id)
    view = WorkloadView(**summary(row).model_dump())
    if row["claim_version"] == 0:
        return view
    newest = await workloads.find_claim(connection, tenant_id, workload_id)
    demand = Demand.model_validate(newest["demand"])
    contract = await fleet.contract_of(connection, tenant_id, workload_id)
    caps = caps_for(demand.units, terms_under(contract, deps))
    view.claim, view.caps = claim_view(demand), _caps_view(caps)
    view.instances_by_state = await fleet.counts_by_state(connection, tenant_id, workload_id)
    if row["generation"] > 0:
        await _add_fleet(connection, tenant_id, row, view, caps)
    return view


def _caps_view(caps: Caps) -> CapsView:
    return CapsView(**{name: getattr(caps, name) for name in CapsView.model_fields})


async def _add_fleet(
    connection: Connection, tenant_id: str, row: sa.RowMapping, view: WorkloadView, caps: Caps
) -> None:
    workload_id = row["workload_id"]
    held = await fleet.fleet_of(connection, tenant_id, workload_id)
    planned = await workloads.find_claim(connection, tenant_id, workload_id, row["planned_version"])
    (newest,) = await decisions.list_generations(connection, tenant_id, workload_id, 1)
    view.fleet = fleet_rows(held, caps.units)
    view.by_group = group_rows(view.fleet, caps)
    view.by_hall = hall_rows(view.fleet, caps)
    view.waste = waste_of(held, Demand.model_validate(planned["demand"]))
    view.cost_per_hour = money(newest["cost_per_hour"], newest["currency"])
    view.depth_premium_per_hour = money(newest["depth_premium_per_hour"], newest["currency"])


@router.put("/{workloadId}", responses={201: {"model": WorkloadSummary, "description": "Created"}})
async def put_workload(
    workload_id: WorkloadPath, body: WorkloadBody, response: Response, deps: Uses, tenant_id: Tenant
) -> WorkloadSummary:
    """Create a workload, or change its contract and owner."""
    require_same_id("workloadId", body.workload_id, workload_id)
    async with deps.engine.begin() as connection:
        response.status_code = await _status_of_put(connection, tenant_id, workload_id)
        try:
            await workloads.put_workload(
                connection,
                tenant_id=tenant_id,
                workload_id=workload_id,
                partition_id=body.partition_id,
                contract_id=body.contract_id,
                owner_team=body.owner_team,
            )
        except workloads.UnknownContract as error:
            kind = problems.UNKNOWN_CONTRACT._replace(status=status.HTTP_422_UNPROCESSABLE_CONTENT)
            raise Problem(kind, str(error)) from None
        return summary(await workloads.find_workload(connection, tenant_id, workload_id))


async def _status_of_put(connection: Connection, tenant_id: str, workload_id: str) -> int:
    try:
        await workloads.find_workload(connection, tenant_id, workload_id)
    except workloads.UnknownWorkload:
        return status.HTTP_201_CREATED
    return status.HTTP_200_OK


@router.get("")
async def list_workloads(query: Annotated[PageQuery, Query()], deps: Uses, tenant_id: Tenant) -> WorkloadPage:
    """Workloads in the order of the ids, a page at a time."""
    listing = listing_key("workloads")
    after = after_of(query.page_token, listing)
    async with deps.engine.connect() as connection:
        found = await workloads.list_workloads(connection, tenant_id, after=after, limit=query.page_size + 1)
    page, token = cut(found, query, listing, lambda row: str(row["workload_id"]))
    return WorkloadPage(items=[summary(row) for row in page], next_page_token=token)


@router.get("/{workloadId}")
async def get_workload(workload_id: WorkloadPath, deps: Uses, tenant_id: Tenant) -> WorkloadView:
    """One workload: its claim, its caps in units, and its fleet by pool, correlation group and hall."""
    async with deps.snapshot() as connection:
        return await workload_view(connection, deps, tenant_id, workload_id)

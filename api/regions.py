"""Provider regions: whether each is well, what its quota leaves, and who may act there."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated

import sqlalchemy as sa
from fastapi import APIRouter, Query
from pydantic import Field

from api.deps import Tenant, Uses
from api.fleet_view import FOUR_PLACES
from api.paging import PageQuery, after_of, cut, listing_key
from api.shapes import View
from domain.circuit import CircuitState
from domain.quota import Level, QuotaResource
from domain.reconcile import DriftKind, FleetPhase
from store.regions import RegionRows, list_regions

router = APIRouter(prefix="/factory/provider-regions", tags=["provider regions"])


class BudgetView(View):
    """The token budget now: one token is one call."""

    tokens: int
    burst: int
    refill_per_second: Decimal


class CircuitView(View):
    """Whether calls go. `until` is when an open circuit lets one call try, or that call is given up.

    `failures` is how many came in a row, `trips` how often it opened since the last success, `since` when
    it last left or returned to closed.
    """

    state: CircuitState
    failures: int
    trips: int
    problem: str | None
    since: datetime | None
    until: datetime | None


class QuotaLevelView(View):
    """One quota. A limit of null is unlimited; `pending` is planned and not counted by the provider yet."""

    resource: QuotaResource
    limit: int | None
    used: int
    pending: int
    left: int | None
    share_left: Decimal | None
    alarm: bool
    observed_at: datetime


class QuotaHoldView(View):
    """Launches are held after a refusal for quota; `refusals` is how many came in a row."""

    until: datetime
    refusals: int
    problem: str


class LicenceView(View):
    """The right of one partition to act in the region. Without it nothing is launched or deleted."""

    partition_id: str
    phase: FleetPhase
    may_act: bool
    acting_until: datetime | None
    last_complete_at: datetime | None
    fleet: int
    backlog: int
    drifts: dict[DriftKind, int] = Field(description="What differs from the records, by kind")
    problem: str | None


class LeaseView(View):
    """Committed capacity that is reserved until `endsAt`. `status` is the provider's own word."""

    lease_id: str
    name: str
    status: str
    hall: str | None
    flavor: str | None
    instances: int
    ends_at: datetime
    renewed_at: datetime | None
    problem: str | None


class RegionView(View):
    """One region of the provider. `pausedUntil` is null unless every caller waits now."""

    region: str
    budget: BudgetView
    circuit: CircuitView
    paused_until: datetime | None
    quotas: list[QuotaLevelView]
    quota_alarm: bool
    quota_hold: QuotaHoldView | None
    licences: list[LicenceView]
    leases: list[LeaseView]


class RegionPage(View):
    items: list[RegionView]
    next_page_token: str | None


def region_view(rows: RegionRows, now: datetime) -> RegionView:
    """A region from its rows; licences and holds are in force or not as of `now`."""
    budget, quotas = rows.budget, [_quota(row) for row in rows.quotas]
    return RegionView(
        region=rows.region,
        budget=BudgetView.model_validate(budget),
        circuit=CircuitView(
            state=CircuitState(budget.circuit),
            failures=budget.failures,
            trips=budget.trips,
            problem=budget.circuit_problem,
            since=budget.circuit_changed_at,
            until=budget.circuit_until,
        ),
        paused_until=budget.paused_until,
        quotas=quotas,
        quota_alarm=any(one.alarm for one in quotas),
        quota_hold=_hold(budget, now),
        licences=[_licence(row, rows, now) for row in rows.licences],
        leases=[LeaseView(**{name: row[name] for name in LeaseView.model_fields}) for row in rows.leases],
    )


def _quota(row: sa.RowMapping) -> QuotaLevelView:
    level = Level(
        resource=QuotaResource(row["resource"]),
        limit=row["quota_limit"],
        used=row["used"],
        pending=row["pending"],
        alarm=row["alarm"],
    )
    share = level.share_left
    return QuotaLevelView(
        **level.model_dump(),
        left=level.left,
        share_left=None if share is None else share.quantize(FOUR_PLACES),
        observed_at=row["observed_at"],
    )


def _hold(budget: sa.Row[tuple[object, ...]], now: datetime) -> QuotaHoldView | None:
    if budget.quota_until is None or budget.quota_until <= now:
        return None
    return QuotaHoldView(
        until=budget.quota_until, refusals=budget.quota_refusals, problem=budget.quota_problem or ""
    )


def _licence(row: sa.RowMapping, rows: RegionRows, now: datetime) -> LicenceView:
    until = row["acting_until"]
    counts = {kind: rows.drifts.get((row["partition_id"], kind), 0) for kind in DriftKind}
    return LicenceView(
        **{name: row[name] for name in set(LicenceView.model_fields) & set(row)},
        may_act=until is not None and until > now and row["phase"] != FleetPhase.READ_ONLY,
        drifts={kind: count for kind, count in counts.items() if count},
    )


@router.get("")
async def list_provider_regions(
    query: Annotated[PageQuery, Query()], deps: Uses, tenant_id: Tenant
) -> RegionPage:
    """Regions that have a token budget, in the order of their names, a page at a time."""
    listing = listing_key("provider-regions")
    after = after_of(query.page_token, listing)
    async with deps.snapshot() as connection:
        found = await list_regions(connection, tenant_id, after=after, limit=query.page_size + 1)
    page, token = cut(found, query, listing, lambda rows: rows.region)
    now = deps.now()
    return RegionPage(items=[region_view(rows, now) for rows in page], next_page_token=token)

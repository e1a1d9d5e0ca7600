"""A router's word that an endpoint is down, over REST."""

from __future__ import annotations

from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from activities.reporting import report_endpoint
from api import problems
from api.deps import PoolPath, Tenant, Uses
from api.pools import POOLS
from api.problems import Problem
from api.shapes import Body, Line, View
from domain.pool import Name
from domain.serving.health import MAX_PROBLEM
from store.pool_health import NoEndpoint

router = APIRouter(prefix=POOLS, tags=["compute pools"])


class EndpointReport(Body):
    """What went wrong at an endpoint, and whose pool it is: left out, it is the caller's own."""

    problem: Annotated[Line, Field(min_length=1, max_length=MAX_PROBLEM)]
    pool_tenant_id: Name | None = None


class EndpointReportView(View):
    """What a report does. Until `avoidedUntil` placements of the caller's tenant avoid the pool.

    `kept` is false where the same tenant has reported the pool just before.
    """

    tenant_id: str
    pool_id: str
    kept: bool
    avoided_until: datetime


@router.post("/{poolId}/endpoint-reports", status_code=HTTPStatus.ACCEPTED)
async def report_pool_endpoint(
    pool_id: PoolPath, report: EndpointReport, deps: Uses, tenant_id: Tenant
) -> EndpointReportView:
    """Report that a pool's endpoint is down. Only a probe that fails makes the pool degraded for others."""
    owner_id, at, terms = report.pool_tenant_id or tenant_id, deps.now(), deps.policy.health
    try:
        kept = await report_endpoint(
            deps.engine, tenant_id, owner_id, pool_id, report.problem, at, terms=terms
        )
    except NoEndpoint as error:
        raise Problem(problems.NO_ENDPOINT, str(error)) from error
    until = at + timedelta(seconds=terms.report_hold_seconds)
    return EndpointReportView(tenant_id=owner_id, pool_id=pool_id, kept=kept, avoided_until=until)

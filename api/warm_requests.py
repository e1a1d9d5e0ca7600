"""Warming over REST: a model is asked for on a pool, and what becomes of it can be followed."""

from __future__ import annotations

import asyncio
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Literal
from uuid import UUID, uuid4

import structlog
from fastapi import APIRouter, Path, Request, Response
from pydantic import Strict

from api import problems
from api.deps import Deps, PoolPath, Tenant, Uses, actor_of
from api.idempotency import IdempotencyKey, keyed, once
from api.launching import NOT_STARTED, START_SECONDS
from api.pools import POOLS
from api.problems import Problem
from api.shapes import Body, View, json_text
from domain.ids import warm_keep_workflow_id
from domain.pool import Pool, PoolState
from domain.serving.models import ModelName, plain_name
from domain.serving.requirements import VramGb
from store import registry, warm_requests
from store.engine import Connection
from store.idempotency import Answer
from store.serving_pools import PoolName
from store.tables import WarmStatus
from store.warm_requests import WarmRequest

router = APIRouter(prefix=POOLS, tags=["compute pools"])
RequestPath = Annotated[UUID, Path(alias="requestId", description="The id of a warm request")]
log = structlog.get_logger("api")


class WarmBody(Body):
    """The model to load, and the accelerator memory that it takes, in GB."""

    model: ModelName
    vram_gb: Annotated[VramGb, Strict()]


class WarmRequestView(View):
    """A request and what became of it. `problem` says why it failed.

    `started` is `queued` where the pool's keeper could not be told: it looks by itself within minutes.
    """

    request_id: UUID
    pool_id: str
    model: str
    vram_gb: int
    status: WarmStatus
    problem: str | None
    requested_by: str
    requested_at: datetime
    finished_at: datetime | None
    workflow_id: str
    temporal_url: str | None
    started: Literal[True, "queued"] = True


@router.post("/{poolId}/warm", status_code=HTTPStatus.ACCEPTED, response_model=WarmRequestView)
async def warm_model(
    *,
    pool_id: PoolPath,
    body: WarmBody,
    request: Request,
    deps: Uses,
    tenant_id: Tenant,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Load a model on a pool before it is needed. Follow it at the Location of the answer."""
    asked = WarmRequest(
        request_id=uuid4(),
        pool_id=pool_id,
        model=plain_name(body.model),
        vram_gb=body.vram_gb,
        status=WarmStatus.REQUESTED,
        problem=None,
        requested_by=actor_of(request),
        requested_at=deps.now(),
        finished_at=None,
    )

    async def work(connection: Connection) -> Answer:
        _require_room(await registry.find_pool(connection, tenant_id, pool_id), body.vram_gb)
        await warm_requests.add(connection, tenant_id, asked)
        return _answer(_view(asked, deps, tenant_id).model_copy(update={"started": "queued"}))

    async def after(answer: Answer) -> Answer:
        told = await _tell(deps, tenant_id, pool_id)
        return _answer(_view(asked, deps, tenant_id)) if told else answer

    return await once(deps, keyed(request, tenant_id, idempotency_key, await request.body()), work, after)


@router.get("/{poolId}/warm/{requestId}")
async def get_warm_request(
    pool_id: PoolPath, request_id: RequestPath, deps: Uses, tenant_id: Tenant
) -> WarmRequestView:
    """One request, as it is now."""
    async with deps.engine.connect() as connection:
        found = await warm_requests.find(connection, PoolName(tenant_id, pool_id), request_id)
    return _view(found, deps, tenant_id)


def _require_room(pool: Pool, vram_gb: int) -> None:
    if pool.state is not PoolState.ACTIVE or pool.endpoint_ref is None or not pool.vram_gb:
        endpoint = "with" if pool.endpoint_ref is not None else "without"
        text = (
            f"pool {pool.pool_id!r} is {pool.state}, {endpoint} an endpoint, and has {pool.vram_gb} GB of"
            " accelerator memory; models are loaded on active pools with both"
        )
        raise Problem(problems.NOT_SERVING, text)
    if vram_gb > pool.vram_gb:
        text = f"body vramGb is {vram_gb}; allowed is at most {pool.vram_gb}, all that {pool.pool_id!r} has"
        raise Problem(problems.MODEL_TOO_LARGE, text)


async def _tell(deps: Deps, tenant_id: str, pool_id: str) -> bool:
    """Let the pool be looked at now; what is not told is found by its next look."""
    try:
        async with asyncio.timeout(START_SECONDS):
            await deps.starter.want_warm_keep(tenant_id, pool_id)
    except NOT_STARTED as error:
        log.warning("warm_request_queued", pool=pool_id, error=type(error).__name__)
        return False
    return True


def _answer(view: WarmRequestView) -> Answer:
    headers = {"Location": f"{POOLS}/{view.pool_id}/warm/{view.request_id}"}
    return Answer(HTTPStatus.ACCEPTED, json_text(view), headers)


def _view(request: WarmRequest, deps: Deps, tenant_id: str) -> WarmRequestView:
    workflow_id = warm_keep_workflow_id(tenant_id, request.pool_id)
    return WarmRequestView(
        **request._asdict(), workflow_id=workflow_id, temporal_url=deps.workflow_url(workflow_id)
    )

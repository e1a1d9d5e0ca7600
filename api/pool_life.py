"""One compute pool over REST: what it is and holds, the steps of its life, and what of it may change."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from http import HTTPStatus
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Query, Request, Response
from pydantic import Field, model_validator
from pydantic.alias_generators import to_camel

from api import problems
from api.deps import Deps, PoolPath, Tenant, Uses, actor_of
from api.idempotency import IdempotencyKey, keyed, once
from api.launching import NOT_STARTED, START_SECONDS
from api.pool_answers import Teller
from api.pools import POOLS, EndpointRef, FullPrice, PoolView, Price, pool_views, require_endpoint
from api.problems import Kind, Problem, Refused
from api.shapes import MAX_COUNT, Body, View, Whole, json_text, plain_answer
from api.versions import IfMatch, Matching, etag, matched
from domain.ids import pool_drain_workflow_id
from domain.pool import Name, Pool, PoolFacts, PoolState
from domain.pool_life import Held, LifeRefusal, PoolAction, Refusal, allowed_actions
from store import pool_life, pool_reads, registry
from store.engine import Connection
from store.idempotency import Answer
from store.pool_life import Stepped

router = APIRouter(prefix=POOLS, tags=["compute pools"])
log = structlog.get_logger("api")

OwnerQuery = Annotated[
    Name | None,
    Query(alias="tenantId", description="Who owns the pool, such as platform; left out, it is your own"),
]
TOLD_AS: Mapping[LifeRefusal, Kind] = {
    LifeRefusal.NO_SUCH_STEP: problems.NO_SUCH_STEP,
    LifeRefusal.POOL_HOLDS: problems.POOL_HOLDS,
    LifeRefusal.VERSION_CONFLICT: problems.VERSION_CONFLICT,
}


class LoadedModelView(View):
    """A model that the pool has loaded."""

    model: str
    vram_gb: int
    last_used_at: datetime


class HeldView(View):
    """What a pool holds: planned units, live instances, whose they are, and loaded models."""

    units: int
    instances: int
    workloads: tuple[str, ...]
    models: tuple[LoadedModelView, ...]


class PoolDetail(PoolView):
    """One pool with what it holds, what it may be asked now, and the workflow that drains it, if one does."""

    held: HeldView
    allowed_actions: tuple[PoolAction, ...]
    drain_workflow_id: str | None
    drain_temporal_url: str | None


class PoolPatch(Body):
    """What of a pool may change. What is left out stays; endpointRef null takes the endpoint away."""

    price_per_hour_usd: Price = Decimal(0)
    guaranteed_price_per_hour_usd: FullPrice = Decimal(1)
    endpoint_ref: EndpointRef | None = None
    cold_start_seconds: Annotated[Whole, Field(ge=0, le=MAX_COUNT)] = 0

    @model_validator(mode="before")
    @classmethod
    def _facts_are_fixed(cls, sent: Any) -> Any:
        if isinstance(sent, dict):
            fixed = sorted(FACTS & {key for key in sent if isinstance(key, str)})
            if fixed:
                raise Refused(Problem(problems.FIXED_FACT, _fixed(fixed)))
        return sent

    def wanted(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.model_fields_set}


MAY_CHANGE = tuple(to_camel(name) for name in PoolPatch.model_fields)
FACTS = frozenset(to_camel(name) for name in PoolFacts.model_fields) - set(MAY_CHANGE)


def _fixed(names: list[str]) -> str:
    verb = "is a fact" if len(names) == 1 else "are facts"
    return f"{', '.join(names)} {verb} of the pool; allowed is {', '.join(MAY_CHANGE)}"


async def pool_detail(connection: Connection, deps: Deps, tenant_id: str, pool: Pool) -> PoolDetail:
    """One pool as it is now, with what the tenant may see of it. Only its owner may ask anything of it."""
    (view,) = await pool_views(connection, deps, tenant_id, [pool])
    held = await pool_life.held_in(connection, pool.tenant_id, pool.pool_id)
    draining = pool.state is PoolState.DRAINING
    workflow_id = pool_drain_workflow_id(pool.tenant_id, pool.pool_id) if draining else None
    return PoolDetail.model_construct(
        **dict(view),
        held=HeldView.model_validate(held),
        allowed_actions=allowed_actions(pool.state, held) if pool.tenant_id == tenant_id else (),
        drain_workflow_id=workflow_id,
        drain_temporal_url=deps.workflow_url(workflow_id) if workflow_id is not None else None,
    )


@router.get("/{poolId}", response_model=PoolDetail)
async def get_pool(pool_id: PoolPath, deps: Uses, tenant_id: Tenant, owner_id: OwnerQuery = None) -> Response:
    """One pool, with what it holds; its ETag is for If-Match. Another owner's is found where it is shared."""
    row = await pool_reads.find_readable(deps.engine, tenant_id, owner_id or tenant_id, pool_id)
    return plain_answer(Teller(deps, tenant_id).detail(row), {"ETag": etag(row["version"])})


@router.patch("/{poolId}", response_model=PoolDetail)
async def change_pool(
    *,
    pool_id: PoolPath,
    patch: PoolPatch,
    request: Request,
    deps: Uses,
    tenant_id: Tenant,
    if_match: IfMatch = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Change prices, endpoint or cold start of a pool. Facts are fixed: naming one changes nothing."""
    wanted = patch.wanted()
    require_endpoint(wanted.get("endpoint_ref"), deps)

    async def work(connection: Connection) -> Answer:
        version = await _version(connection, tenant_id, pool_id, if_match)
        done = await pool_life.change(
            connection, tenant_id, pool_id, wanted, version, by=actor_of(request), at=deps.now()
        )
        return await _answer(connection, deps, tenant_id, pool_id, done)

    async def after(answer: Answer) -> Answer:
        if wanted.get("endpoint_ref") is not None:
            await _look_at_models(deps, tenant_id, pool_id)
        return answer

    condition = (if_match or "").encode() + b"\n" + await request.body()
    return await once(deps, keyed(request, tenant_id, idempotency_key, condition), work, after)


@router.post("/{poolId}/activate", response_model=PoolDetail)
async def activate_pool(
    *,
    pool_id: PoolPath,
    request: Request,
    deps: Uses,
    tenant_id: Tenant,
    if_match: IfMatch = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Let a draft pool take units."""
    key = keyed(request, tenant_id, idempotency_key, (if_match or "").encode())
    return await _step(deps, tenant_id, pool_id, PoolAction.ACTIVATE, if_match, key=key, by=actor_of(request))


@router.post("/{poolId}/drain", response_model=PoolDetail)
async def drain_pool(
    *,
    pool_id: PoolPath,
    request: Request,
    deps: Uses,
    tenant_id: Tenant,
    if_match: IfMatch = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Stop new units of an active pool, and let what it holds move elsewhere."""
    key = keyed(request, tenant_id, idempotency_key, (if_match or "").encode())
    return await _step(deps, tenant_id, pool_id, PoolAction.DRAIN, if_match, key=key, by=actor_of(request))


@router.post("/{poolId}/resume", response_model=PoolDetail)
async def resume_pool(
    *,
    pool_id: PoolPath,
    request: Request,
    deps: Uses,
    tenant_id: Tenant,
    if_match: IfMatch = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Let a pool that drains take units again; its drain ends."""
    key = keyed(request, tenant_id, idempotency_key, (if_match or "").encode())
    return await _step(deps, tenant_id, pool_id, PoolAction.RESUME, if_match, key=key, by=actor_of(request))


@router.post("/{poolId}/retire", response_model=PoolDetail)
async def retire_pool(
    *,
    pool_id: PoolPath,
    request: Request,
    deps: Uses,
    tenant_id: Tenant,
    if_match: IfMatch = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """End the life of a pool that drains. Refused while it holds anything."""
    key = keyed(request, tenant_id, idempotency_key, (if_match or "").encode())
    return await _step(deps, tenant_id, pool_id, PoolAction.RETIRE, if_match, key=key, by=actor_of(request))


async def _step(
    deps: Deps, tenant_id: str, pool_id: str, action: PoolAction, if_match: str | None, *, key: Any, by: str
) -> Response:
    async def work(connection: Connection) -> Answer:
        version = await _version(connection, tenant_id, pool_id, if_match)
        done = await pool_life.take_step(
            connection, tenant_id, pool_id, action, version, by=by, at=deps.now()
        )
        return await _answer(connection, deps, tenant_id, pool_id, done)

    async def after(answer: Answer) -> Answer:
        if action is not PoolAction.ACTIVATE:
            await _tell(deps, tenant_id, pool_id, action)
        return answer

    return await once(deps, key, work, after)


async def _tell(deps: Deps, tenant_id: str, pool_id: str, action: PoolAction) -> None:
    """Start a drain, or tell it that the pool changed. What is not told is taken up by sweep and looks."""
    try:
        async with asyncio.timeout(START_SECONDS):
            if action is PoolAction.DRAIN:
                await deps.starter.start_drain(tenant_id, pool_id)
            else:
                await deps.starter.tell_drain(tenant_id, pool_id)
    except NOT_STARTED as error:
        log.warning("drain_queued", pool=pool_id, action=action.value, error=type(error).__name__)


async def _look_at_models(deps: Deps, tenant_id: str, pool_id: str) -> None:
    """Have a new endpoint asked what it has loaded; what is not told is found by the pool's next look."""
    try:
        async with asyncio.timeout(START_SECONDS):
            await deps.starter.want_warm_keep(tenant_id, pool_id)
    except NOT_STARTED as error:
        log.warning("look_at_models_queued", pool=pool_id, error=type(error).__name__)


async def _answer(
    connection: Connection, deps: Deps, tenant_id: str, pool_id: str, done: Stepped | Refusal
) -> Answer:
    if isinstance(done, Refusal):
        raise await _refused(connection, tenant_id, pool_id, done)
    detail = await pool_detail(connection, deps, tenant_id, done.pool)
    return Answer(HTTPStatus.OK, json_text(detail), {"ETag": etag(done.pool.version)})


async def _refused(connection: Connection, tenant_id: str, pool_id: str, refusal: Refusal) -> Problem:
    """A refusal with the pool's version, what it allows now, and what it holds where that is the reason."""
    pool = await registry.find_pool(connection, tenant_id, pool_id)
    extra = _standing(pool, refusal.allowed)
    if refusal.reason is LifeRefusal.POOL_HOLDS:
        held = await pool_life.held_in(connection, tenant_id, pool_id)
        extra["held"] = HeldView.model_validate(held).model_dump(mode="json", by_alias=True)
    headers = {"ETag": etag(pool.version)}
    return Problem(TOLD_AS[refusal.reason], refusal.text, headers=headers, extra=extra)


def _standing(pool: Pool, allowed: tuple[PoolAction, ...]) -> dict[str, Any]:
    return {"state": pool.state.value, "currentVersion": pool.version, "allowedActions": list(allowed)}


async def _version(connection: Connection, tenant_id: str, pool_id: str, if_match: str | None) -> int | None:
    """The version that the caller means, None for any; a pool that does not exist is told first."""
    wanted = matched(if_match)
    if isinstance(wanted, int):
        return wanted
    if wanted is Matching.ANY:
        return None
    pool = await registry.find_pool(connection, tenant_id, pool_id)
    held: Held = await pool_life.held_in(connection, tenant_id, pool_id)
    extra = _standing(pool, allowed_actions(pool.state, held))
    headers = {"ETag": etag(pool.version)}
    if wanted is Matching.MISSING:
        text = f"If-Match is missing; pool {pool_id!r} is at version {pool.version}"
        raise Problem(problems.VERSION_REQUIRED, text, headers=headers, extra=extra)
    text = f"If-Match {if_match!a} is no ETag of pool {pool_id!r}; allowed are one strong ETag or *"
    raise Problem(problems.VERSION_CONFLICT, text, headers=headers, extra=extra)

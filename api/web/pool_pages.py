"""The screens of pools: all of them, one with its history, and what an administrator may ask of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from api import pool_life
from api.deps import Deps, PoolPath, Tenant, Uses
from api.pool_history import pool_history
from api.pool_life import OwnerQuery, PoolDetail, pool_detail
from api.pools import PoolView, pool_views
from api.problems import Problem
from api.sign_in.principal import ADMINISTER
from api.warm_requests import WarmBody, warm_model
from api.web.forms import PoolForm, rows_of, sheet
from api.web.posted import Sent, checked, whole, wrong_value
from api.web.render import LOOK_AGAIN, may, page
from domain.placement.scoring import PoolScore
from domain.pool import PoolKind, PoolState, PurchaseModel, SecurityBoundary
from domain.pool_life import PoolAction
from domain.serving.health import Health
from store import overview, rankings, registry
from store.engine import Connection

router = APIRouter()
ALL = 100_000
UI_POOLS = "/ui/pools"


class Step(StrEnum):
    """What the buttons of a pool ask of it, and the path that each is sent to."""

    ACTIVATE = "activate"
    DRAIN = "drain"
    RESUME = "resume"
    RETIRE = "retire"


STEPS: Mapping[Step, Callable[..., Awaitable[Response]]] = {
    Step.ACTIVATE: pool_life.activate_pool,
    Step.DRAIN: pool_life.drain_pool,
    Step.RESUME: pool_life.resume_pool,
    Step.RETIRE: pool_life.retire_pool,
}


@router.get(UI_POOLS)
async def show_pools(
    request: Request, form: Annotated[PoolForm, Query()], deps: Uses, tenant_id: Tenant
) -> HTMLResponse:
    """Every pool with its state and health, how busy and how full it is, and what it costs."""
    async with deps.snapshot() as connection:
        pools = await registry.list_readable(connection, tenant_id, registry.PoolFilter(), limit=ALL)
        views = await pool_views(connection, deps, tenant_id, pools)
        scores = await _newest_scores(connection, tenant_id)
    found = [view for view in views if _is_wanted(view, form, tenant_id)]
    return page(
        request,
        "pools.html",
        form=form,
        rows=rows_of(form.page, found),
        sheet=sheet(form.page, len(found)),
        known=len(views),
        scores=scores,
        now=deps.now(),
        choices=_choices(views),
    )


def _choices(views: list[PoolView]) -> dict[str, list[str]]:
    return {
        "region": sorted({view.region for view in views}),
        "hall": sorted({view.hall for view in views}),
        "family": sorted({view.sku_family for view in views}),
        "kind": [kind for kind in PoolKind if any(view.kind is kind for view in views)],
        "state": list(PoolState),
        "model": list(PurchaseModel),
        "boundary": list(SecurityBoundary),
        "health": list(Health),
    }


def _is_wanted(view: PoolView, form: PoolForm, tenant_id: str) -> bool:
    asked = (
        (form.region, view.region),
        (form.hall, view.hall),
        (form.state, view.state),
        (form.model, view.purchase_model),
        (form.family, view.sku_family),
        (form.kind, view.kind),
        (form.boundary, view.security_boundary),
        (form.health, view.health),
        (form.reports, "stale" if view.stale_since else "fresh"),
        (form.owner, "own" if view.tenant_id == tenant_id else "shared"),
    )
    if any(wanted not in (None, actual) for wanted, actual in asked):
        return False
    return form.search.lower() in f"{view.pool_id} {view.group_id} {view.flavor}".lower()


async def _newest_scores(connection: Connection, tenant_id: str) -> dict[str, PoolScore]:
    """How pools were scored last, in whichever partition that was."""
    ranked = [
        one for one in await overview.partition_rankings(connection, tenant_id) if one.ranked_at is not None
    ]
    newest = max(ranked, key=lambda one: str(one.ranked_at), default=None)
    if newest is None or newest.ranking_id is None:
        return {}
    ranking = await rankings.load_ranking(connection, tenant_id, newest.ranking_id)
    return {score.facts.pool_id: score for score in ranking.scores}


@router.get(UI_POOLS + "/{poolId}")
async def show_pool(
    request: Request, pool_id: PoolPath, deps: Uses, tenant_id: Tenant, owner_id: OwnerQuery = None
) -> HTMLResponse:
    """One pool in full, with its history."""
    return await _pool_page(request, deps, tenant_id, (owner_id or tenant_id, pool_id))


@router.post(UI_POOLS + "/{poolId}/warm")
async def warm_pool(
    request: Request, pool_id: PoolPath, sent: Sent, deps: Uses, tenant_id: Tenant
) -> Response:
    """Ask for a model on one of the tenant's own pools; a refusal is told at the form."""
    typed = {"model": sent.one("model"), "vramGb": sent.one("vramGb")}
    try:
        named = typed | {"vramGb": whole(typed["vramGb"])}
        body = checked(WarmBody, {name: value for name, value in named.items() if value != ""})
        await warm_model(pool_id=pool_id, body=body, request=request, deps=deps, tenant_id=tenant_id)
    except Problem as problem:
        return await _pool_page(
            request, deps, tenant_id, (tenant_id, pool_id), problem=problem, warming=typed
        )
    return RedirectResponse(f"{UI_POOLS}/{pool_id}#h-warm", HTTPStatus.SEE_OTHER)


@router.post(UI_POOLS + "/{poolId}/{step}")
async def step_pool(
    *, request: Request, pool_id: PoolPath, step: Step, sent: Sent, deps: Uses, tenant_id: Tenant
) -> Response:
    """Take a step in the life of one of the tenant's own pools; a refusal is told on its page."""
    version = sent.one("version")
    try:
        await STEPS[step](
            pool_id=pool_id,
            request=request,
            deps=deps,
            tenant_id=tenant_id,
            if_match=f'"{version}"' if version else None,
        )
    except Problem as problem:
        told = Problem(problem.kind, problem.detail, what_to_do=LOOK_AGAIN)
        return await _pool_page(request, deps, tenant_id, (tenant_id, pool_id), problem=told)
    return RedirectResponse(f"{UI_POOLS}/{pool_id}", HTTPStatus.SEE_OTHER)


async def _pool_page(
    request: Request,
    deps: Deps,
    tenant_id: str,
    name: tuple[str, str],
    *,
    problem: Problem | None = None,
    warming: Mapping[str, str] | None = None,
) -> HTMLResponse:
    """One pool, named by its owner and id; with `problem` it tells what was refused, of a model to warm."""
    async with deps.snapshot() as connection:
        pool = await registry.find_readable(connection, tenant_id, *name)
        detail = await pool_detail(connection, deps, tenant_id, pool)
        history = await pool_history(connection, deps, tenant_id, pool)
        scores = await _newest_scores(connection, tenant_id)
    is_own = pool.tenant_id == tenant_id
    administers = is_own and may(request, ADMINISTER)
    return page(
        request,
        "pool.html",
        status_code=HTTPStatus.OK if problem is None else problem.kind.status,
        problem=problem,
        pool=detail,
        history=history,
        is_own=is_own,
        steps=_steps(detail) if administers else [],
        may_warm=administers
        and detail.state is PoolState.ACTIVE
        and bool(detail.health and detail.endpoint_ref),
        warming=warming,
        wrong={} if problem is None else {error.field: wrong_value(error) for error in problem.errors},
        score=scores.get(pool.pool_id) if is_own else None,
        now=deps.now(),
    )


def _steps(detail: PoolDetail) -> list[Step]:
    """What may be asked of a pool now; of another owner's pool that is nothing."""
    return [step for step in Step if PoolAction(step.value) in detail.allowed_actions]

"""The screens of warm profiles: the list, and one with its form and what it means now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from api import problems
from api.deps import Deps, Tenant, Uses
from api.paging import PageQuery
from api.problems import FieldProblem, Problem
from api.sign_in.principal import ADMINISTER
from api.warm_profiles import (
    KeptView,
    ProfileBody,
    ProfileDetail,
    ProfilePath,
    get_warm_profile,
    list_warm_profiles,
    put_warm_profile,
    remove_warm_profile,
)
from api.web.forms import ROWS, TokenForm
from api.web.posted import CORRECT, Sent, checked
from api.web.profile_form import ProfileForm, wrong_fields
from api.web.render import LOOK_AGAIN, may, page
from domain.pool import Pool, PoolKind, SecurityBoundary
from domain.serving.warm_keep import WEEK
from store import pool_models, registry
from store.engine import Connection

router = APIRouter()
ALL = 100_000
UI_PROFILES = "/ui/warm-profiles"
# No profile can have this id.
NEW = "_new"
MISSING = "missing"


VERSIONS = (problems.VERSION_CONFLICT, problems.VERSION_REQUIRED)


class Keeping(NamedTuple):
    """A model and the pools that are to keep it: each is `loaded`, `loading`, `promised` or `missing`."""

    model: str
    pools: tuple[tuple[str, str], ...]


@router.get(UI_PROFILES)
async def show_profiles(
    request: Request, form: Annotated[TokenForm, Query()], deps: Uses, tenant_id: Tenant
) -> HTMLResponse:
    """Every warm profile, with when it is in force."""
    found = await list_warm_profiles(PageQuery(pageSize=ROWS, pageToken=form.after), deps, tenant_id)
    return page(
        request,
        "warm_profiles.html",
        form=form,
        rows=found.items,
        more=found.next_page_token,
        may_change=may(request, ADMINISTER),
        now=deps.now(),
    )


@router.get(f"{UI_PROFILES}/{NEW}")
async def show_new_profile(request: Request, deps: Uses, tenant_id: Tenant) -> HTMLResponse:
    """The form of a profile that is not there yet."""
    return await _profile_page(request, deps, tenant_id, ProfileForm())


@router.post(UI_PROFILES)
async def create_profile(request: Request, sent: Sent, deps: Uses, tenant_id: Tenant) -> Response:
    """Create a profile; one of the same id that is there already stays as it is."""
    form = ProfileForm.sent(sent)
    return await _save(request, deps, tenant_id, replace(form, version=""), detail=None)


@router.get(UI_PROFILES + "/{profileId}")
async def show_profile(
    request: Request, profile_id: ProfilePath, deps: Uses, tenant_id: Tenant
) -> HTMLResponse:
    """One profile: its form, and which pools hold its models now."""
    detail = await get_warm_profile(profile_id, Response(), deps, tenant_id)
    return await _profile_page(request, deps, tenant_id, ProfileForm.of(detail), detail)


@router.post(UI_PROFILES + "/{profileId}")
async def change_profile(
    request: Request, profile_id: ProfilePath, sent: Sent, deps: Uses, tenant_id: Tenant
) -> Response:
    """Replace the version of a profile that the form was made of."""
    detail = await get_warm_profile(profile_id, Response(), deps, tenant_id)
    form = replace(ProfileForm.sent(sent), profile_id=profile_id)
    return await _save(request, deps, tenant_id, form, detail)


@router.post(UI_PROFILES + "/{profileId}/remove")
async def remove_profile(
    request: Request, profile_id: ProfilePath, sent: Sent, deps: Uses, tenant_id: Tenant
) -> Response:
    """Remove the version of a profile that its page showed."""
    try:
        await remove_warm_profile(
            profile_id=profile_id, deps=deps, tenant_id=tenant_id, if_match=_tag(sent.one("version"))
        )
    except Problem as problem:
        detail = await get_warm_profile(profile_id, Response(), deps, tenant_id)
        told = Problem(problem.kind, problem.detail, what_to_do=LOOK_AGAIN)
        return await _profile_page(request, deps, tenant_id, ProfileForm.of(detail), detail, problem=told)
    return RedirectResponse(UI_PROFILES, HTTPStatus.SEE_OTHER)


async def _save(
    request: Request, deps: Deps, tenant_id: str, form: ProfileForm, detail: ProfileDetail | None
) -> Response:
    """Put what the form says, or show it again with what is wrong. Without `detail` it is a new profile."""
    try:
        body = checked(ProfileBody, form.body())
        await put_warm_profile(
            profile_id=form.profile_id,
            body=body,
            response=Response(),
            deps=deps,
            tenant_id=tenant_id,
            if_match=_tag(form.version) if detail is not None else None,
        )
    except Problem as problem:
        if problem.kind in VERSIONS:
            problem = _taken(form) if detail is None else _changed(form, detail)
            form = form if detail is None else replace(form, version=str(detail.version))
        return await _profile_page(request, deps, tenant_id, form, detail, problem=problem)
    return RedirectResponse(f"{UI_PROFILES}/{form.profile_id}", HTTPStatus.SEE_OTHER)


def _tag(version: str) -> str | None:
    return f'"{version}"' if version else None


def _taken(form: ProfileForm) -> Problem:
    error = FieldProblem(
        field="profileId", where="body", value=form.profile_id, allowed="an id that is free", message=""
    )
    text = f"there is a warm profile {form.profile_id!r} already, so nothing was saved"
    return Problem(problems.VERSION_CONFLICT, text, errors=[error], what_to_do=CORRECT)


def _changed(form: ProfileForm, detail: ProfileDetail) -> Problem:
    text = (
        f"somebody changed it after this form was opened: it is at version {detail.version}, the form was"
        f" made of version {form.version or 'none'}. Nothing was saved"
    )
    what_to_do = "The form has what you typed. Save it again to replace theirs, or open the page anew."
    return Problem(problems.VERSION_CONFLICT, text, what_to_do=what_to_do)


async def _profile_page(
    request: Request,
    deps: Deps,
    tenant_id: str,
    form: ProfileForm,
    detail: ProfileDetail | None = None,
    *,
    problem: Problem | None = None,
) -> HTMLResponse:
    """The form of a profile; with `detail` what it means now, with `problem` what was refused."""
    async with deps.snapshot() as connection:
        pools = await registry.list_pools(connection, tenant_id, registry.PoolFilter(), limit=ALL)
        kept = [] if detail is None else await _keeping(connection, tenant_id, detail.kept)
    return page(
        request,
        "warm_profile.html",
        status_code=HTTPStatus.OK if problem is None else problem.kind.status,
        form=form.with_spare_rows(),
        profile=detail,
        kept=kept,
        problem=problem,
        wrong={} if problem is None else wrong_fields(problem.errors),
        choices=_choices([one for one in pools if one.vram_gb], form),
        days=list(WEEK),
        may_change=may(request, ADMINISTER),
        now=deps.now(),
    )


def _choices(pools: Sequence[Pool], form: ProfileForm) -> dict[str, list[str]]:
    """What may be chosen: what pools have now, and what was chosen before."""
    known: dict[str, set[str]] = {
        "regions": {one.region for one in pools},
        "kinds": set(PoolKind),
        "gpuTypes": {one.gpu_type for one in pools if one.gpu_type is not None},
        "boundaries": set(SecurityBoundary),
    }
    return {name: sorted(values | form.chosen.get(name, frozenset())) for name, values in known.items()}


async def _keeping(connection: Connection, tenant_id: str, kept: Sequence[KeptView]) -> list[Keeping]:
    """How far each model is on each pool that is to keep it."""
    names = {(tenant_id, pool_id) for one in kept for pool_id in one.pools}
    found = await pool_models.visible_models(connection, tenant_id, sorted(names))
    states = {(pool_id, one.model): one.state.value for (_, pool_id), there in found.items() for one in there}
    return [
        Keeping(
            one.model, tuple((pool_id, states.get((pool_id, one.model), MISSING)) for pool_id in one.pools)
        )
        for one in kept
    ]

"""Warm profiles over REST: which models a tenant keeps loaded, on which of its pools, and when."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response, status
from pydantic import Field, Strict

from api import problems
from api.deps import Deps, Tenant, Uses
from api.paging import PageQuery, after_of, cut, listing_key
from api.problems import Problem, require_same_id
from api.shapes import Body, Flag, View, Whole
from api.versions import IfMatch, Matching, etag, matched
from domain.pool import Name, PoolId, PoolKind, SecurityBoundary
from domain.serving.models import ModelName
from domain.serving.requirements import VramGb
from domain.serving.warm_keep import (
    MAX_COPIES,
    MAX_ENTRIES,
    WEEK,
    PoolSelector,
    ProfileId,
    ProfileModel,
    WarmProfile,
    Weekday,
    Window,
    spread,
)
from store import cached_models, serving_pools, warm_profiles
from store.engine import Connection
from store.serving_pools import keep_pool
from store.warm_profiles import StoredProfile

router = APIRouter(prefix="/factory/warm-profiles", tags=["warm profiles"])
ProfilePath = Annotated[ProfileId, Path(alias="profileId", description="The id of a warm profile")]
Clock = Annotated[str, Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?$", examples=["08:00"])]


class WindowBody(Body):
    """A span of time in UTC; without days every day. One that ends at or before its start ends next day."""

    days: Annotated[tuple[Weekday, ...], Field(max_length=len(WEEK))] = ()
    start: Clock
    until: Clock


class SelectorBody(Body):
    """Which pools are meant: those that match everything that is given. Nothing given is every pool."""

    pool_ids: Annotated[tuple[PoolId, ...], Field(max_length=MAX_ENTRIES)] = ()
    regions: Annotated[tuple[Name, ...], Field(max_length=MAX_ENTRIES)] = ()
    kinds: Annotated[tuple[PoolKind, ...], Field(max_length=len(PoolKind))] = ()
    gpu_types: Annotated[tuple[Name, ...], Field(max_length=MAX_ENTRIES)] = ()
    boundaries: Annotated[tuple[SecurityBoundary, ...], Field(max_length=len(SecurityBoundary))] = ()


class ModelBody(Body):
    """A model and the accelerator memory that it takes, in GB."""

    model: ModelName
    vram_gb: Annotated[VramGb, Strict()]


class ProfileBody(Body):
    """A profile; its id stands in the path. Each model is kept on `copies` pools, in any of the windows."""

    profile_id: ProfileId | None = None
    models: Annotated[tuple[ModelBody, ...], Field(min_length=1, max_length=MAX_ENTRIES)]
    pools: SelectorBody = SelectorBody()
    copies: Annotated[Whole, Field(ge=1, le=MAX_COPIES)] = 1
    windows: Annotated[tuple[WindowBody, ...], Field(max_length=MAX_ENTRIES)] = ()
    enabled: Flag = True


class WindowView(View):
    days: tuple[Weekday, ...]
    start: str
    until: str


class SelectorView(View):
    pool_ids: tuple[str, ...]
    regions: tuple[str, ...]
    kinds: tuple[PoolKind, ...]
    gpu_types: tuple[str, ...]
    boundaries: tuple[SecurityBoundary, ...]


class ModelView(View):
    model: str
    vram_gb: int


class ProfileView(View):
    """A profile. `inForce` says whether it keeps models at this moment."""

    profile_id: str
    models: tuple[ModelView, ...]
    pools: SelectorView
    copies: int
    windows: tuple[WindowView, ...]
    enabled: bool
    in_force: bool
    version: int
    created_at: datetime
    updated_at: datetime


class KeptView(View):
    """Where a model is to be kept now, and on which of these pools it is loaded."""

    model: str
    pools: tuple[str, ...]
    warm: tuple[str, ...]


class ProfileDetail(ProfileView):
    """One profile with where its models are kept."""

    kept: tuple[KeptView, ...]


class ProfilePage(View):
    items: list[ProfileView]
    next_page_token: str | None


@router.put("/{profileId}", responses={201: {"model": ProfileDetail, "description": "Created"}})
async def put_warm_profile(
    *,
    profile_id: ProfilePath,
    body: ProfileBody,
    response: Response,
    deps: Uses,
    tenant_id: Tenant,
    if_match: IfMatch = None,
) -> ProfileDetail:
    """Create a profile, or replace the version that If-Match names. The same again changes nothing.

    Pools take it up at their next look, within minutes.
    """
    require_same_id("profileId", body.profile_id, profile_id)
    profile = profile_of(profile_id, body)
    async with deps.engine.begin() as connection:
        known = await warm_profiles.locked(connection, tenant_id, profile_id)
        if known is None:
            response.status_code = status.HTTP_201_CREATED
            await _create(connection, tenant_id, profile, if_match, at=deps.now())
        elif known.profile != profile:
            _require_version(known, if_match)
            await warm_profiles.replace(connection, tenant_id, profile, at=deps.now())
        return await _answer(connection, deps, tenant_id, profile_id, response)


@router.delete("/{profileId}", status_code=status.HTTP_204_NO_CONTENT)
async def remove_warm_profile(
    *, profile_id: ProfilePath, deps: Uses, tenant_id: Tenant, if_match: IfMatch = None
) -> None:
    """Remove a profile. Its models stay until they are idle."""
    async with deps.engine.begin() as connection:
        known = await warm_profiles.locked(connection, tenant_id, profile_id)
        if known is None:
            await warm_profiles.find(connection, tenant_id, profile_id)
            return
        _require_version(known, if_match)
        await warm_profiles.remove(connection, tenant_id, profile_id)


@router.get("/{profileId}")
async def get_warm_profile(
    profile_id: ProfilePath, response: Response, deps: Uses, tenant_id: Tenant
) -> ProfileDetail:
    """One profile with where its models are kept; its ETag is for If-Match."""
    async with deps.snapshot() as connection:
        return await _answer(connection, deps, tenant_id, profile_id, response)


@router.get("")
async def list_warm_profiles(
    query: Annotated[PageQuery, Query()], deps: Uses, tenant_id: Tenant
) -> ProfilePage:
    """Profiles in the order of their ids, a page at a time."""
    listing = listing_key("warm-profiles")
    after = after_of(query.page_token, listing)
    async with deps.engine.connect() as connection:
        found = await warm_profiles.list_profiles(
            connection, tenant_id, after=after, limit=query.page_size + 1
        )
    page, token = cut(found, query, listing, lambda one: one.profile.profile_id)
    return ProfilePage(items=[_view(one, deps) for one in page], next_page_token=token)


def profile_of(profile_id: str, body: ProfileBody) -> WarmProfile:
    """The rule's own profile; a problem where its parts do not go together."""
    names = [one.model for one in body.models]
    try:
        return WarmProfile(
            profile_id=profile_id,
            models=tuple(ProfileModel(**one.model_dump()) for one in body.models),
            pools=PoolSelector(**body.pools.model_dump()),
            copies=body.copies,
            windows=tuple(Window(**one.model_dump()) for one in body.windows),
            enabled=body.enabled,
        )
    except ValueError:
        text = (
            f"body models names one of {', '.join(sorted(names))} more than once; allowed is each model once"
        )
        raise Problem(problems.INVALID, text, what_to_do="Name each model once.") from None


async def _create(
    connection: Connection, tenant_id: str, profile: WarmProfile, if_match: str | None, *, at: datetime
) -> None:
    if matched(if_match) is not Matching.MISSING:
        text = f"If-Match {if_match!a} names a version, and there is no warm profile {profile.profile_id!r}"
        raise Problem(problems.VERSION_CONFLICT, text, what_to_do="Send it without If-Match to create it.")
    if not await warm_profiles.add(connection, tenant_id, profile, at=at):
        text = f"warm profile {profile.profile_id!r} was created by somebody else at this moment"
        raise Problem(problems.VERSION_CONFLICT, text)


def _require_version(known: StoredProfile, if_match: str | None) -> None:
    """Refuse a change that does not name the newest version."""
    name, wanted = known.profile.profile_id, matched(if_match)
    if wanted in (known.version, Matching.ANY):
        return
    headers, extra = {"ETag": etag(known.version)}, {"currentVersion": known.version}
    if wanted is Matching.MISSING:
        text = f"If-Match is missing; warm profile {name!r} is at version {known.version}"
        raise Problem(problems.VERSION_REQUIRED, text, headers=headers, extra=extra)
    text = f"If-Match is {if_match!a}; warm profile {name!r} is at version {known.version}"
    raise Problem(problems.VERSION_CONFLICT, text, headers=headers, extra=extra)


async def _answer(
    connection: Connection, deps: Deps, tenant_id: str, profile_id: str, response: Response
) -> ProfileDetail:
    stored = await warm_profiles.find(connection, tenant_id, profile_id)
    response.headers["ETag"] = etag(stored.version)
    kept = await _kept(connection, deps, tenant_id, stored.profile)
    return ProfileDetail(**_view(stored, deps).model_dump(), kept=kept)


async def _kept(
    connection: Connection, deps: Deps, tenant_id: str, profile: WarmProfile
) -> tuple[KeptView, ...]:
    """Where each model of a profile is to be, as the pools themselves work it out."""
    if not profile.holds(deps.now()):
        return ()
    serving = await serving_pools.of_tenant(connection, tenant_id)
    pools = [keep_pool(one) for one in serving]
    enabled = await warm_profiles.enabled(connection, tenant_id)
    wanted = spread(enabled, pools, deps.now())
    loaded = await cached_models.loaded_on(connection, tenant_id)
    selected = {one.pool_id for one in pools if profile.pools.selects(one)}
    return tuple(_kept_view(one.model, selected, wanted, loaded) for one in profile.models)


def _kept_view(
    model: str,
    selected: set[str],
    wanted: dict[str, dict[str, int]],
    loaded: set[tuple[str, str]],
) -> KeptView:
    pools: Sequence[str] = sorted(
        pool for pool, models in wanted.items() if model in models and pool in selected
    )
    return KeptView(
        model=model, pools=tuple(pools), warm=tuple(pool for pool in pools if (pool, model) in loaded)
    )


def _view(stored: StoredProfile, deps: Deps) -> ProfileView:
    told = stored.profile.model_dump(mode="json")
    return ProfileView(
        **told,
        in_force=stored.profile.holds(deps.now()),
        version=stored.version,
        created_at=stored.created_at,
        updated_at=stored.updated_at,
    )

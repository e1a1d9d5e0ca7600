"""Compute pools: the registry over REST."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Self

from fastapi import APIRouter, Query, Request, Response, status
from pydantic import AfterValidator, Field, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from api import problems
from api.deps import Deps, Tenant, Uses, actor_of
from api.idempotency import IdempotencyKey, keyed, once
from api.paging import PageQuery, after_of, cut, listing_key
from api.pool_answers import Teller
from api.problems import Problem
from api.shapes import Body, Flag, Line, PlainDecimal, View, Whole, json_text, plain_answer
from api.versions import etag
from domain.placement.liveness import PoolPulse, live_of
from domain.pool import (
    Arch,
    GroupBasis,
    Name,
    Pool,
    PoolFacts,
    PoolId,
    PoolKind,
    PoolState,
    PurchaseModel,
    SecurityBoundary,
)
from domain.reasons import REASON_TEXT, Reason
from domain.serving.endpoint import MAX_LENGTH, EndpointRefusal, read_endpoint
from domain.serving.health import Health
from store import decisions, outbox, pool_models, pool_reads, registry
from store.engine import Connection
from store.idempotency import Answer
from store.pool_models import VisibleModel
from store.tables import ModelState
from wire.payloads import ComputePoolRegistered

POOLS = "/factory/compute-pools"
router = APIRouter(prefix=POOLS, tags=["compute pools"])
Price = Annotated[Decimal, Field(ge=0, max_digits=18, decimal_places=6), PlainDecimal()]
FullPrice = Annotated[Decimal, Field(gt=0, max_digits=18, decimal_places=6), PlainDecimal()]
SMALLEST_PRICE = Decimal("0.000001")


EndpointRef = Annotated[Line, Field(min_length=1, max_length=MAX_LENGTH)]
# Paths below the registry that are no pools: one of that name could not be reached.
NO_POOLS = "placements"


def _is_no_path(pool_id: str) -> str:
    if pool_id == NO_POOLS:
        raise PydanticCustomError("reserved", f"another id: {POOLS}/{NO_POOLS} is no pool")
    return pool_id


NewPoolId = Annotated[
    PoolId, AfterValidator(_is_no_path), Field(json_schema_extra={"not": {"const": NO_POOLS}})
]


# What a pool outside the private cloud has no word for: it is launched by nobody.
ALONE = "standalone"
OF_THE_PRIVATE_CLOUD = (
    "hall",
    "sku_family",
    "size",
    "purchase_model",
    "group_id",
    "guaranteed_price_per_hour_usd",
    "flavor",
)


class PoolRegistration(Body):
    """The facts of a pool, fixed at registration. Prices are per instance and hour, in US dollars.

    A pool of the private cloud also says where and how its instances are launched: hall, skuFamily, size,
    purchaseModel, groupId, guaranteedPricePerHourUsd and flavor. Of other kinds these may be left out: the
    hall is then the region, the group the pool itself, and its price is guaranteed.
    `endpointRef` is where the pool serves models. It is no fact: PATCH of the pool changes it.
    """

    pool_id: NewPoolId
    kind: PoolKind = PoolKind.PRIVATE_CLOUD
    region: Name
    hall: Name | None = None
    security_boundary: SecurityBoundary = SecurityBoundary.REGIONAL
    sku_family: Name | None = None
    size: Name | None = None
    arch: Arch = Arch.X86_64
    gpu_type: Name | None = None
    gpu_count: Annotated[Whole, Field(ge=0, le=64)] = 0
    vram_gb: Annotated[Whole, Field(ge=0, le=100_000)] = 0
    cpu_cores: Annotated[Whole, Field(ge=1, le=4096)]
    ram_gb: Annotated[Whole, Field(ge=1, le=100_000)]
    nvme: Flag = False
    nic_gbps: Annotated[Whole, Field(ge=1, le=10_000)] = 10
    purchase_model: PurchaseModel | None = None
    group_id: Name | None = None
    group_basis: GroupBasis = GroupBasis.AGGREGATE
    price_per_hour_usd: Price
    guaranteed_price_per_hour_usd: FullPrice | None = None
    flavor: Annotated[Line, Field(min_length=1, max_length=255)] | None = None
    endpoint_ref: EndpointRef | None = None

    @model_validator(mode="after")
    def _private_cloud_says_all(self) -> Self:
        missing = [to_camel(name) for name in OF_THE_PRIVATE_CLOUD if getattr(self, name) is None]
        if missing and self.kind is PoolKind.PRIVATE_CLOUD:
            raise ValueError(
                f"a pool of kind private_cloud needs {', '.join(missing)}; other kinds may leave them out"
            )
        return self

    def facts(self, tenant_id: str) -> PoolFacts:
        """The facts of the pool, with what its kind has no word for filled in."""
        alone = {
            "hall": self.region,
            "sku_family": self.gpu_type or ALONE,
            "size": ALONE,
            "purchase_model": PurchaseModel.GUARANTEED,
            "group_id": self.pool_id,
            "guaranteed_price_per_hour_usd": max(self.price_per_hour_usd, SMALLEST_PRICE),
            "flavor": ALONE,
        }
        said = self.model_dump(exclude={"endpoint_ref"}, exclude_none=True)
        return PoolFacts(tenant_id=tenant_id, **(alone | said))


class CachedModelView(View):
    """A model that takes memory on a pool: promised to a placement, loading, or loaded."""

    model: str
    vram_gb: int
    state: ModelState
    loaded_at: datetime | None
    last_used_at: datetime


class PoolView(View):
    """A pool as the registry holds it now. Capacity counts instances; utilization is a share, 0 to 1.

    What follows `health` is null for a pool without accelerator memory, and where nobody knows it yet. Of
    another tenant's pool `cachedModels` are those that the caller holds placements of.
    """

    pool_id: str
    tenant_id: str
    kind: PoolKind
    state: PoolState
    region: str
    hall: str
    security_boundary: SecurityBoundary
    sku_family: str
    size: str
    arch: Arch
    gpu_type: str | None
    gpu_count: int
    vram_gb: int
    cpu_cores: int
    ram_gb: int
    nvme: bool
    nic_gbps: int
    purchase_model: PurchaseModel
    group_id: str
    group_basis: GroupBasis
    price_per_hour_usd: Decimal
    guaranteed_price_per_hour_usd: Decimal
    flavor: str
    capacity_instances: int
    reserved_instances: int
    free_instances: int
    utilization: Decimal
    queue_depth: int
    reported_at: datetime | None
    cold_start_seconds: int
    endpoint_ref: str | None
    version: int
    draining_since: datetime | None
    drained_at: datetime | None
    health: Health | None
    health_problem: str | None
    health_changed_at: datetime | None
    probed_at: datetime | None
    stale_since: datetime | None
    committed_vram_gb: int | None
    learned_cold_start_seconds: int | None
    cached_models: tuple[CachedModelView, ...]
    placeable: bool
    not_placeable_reason: Reason | None
    not_placeable_text: str | None


class PoolPage(View):
    items: list[PoolView]
    next_page_token: str | None


class PoolQuery(PageQuery):
    """Which pools to list; what is left out does not restrict."""

    region: Name | None = None
    hall: Name | None = None
    state: PoolState | None = None
    purchase_model: PurchaseModel | None = None
    sku_family: Name | None = None
    kind: PoolKind | None = None
    gpu_type: Name | None = None
    boundary: SecurityBoundary | None = None
    health: Health | None = None
    stale: bool | None = None

    @property
    def filter(self) -> registry.PoolFilter:
        return registry.PoolFilter(
            region=self.region,
            hall=self.hall,
            state=self.state,
            purchase_model=self.purchase_model,
            sku_family=self.sku_family,
            kind=self.kind,
            gpu_type=self.gpu_type,
            security_boundary=self.boundary,
            health=self.health,
            stale=self.stale,
        )


def pool_view(pool: Pool, pulse: PoolPulse, deps: Deps, models: Sequence[VisibleModel] = ()) -> PoolView:
    """A pool with the reason why it takes no new units now, if there is one."""
    staleness = timedelta(seconds=deps.policy.placement.staleness_seconds)
    blocked = live_of(pulse, now=deps.now(), staleness=staleness).blocked
    told = dict(pool) | {"cached_models": models}
    return PoolView(
        **told,
        free_instances=pool.capacity_instances - pool.reserved_instances,
        placeable=blocked is None,
        not_placeable_reason=blocked,
        not_placeable_text=REASON_TEXT[blocked] if blocked is not None else None,
    )


async def pool_views(
    connection: Connection, deps: Deps, tenant_id: str, pools: Sequence[Pool]
) -> list[PoolView]:
    """Pools as a tenant may see them."""
    pulses = await decisions.pulses_of(connection, pools)
    models = await pool_models.visible_models(connection, tenant_id, [_name(pool) for pool in pools])
    return [pool_view(pool, pulses[_name(pool)], deps, models.get(_name(pool), ())) for pool in pools]


def _name(pool: Pool) -> tuple[str, str]:
    return (pool.tenant_id, pool.pool_id)


def require_endpoint(reference: object, deps: Deps) -> None:
    """Refuse a reference to which no request may be sent; None, which is no endpoint, passes."""
    if not isinstance(reference, str):
        return
    read = read_endpoint(reference, deps.policy.endpoints)
    if isinstance(read, EndpointRefusal):
        extra = {"allowed": read.allowed}
        raise Problem(problems.ENDPOINT_REFUSED, f"endpointRef is refused: {read}", extra=extra)


@router.post(
    "",
    status_code=status.HTTP_201_CREATED,
    response_model=PoolView,
    responses={200: {"model": PoolView, "description": "Registered before, with the same facts"}},
)
async def register_pool(
    registration: PoolRegistration,
    request: Request,
    deps: Uses,
    tenant_id: Tenant,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Register a pool in state draft. Registering the same facts again answers 200 and changes nothing."""
    require_endpoint(registration.endpoint_ref, deps)
    facts = registration.facts(tenant_id)

    async def work(connection: Connection) -> Answer:
        new = await registry.register_pools(connection, [facts], PoolState.DRAFT)
        if new:
            await registry.set_endpoint(connection, tenant_id, facts.pool_id, registration.endpoint_ref)
            await _announce_registered(connection, facts, actor_of(request))
        pool = await registry.find_pool(connection, tenant_id, facts.pool_id)
        (view,) = await pool_views(connection, deps, tenant_id, [pool])
        headers = {"ETag": etag(pool.version), "Location": f"{router.prefix}/{pool.pool_id}"}
        return Answer(status.HTTP_201_CREATED if new else status.HTTP_200_OK, json_text(view), headers)

    return await once(deps, keyed(request, tenant_id, idempotency_key, await request.body()), work)


async def _announce_registered(connection: Connection, facts: PoolFacts, by: str) -> None:
    payload = ComputePoolRegistered(
        pool_id=facts.pool_id,
        tenant_id=facts.tenant_id,
        kind=facts.kind,
        region=facts.region,
        security_boundary=facts.security_boundary,
        hall=facts.hall,
        sku_family=facts.sku_family,
        size=facts.size,
        purchase_model=facts.purchase_model,
        group_id=facts.group_id,
        registered_by=by,
    )
    await outbox.add_event(connection, payload, once=facts.pool_id)


@router.get("", response_model=PoolPage)
async def list_pools(query: Annotated[PoolQuery, Query()], deps: Uses, tenant_id: Tenant) -> Response:
    """Own pools and shared ones in the order of their ids, a page at a time."""
    listing = listing_key("pools", query.filter)
    pool_id, _, owner_id = after_of(query.page_token, listing).partition(" ")
    found = await pool_reads.list_readable(
        deps.engine, tenant_id, query.filter, after=(pool_id, owner_id), limit=query.page_size + 1
    )
    page, token = cut(found, query, listing, lambda row: f"{row['pool_id']} {row['tenant_id']}")
    teller = Teller(deps, tenant_id)
    return plain_answer({"items": [teller.pool(row) for row in page], "nextPageToken": token})

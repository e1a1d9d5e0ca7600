"""Placements of models over REST: place, look, list, release and renew; and any decision by its id."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID, uuid4

from fastapi import APIRouter, Depends, Path, Query, Request, Response, status
from pydantic import Field, Strict

from activities.explaining import UnknownPlacement, explain_decision
from activities.model_placing import ModelPlacing, Placed, PlaceRefusal, Refused
from api import problems
from api.deps import Deps, Tenant, Uses
from api.explanation_view import ExplanationView, explanation_view
from api.idempotency import IdempotencyKey, keyed
from api.launching import RETRY_SOON
from api.model_placement_view import (
    CredentialView,
    ModelDecisionView,
    ModelPlacementView,
    PlacedModelView,
    decision_view,
    placed_view,
    placement_view,
)
from api.paging import PageQuery, after_of, cut, listing_key
from api.pools import Price
from api.problems import Problem
from api.shapes import Body, View, json_text
from domain.pool import Name, PoolId, SecurityBoundary
from domain.serving.models import ModelName, plain_name
from domain.serving.placing import PlacementOutcome
from domain.serving.requirements import (
    MAX_REGIONS,
    DeploymentId,
    LatencyClass,
    ModelRequirements,
    VramGb,
)
from store import model_placements
from store.engine import Connection
from store.idempotency import Answer, KeyedRequest, find_answer, keep_answer
from store.model_placements import Place, PlacementFilter, StoredPlacement
from store.tables import PlacementState

PLACEMENTS = "/factory/compute-pools/placements"
# Credentials are for whoever asked, and for nobody's cache.
NO_STORE = {"Cache-Control": "no-store"}
router = APIRouter(prefix=PLACEMENTS, tags=["model placements"])
PlacementPath = Annotated[UUID, Path(alias="placementId", description="The id of a placement decision")]


async def placing_of(request: Request) -> ModelPlacing:
    """The hand that places models, one for the whole application."""
    placing: ModelPlacing = request.app.state.placing
    return placing


Places = Annotated[ModelPlacing, Depends(placing_of)]


class PlaceModelBody(Body):
    """Which pool may run this model now? Memory is in GB; prices are per pool and hour, in US dollars.

    `boundary` is the least strict boundary that is acceptable; no `regions` means any.
    """

    deployment_id: DeploymentId
    run_id: UUID | None = None
    model: ModelName
    vram_gb: Annotated[VramGb, Strict()]
    boundary: SecurityBoundary
    regions: Annotated[tuple[Name, ...], Field(max_length=MAX_REGIONS)] = ()
    latency_class: LatencyClass = LatencyClass.STANDARD
    max_price_per_hour_usd: Price | None = None


class ModelPlacementQuery(PageQuery):
    """Which placements to list; what is left out does not restrict."""

    outcome: PlacementOutcome | None = None
    state: PlacementState | None = None
    deployment_id: DeploymentId | None = None
    model: ModelName | None = None
    pool_id: PoolId | None = None

    @property
    def filter(self) -> PlacementFilter:
        model = None if self.model is None else plain_name(self.model)
        return PlacementFilter(self.outcome, self.state, self.deployment_id, model, self.pool_id)


class ModelPlacementPage(View):
    items: list[ModelPlacementView]
    next_page_token: str | None


@router.post("", status_code=status.HTTP_201_CREATED, response_model=PlacedModelView)
async def place_model(
    *,
    body: PlaceModelBody,
    request: Request,
    deps: Uses,
    tenant_id: Tenant,
    placing: Places,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Choose a pool for a model and keep its memory there, or say why no pool can take it.

    No pool is an answer too. A repeated request has its first answer, with a new credential while it is held.
    """
    wanted = ModelRequirements(**body.model_dump())
    key = keyed(request, tenant_id, idempotency_key, await request.body())
    async with deps.engine.begin() as connection:
        known = await find_answer(connection, key, deps.now()) if key is not None else None
        if known is not None:
            return await _replayed(connection, placing, tenant_id, wanted, known)
        placed = _placed(await placing.place_in(connection, tenant_id, wanted, placement_id=uuid4()))
        view = placed_view(placed, deps.workflow_url)
        if key is not None:
            await _keep(connection, key, view, deps.now())
    placing.committed(placed)
    return _answer(view, {"Location": f"{PLACEMENTS}/{view.placement_id}"})


async def _keep(connection: Connection, key: KeyedRequest, view: PlacedModelView, now: datetime) -> None:
    """Keep the answer without its credential, which is stored nowhere."""
    stored = json_text(view.model_copy(update={"credential": None}))
    await keep_answer(connection, key, Answer(status.HTTP_201_CREATED, stored, {}), now)


async def _replayed(
    connection: Connection, placing: ModelPlacing, tenant_id: str, wanted: ModelRequirements, known: Answer
) -> Response:
    view = PlacedModelView.model_validate_json(known.body)
    again = _placed(await placing.place_in(connection, tenant_id, wanted, placement_id=view.placement_id))
    view = view.model_copy(update={"credential": CredentialView.of(again.credential)})
    location = f"{PLACEMENTS}/{view.placement_id}"
    return _answer(view, {"Location": location, "Idempotency-Replayed": "true"})


def _placed(answer: Placed | Refused) -> Placed:
    if isinstance(answer, Placed):
        return answer
    if answer.reason is PlaceRefusal.SECRETS_UNAVAILABLE:
        raise Problem(problems.SECRETS_UNAVAILABLE, answer.text, headers=RETRY_SOON)
    raise Problem(problems.KEY_REUSED, answer.text)


def _answer(view: PlacedModelView, headers: dict[str, str]) -> Response:
    return Response(
        json_text(view),
        status_code=status.HTTP_201_CREATED,
        headers=NO_STORE | headers,
        media_type="application/json",
    )


@router.get("")
async def list_model_placements(
    query: Annotated[ModelPlacementQuery, Query()], deps: Uses, tenant_id: Tenant
) -> ModelPlacementPage:
    """Placements of models, newest first, without their candidates, a page at a time."""
    listing = listing_key("model placements", query.filter)
    before = _before(after_of(query.page_token, listing))
    async with deps.engine.connect() as connection:
        found = await model_placements.list_placements(
            connection, tenant_id, query.filter, before=before, limit=query.page_size + 1
        )
    page, token = cut(found, query, listing, lambda one: f"{one.decided_at.isoformat()} {one.placement_id}")
    return ModelPlacementPage(
        items=[placement_view(one, deps.workflow_url) for one in page], next_page_token=token
    )


def _before(after: str) -> Place | None:
    if not after:
        return None
    moment, _, placement_id = after.partition(" ")
    try:
        return Place(datetime.fromisoformat(moment).astimezone(UTC), UUID(placement_id))
    except (ValueError, OverflowError):
        raise Problem(problems.BAD_PAGE_TOKEN, "the pageToken is not one of ours") from None


@router.get("/{placementId}", response_model=ModelDecisionView | ExplanationView)
async def get_decision(
    placement_id: PlacementPath, deps: Uses, tenant_id: Tenant
) -> ModelDecisionView | ExplanationView:
    """One placement decision, of a model or of a workload's claim, with every candidate and its reason.

    A decision about a model has `kind` model and `placementId`; one about a claim has `decisionId`.
    """
    async with deps.snapshot() as connection:
        found = await model_placements.find_placement(connection, tenant_id, placement_id)
        if found is not None:
            return decision_view(found, deps.workflow_url)
        return explanation_view(await explain_decision(connection, tenant_id, placement_id))


@router.post("/{placementId}/release")
async def release_model_placement(
    placement_id: PlacementPath, deps: Uses, tenant_id: Tenant, placing: Places
) -> ModelPlacementView:
    """Give back what a placement keeps. One that has ended, or chose no pool, is answered as it is."""
    released = _known(await placing.release(tenant_id, placement_id), placement_id)
    return placement_view(released, deps.workflow_url)


@router.post("/{placementId}/renew")
async def renew_model_placement(
    placement_id: PlacementPath, deps: Uses, tenant_id: Tenant, placing: Places
) -> ModelPlacementView:
    """Hold a placement for another while from now on."""
    renewed = _known(await placing.renew(tenant_id, placement_id), placement_id)
    if not _in_force(renewed, deps):
        raise Problem(problems.PLACEMENT_ENDED, f"placement {placement_id} {_why_not(renewed)}")
    return placement_view(renewed, deps.workflow_url)


def _known(found: StoredPlacement | None, placement_id: UUID) -> StoredPlacement:
    if found is None:
        raise UnknownPlacement(f"no placement {placement_id} of a model")
    return found


def _in_force(found: StoredPlacement, deps: Deps) -> bool:
    return found.held and found.expires_at is not None and found.expires_at > deps.now()


def _why_not(found: StoredPlacement) -> str:
    if found.state is PlacementState.NONE:
        return "chose no pool, so it keeps nothing"
    ended = found.ended_at or found.expires_at
    assert ended is not None
    verb = "was released" if found.state is PlacementState.RELEASED else "expired"
    return f"{verb} at {ended:%Y-%m-%d %H:%M:%S} UTC"

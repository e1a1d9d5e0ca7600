"""The screens of model placements: all of them, and one explained. The same data as the API gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from api.deps import Tenant, Uses
from api.model_placement_view import ModelCandidateView, ModelDecisionView
from api.model_placements import ModelPlacementQuery, PlacementPath, get_decision, list_model_placements
from api.web.forms import ROWS, CandidateForm, ModelPlacementForm, rows_of, sheet
from api.web.render import page
from domain.serving.placing import PlacementOutcome
from store.tables import PlacementState

router = APIRouter()
UI_PLACEMENTS = "/ui/model-placements"


@router.get(UI_PLACEMENTS)
async def show_placements(
    request: Request, form: Annotated[ModelPlacementForm, Query()], deps: Uses, tenant_id: Tenant
) -> Response:
    """Placements of models, newest first."""
    asked = form.model_dump(exclude={"page", "after"}, by_alias=True)
    query = ModelPlacementQuery.model_validate(asked | {"pageSize": ROWS, "pageToken": form.after})
    found = await list_model_placements(query, deps, tenant_id)
    return page(
        request,
        "placements.html",
        form=form,
        rows=found.items,
        older=found.next_page_token,
        filtered=any(asked.values()),
        outcomes=list(PlacementOutcome),
        states=list(PlacementState),
        now=deps.now(),
    )


@router.get(UI_PLACEMENTS + "/{placementId}")
async def show_placement(
    request: Request,
    placement_id: PlacementPath,
    form: Annotated[CandidateForm, Query()],
    deps: Uses,
    tenant_id: Tenant,
) -> Response:
    """One placement: what was asked, what was decided and why, and what came of it."""
    decision = await get_decision(placement_id, deps, tenant_id)
    if not isinstance(decision, ModelDecisionView):
        why = f"/ui/placements/{decision.workload_id}/why?generation={decision.generation}"
        return RedirectResponse(why)
    found = candidates_of(decision.candidates, form)
    return page(
        request,
        "placement.html",
        placement=decision,
        chosen=next((one for one in decision.candidates if one.kept), None),
        form=form,
        rows=rows_of(form.page, found),
        sheet=sheet(form.page, len(found)),
        reasons=[one.reason for one in decision.counts_by_reason],
        now=deps.now(),
    )


def candidates_of(candidates: Sequence[ModelCandidateView], form: CandidateForm) -> list[ModelCandidateView]:
    """The pools that a person asked to see."""
    return [
        one
        for one in candidates
        if form.search.lower() in f"{one.tenant_id}/{one.pool_id}" and form.reason in (None, one.reason)
    ]

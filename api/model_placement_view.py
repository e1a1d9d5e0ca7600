"""A placement of a model as it is told: what was asked, what came of it, and every pool with its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, Self
from uuid import UUID

from activities.model_placing import Placed
from activities.secrets.ports import Credential
from api.explanation_view import ReasonCountView
from api.shapes import View
from domain.ids import model_placement_workflow_id
from domain.money import rounded
from domain.pool import SecurityBoundary
from domain.reasons import MODEL_REASON_TEXT, Reason
from domain.serving.placing import MICRO, Parts, PlacementOutcome
from domain.serving.record import Candidate, candidates, in_a_sentence
from domain.serving.requirements import LatencyClass, ModelRequirements
from store.model_placements import StoredPlacement
from store.tables import PlacementState

WorkflowUrl = Callable[[str], str | None]


class ModelRequirementsView(View):
    """What was asked of a pool."""

    vram_gb: int
    boundary: SecurityBoundary
    regions: list[str]
    latency_class: LatencyClass
    max_price_per_hour_usd: Decimal | None


class ScorePartsView(View):
    """The parts of a score before their weights, 0 to 1 each."""

    warm: Decimal
    price: Decimal
    utilization: Decimal
    latency: Decimal


class ModelCandidateView(View):
    """One pool that was looked at. What is scored is null where a filter left the pool out before."""

    tenant_id: str
    pool_id: str
    kept: bool
    reason: Reason | None
    text: str
    price_per_hour_usd: Decimal
    score: Decimal | None
    parts: ScorePartsView | None
    warm: bool | None
    cold_start_seconds: int | None
    start_seconds: int | None


class CredentialView(View):
    """What requests to the endpoint are signed with, for a short time."""

    token: str
    expires_at: datetime

    @classmethod
    def of(cls, credential: Credential | None) -> Self | None:
        if credential is None:
            return None
        return cls(token=credential.token.get_secret_value(), expires_at=credential.expires_at)


class ModelPlacementView(View):
    """A placement. `coldStartSeconds` is how long the model was expected to load when it was decided.

    A pool is named in full by its tenant and its id. `problem` says why the model did not load.
    """

    kind: Literal["model"] = "model"
    placement_id: UUID
    deployment_id: str
    run_id: UUID | None
    model: str
    requirements: ModelRequirementsView
    outcome: PlacementOutcome
    text: str
    state: PlacementState
    chosen_pool_tenant_id: str | None
    chosen_pool_id: str | None
    warm: bool
    cold_start_seconds: int
    caused_load: bool
    decided_at: datetime
    expires_at: datetime | None
    ended_at: datetime | None
    problem: str | None
    workflow_id: str | None
    temporal_url: str | None


class ModelDecisionView(ModelPlacementView):
    """A placement with every candidate: the chosen pool, those it outscored, then the others by reason."""

    weights: ScorePartsView
    counts_by_reason: list[ReasonCountView]
    candidates: list[ModelCandidateView]


class PlacedModelView(ModelDecisionView):
    """What whoever places is answered. Endpoint and credential are null where no pool was chosen."""

    endpoint_ref: str | None
    credential: CredentialView | None


def placement_view(one: StoredPlacement, workflow_url: WorkflowUrl) -> ModelPlacementView:
    return ModelPlacementView.model_validate(_told(one, workflow_url))


def decision_view(one: StoredPlacement, workflow_url: WorkflowUrl) -> ModelDecisionView:
    return ModelDecisionView.model_validate(_decided(one, workflow_url))


def placed_view(placed: Placed, workflow_url: WorkflowUrl) -> PlacedModelView:
    told = _decided(placed.record, workflow_url)
    own = {"endpoint_ref": placed.endpoint_ref, "credential": CredentialView.of(placed.credential)}
    return PlacedModelView.model_validate(told | own)


def _told(one: StoredPlacement, workflow_url: WorkflowUrl) -> dict[str, Any]:
    asked = ModelRequirements.model_validate(one.requirements)
    names = set(ModelPlacementView.model_fields) & set(StoredPlacement.__slots__)
    told: dict[str, Any] = {name: getattr(one, name) for name in names}
    workflow_id = None
    if one.pool_id is not None and not one.warm:
        workflow_id = model_placement_workflow_id(one.tenant_id, one.placement_id)
    return told | {
        "requirements": ModelRequirementsView(
            vram_gb=asked.vram_gb,
            boundary=asked.boundary,
            regions=list(asked.regions),
            latency_class=asked.latency_class,
            max_price_per_hour_usd=asked.max_price_per_hour_usd,
        ),
        "text": in_a_sentence(
            one.outcome, one.model, one.pool_id, None if one.warm else one.cold_start_seconds
        ),
        "chosen_pool_tenant_id": one.pool_tenant_id,
        "chosen_pool_id": one.pool_id,
        "workflow_id": workflow_id,
        "temporal_url": None if workflow_id is None else workflow_url(workflow_id),
    }


def _decided(one: StoredPlacement, workflow_url: WorkflowUrl) -> dict[str, Any]:
    found = list(candidates(one.candidates, one.tenant_id))
    counts = Counter(each.reason for each in found if each.reason is not None)
    return _told(one, workflow_url) | {
        "weights": ScorePartsView(**dict(zip(Parts._fields, one.candidates["weights"], strict=True))),
        "counts_by_reason": [
            ReasonCountView(reason=reason, text=MODEL_REASON_TEXT[reason], pools=counts[reason])
            for reason in Reason
            if counts[reason]
        ],
        "candidates": [_candidate(each) for each in found],
    }


def _candidate(one: Candidate) -> ModelCandidateView:
    parts = None
    if one.parts is not None:
        shares = {name: Decimal(value) / MICRO for name, value in one.parts._asdict().items()}
        parts = ScorePartsView(**shares)
    score = None if one.score is None else rounded(one.score)
    return ModelCandidateView(**one._asdict() | {"parts": parts, "score": score})

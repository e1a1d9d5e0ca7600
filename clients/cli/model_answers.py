"""The server's answers about models: where they are placed, and what is on the pools that serve them."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from pydantic import Field

from clients.cli.answers import Amount, Answer


class PlacementState(StrEnum):
    """Whether a placement keeps memory on its pool; `none` where no pool was chosen."""

    NONE = "none"
    HELD = "held"
    RELEASED = "released"
    EXPIRED = "expired"


class Requirements(Answer):
    """What was asked of a pool. Memory is in GB, the price in US dollars per hour."""

    vram_gb: int
    boundary: str
    regions: tuple[str, ...] = ()
    latency_class: str
    max_price_per_hour_usd: Amount | None = None


class ModelPlacement(Answer):
    """A placement of a model; `problem` says why the model did not load."""

    placement_id: UUID
    deployment_id: str
    run_id: UUID | None = None
    model: str
    requirements: Requirements
    outcome: str
    text: str
    state: str
    chosen_pool_tenant_id: str | None = None
    chosen_pool_id: str | None = None
    warm: bool
    cold_start_seconds: int
    decided_at: datetime
    expires_at: datetime | None = None
    ended_at: datetime | None = None
    problem: str | None = None
    workflow_id: str | None = None


class ScoreParts(Answer):
    """The parts of a score before their weights, 0 to 1 each; or the weights."""

    warm: Amount
    price: Amount
    utilization: Amount
    latency: Amount


class ModelCandidate(Answer):
    """One pool of a decision; what is scored is None where it was left out before."""

    tenant_id: str
    pool_id: str
    reason: str | None = None
    text: str = ""
    price_per_hour_usd: Amount
    score: Amount | None = None
    parts: ScoreParts | None = None
    start_seconds: int | None = None


class ModelDecision(ModelPlacement):
    """A placement with every candidate: the chosen pool, those it outscored, then the others."""

    weights: ScoreParts
    candidates: tuple[ModelCandidate, ...]


class EndpointCredential(Answer):
    """What requests to the endpoint are signed with. It is hidden wherever it is not asked for."""

    token: str = Field(repr=False)
    expires_at: datetime


class PlacedModel(ModelDecision):
    """What whoever places is answered; endpoint and credential are None where no pool was chosen."""

    endpoint_ref: str | None = None
    credential: EndpointCredential | None = None


class ModelOnPool(Answer):
    """What only a pool's owner is told of a model on it; `holds` are the placements that keep it there."""

    model: str
    holds: int
    load_problem: str | None = None


class Load(Answer):
    """One load of a model; `seconds` is None where nobody saw it begin and end."""

    model: str
    cause: str
    started_at: datetime
    seconds: Amount | None = None
    outcome: str | None = None
    problem: str | None = None


class PoolHistory(Answer):
    """What is told of a serving pool beside its state: its newest loads among them."""

    models: tuple[ModelOnPool, ...] = ()
    loads: tuple[Load, ...] = ()

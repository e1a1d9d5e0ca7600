"""What is asked of a pool that is to run a model. A requirement is never relaxed."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Annotated
from uuid import UUID

from pydantic import Field, field_validator

from domain.model import Frozen
from domain.pool import Name, SecurityBoundary
from domain.serving.models import ModelName, plain_name

MAX_VRAM_GB = 100_000
MAX_REGIONS = 64

DeploymentId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
VramGb = Annotated[int, Field(ge=1, le=MAX_VRAM_GB)]


class LatencyClass(StrEnum):
    """How soon the model has to serve; each class has its limit in the policy."""

    INTERACTIVE = "interactive"
    STANDARD = "standard"
    BATCH = "batch"


STRICTNESS: dict[str, int] = {
    SecurityBoundary.SHARED: 0,
    SecurityBoundary.REGIONAL: 1,
    SecurityBoundary.PRIVATE: 2,
}


class ModelRequirements(Frozen):
    """Where a model may run.

    `vram_gb` is the accelerator memory that it needs, in GB. `boundary` is the least strict boundary that
    is acceptable: stricter ones are too. No `regions` means any. Prices are per pool and hour, in US dollars.
    """

    deployment_id: DeploymentId
    run_id: UUID | None = None
    model: ModelName
    vram_gb: VramGb
    boundary: SecurityBoundary
    regions: Annotated[tuple[Name, ...], Field(max_length=MAX_REGIONS)] = ()
    latency_class: LatencyClass = LatencyClass.STANDARD
    max_price_per_hour_usd: Annotated[Decimal, Field(ge=0, max_digits=18, decimal_places=6)] | None = None

    @field_validator("model")
    @classmethod
    def _in_plain_words(cls, model: str) -> str:
        """A model with the tag that is meant anyway, and without it, is one model."""
        return plain_name(model)

    @field_validator("regions")
    @classmethod
    def _in_one_order(cls, regions: tuple[str, ...]) -> tuple[str, ...]:
        """Equal sets of regions are equal requirements, however they are written."""
        return tuple(sorted(set(regions)))

    @field_validator("max_price_per_hour_usd")
    @classmethod
    def _in_one_form(cls, price: Decimal | None) -> Decimal | None:
        """`1.5` and `1.500` are one price."""
        return None if price is None else price.normalize() + 0

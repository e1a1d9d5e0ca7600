"""The figures by which a pool is chosen for a model."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Self

from pydantic import Field, model_validator

from domain.model import Frozen
from domain.serving.requirements import LatencyClass

Weight = Annotated[Decimal, Field(ge=0, le=1, decimal_places=4)]
Seconds = Annotated[int, Field(ge=1, le=86_400)]
Weights = tuple[Decimal, ...]


class ModelPlacementTerms(Frozen):
    """How a pool is chosen for a model, and how long it is held for one.

    The weights add up to 1. A model has to serve within the `..._start_seconds` of its latency class; a
    request that waits before it takes `queued_request_seconds`. A pool that never told how long it loads a
    model is taken to need `unknown_cold_start_seconds`. `hold_seconds` after it was decided or renewed, a
    placement expires; `keep_days` after it was decided, one that has ended is forgotten. A pool where the
    model did not load is left alone for `failed_load_seconds`, by the tenant whose placement failed.
    """

    warm_weight: Weight = Decimal("0.4")
    price_weight: Weight = Decimal("0.3")
    utilization_weight: Weight = Decimal("0.2")
    latency_weight: Weight = Decimal("0.1")
    interactive_start_seconds: Seconds = 60
    standard_start_seconds: Seconds = 300
    batch_start_seconds: Seconds = 3600
    queued_request_seconds: Annotated[int, Field(ge=0, le=3600)] = 1
    unknown_cold_start_seconds: Annotated[int, Field(ge=0, le=86_400)] = 120
    hold_seconds: Annotated[int, Field(ge=10, le=86_400)] = 600
    failed_load_seconds: Annotated[int, Field(ge=0, le=3600)] = 60
    keep_days: Annotated[int, Field(ge=1, le=3650)] = 90

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        total = sum(self.weights)
        if total != 1:
            raise ValueError(f"the weights add up to {total}, not to 1")
        limits = [self.start_seconds(each) for each in LatencyClass]
        if limits != sorted(limits):
            raise ValueError(
                f"the start seconds {limits} must not fall from interactive to standard to batch"
            )
        return self

    @property
    def weights(self) -> Weights:
        """The weights of warm, price, utilization and latency."""
        return (self.warm_weight, self.price_weight, self.utilization_weight, self.latency_weight)

    def start_seconds(self, latency_class: LatencyClass) -> int:
        """Within how many seconds a model of this class has to serve."""
        limits = {
            LatencyClass.INTERACTIVE: self.interactive_start_seconds,
            LatencyClass.STANDARD: self.standard_start_seconds,
            LatencyClass.BATCH: self.batch_start_seconds,
        }
        return limits[latency_class]

"""Claims as they are told: totals, shapes, and what a list held besides."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from pydantic import Field

from api.shapes import View
from domain.claim import Demand, LeftOutReason
from domain.intake import Intake

MILLI = 1000
MIB_PER_GIB = 1024
LISTED = 1000


class ShapeView(View):
    """Equal units: what one of them needs, and how many there are."""

    units: int
    vcpu: float
    memory_gib: float
    gpus: int


class LeftOutView(View):
    """An entry that was understood and is not part of the claim."""

    name: str
    reason: LeftOutReason
    detail: str


class UnreadableView(View):
    """An entry that could not be understood."""

    name: str
    problem: str


class Launch(View):
    """The placement that was told of a claim. `queued`: it is taken up as soon as workflows can run."""

    workflow_id: str
    started: Literal[True, "queued"]


class ClaimView(View):
    """A claim in totals and shapes."""

    units: int
    vcpu: float
    memory_gib: float
    gpus: int
    shapes: list[ShapeView]


class ClaimAnswer(ClaimView):
    """What was made of a request. Lists hold the first 1,000 entries, totals count all of them.

    In a dry run `claimVersion` and `placement` are null, since nothing was stored or started.
    """

    workload_id: str
    claim_version: int | None
    left_out: list[LeftOutView] = Field(default_factory=list)
    left_out_total: int = 0
    left_out_by_reason: dict[str, int] = Field(default_factory=dict)
    unreadable: list[UnreadableView] = Field(default_factory=list)
    unreadable_total: int = 0
    notes: list[str] = Field(default_factory=list)
    placement: Launch | None = None


def claim_view(demand: Demand) -> ClaimView:
    return ClaimView(
        units=demand.units,
        vcpu=demand.vcpu_milli / MILLI,
        memory_gib=demand.ram_mib / MIB_PER_GIB,
        gpus=demand.gpus,
        shapes=[
            ShapeView(
                units=group.units,
                vcpu=group.shape.vcpu_milli / MILLI,
                memory_gib=group.shape.ram_mib / MIB_PER_GIB,
                gpus=group.shape.gpus,
            )
            for group in demand.shapes
        ],
    )


def left_out_views(intake: Intake) -> list[LeftOutView]:
    return [LeftOutView(**entry.model_dump()) for entry in intake.left_out[:LISTED]]


def left_out_counts(intake: Intake) -> dict[str, int]:
    return dict(sorted(Counter(entry.reason.value for entry in intake.left_out).items()))


def unreadable_views(intake: Intake) -> list[UnreadableView]:
    return [UnreadableView(**entry.model_dump()) for entry in intake.unreadable[:LISTED]]

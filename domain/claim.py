"""Claims: what a workload needs, as the scheduler counts it.

A unit is one pod or one task: the smallest piece that must fit on one instance. A claim groups
equal units into shapes. Totals are derived, never given.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from domain.model import Frozen
from domain.pool import Arch, Name, SecurityBoundary

MAX_SHAPES = 32
MAX_UNITS = 100_000
MAX_VCPU_MILLI = 4_096_000
MAX_RAM_MIB = 100_000_000
MAX_GPUS = 64

WorkloadId = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]


class Shape(Frozen):
    """What one unit needs: thousandths of a vCPU, MiB of memory, whole GPUs."""

    vcpu_milli: Annotated[int, Field(ge=1, le=MAX_VCPU_MILLI)]
    ram_mib: Annotated[int, Field(ge=1, le=MAX_RAM_MIB)]
    gpus: Annotated[int, Field(ge=0, le=MAX_GPUS)] = 0


class ShapeCount(Frozen):
    """`units` equal units of one shape."""

    shape: Shape
    units: Annotated[int, Field(ge=0, le=MAX_UNITS)]


class Requirements(Frozen):
    """Where the units may run. None means no restriction; a requirement is never relaxed."""

    arch: Arch = Arch.X86_64
    regions: tuple[Name, ...] | None = None
    boundaries: tuple[SecurityBoundary, ...] | None = None
    gpu_type: Name | None = None
    nvme: bool = False
    min_nic_gbps: Annotated[int, Field(ge=0, le=10_000)] = 0
    max_price_per_unit_hour_usd: Annotated[str, Field(pattern=r"^\d{1,12}(\.\d{1,6})?$")] | None = None


class Demand(Frozen):
    """The units that one workload wants to run, largest shape first, and where they may run."""

    shapes: tuple[ShapeCount, ...]
    requirements: Requirements = Requirements()

    @property
    def units(self) -> int:
        return sum(group.units for group in self.shapes)

    @property
    def vcpu_milli(self) -> int:
        return sum(group.units * group.shape.vcpu_milli for group in self.shapes)

    @property
    def ram_mib(self) -> int:
        return sum(group.units * group.shape.ram_mib for group in self.shapes)

    @property
    def gpus(self) -> int:
        return sum(group.units * group.shape.gpus for group in self.shapes)


class LeftOutReason(StrEnum):
    """Why an entry of a scheduler's list is not demand of ours. Refined by a detail in words."""

    NOT_PENDING = "not_pending"
    ALREADY_BOUND = "already_bound"
    BEING_DELETED = "being_deleted"
    HELD = "held"
    NODE_PINNED = "node_pinned"
    OTHER_WORKLOAD = "other_workload"
    NO_WORKLOAD = "no_workload"
    UNSUPPORTED_KIND = "unsupported_kind"
    UNSUPPORTED_RESOURCE = "unsupported_resource"


class LeftOut(Frozen):
    """One entry that was understood and is not part of the claim."""

    name: str
    reason: LeftOutReason
    detail: str = ""


class Unreadable(Frozen):
    """One entry that could not be understood: what was wrong, with the value and what is allowed."""

    name: str
    problem: str

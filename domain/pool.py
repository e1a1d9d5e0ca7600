"""Compute pools: what the registry holds and which state changes exist."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from domain.model import Frozen
from domain.serving.health import Health

PoolId = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{1,62}$")]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,62}$")]


class PurchaseModel(StrEnum):
    RECLAIMABLE = "reclaimable"
    GUARANTEED = "guaranteed"
    COMMITTED = "committed"


class PoolKind(StrEnum):
    WORKSTATION = "workstation"
    LOCAL_GPU_SERVER = "local_gpu_server"
    DGX_CLASS = "dgx_class"
    CLOUD_GPU = "cloud_gpu"
    AZURE = "azure"
    CUSTOMER_DATA_CENTRE = "customer_data_centre"
    PRIVATE_CLOUD = "private_cloud"


class SecurityBoundary(StrEnum):
    PRIVATE = "private"
    REGIONAL = "regional"
    SHARED = "shared"


class PoolState(StrEnum):
    DRAFT = "draft"
    ACTIVE = "active"
    DRAINING = "draining"
    RETIRED = "retired"


class Arch(StrEnum):
    X86_64 = "x86_64"
    ARM64 = "arm64"


class GroupBasis(StrEnum):
    """What makes pools fail together: one aggregate, one hall, or observed co-reclaims."""

    AGGREGATE = "aggregate"
    HALL = "hall"
    LEARNED = "learned"


TRANSITIONS: dict[tuple[PoolState, str], PoolState] = {
    (PoolState.DRAFT, "activate"): PoolState.ACTIVE,
    (PoolState.ACTIVE, "drain"): PoolState.DRAINING,
    (PoolState.DRAINING, "resume"): PoolState.ACTIVE,
    (PoolState.DRAINING, "retire"): PoolState.RETIRED,
}


def next_state(state: PoolState, action: str) -> PoolState | None:
    """The state after `action`, or None where the life of a pool has no such step."""
    return TRANSITIONS.get((state, action))


class PoolFacts(Frozen):
    """What is fixed when a pool is registered. Prices are per instance and hour, in US dollars."""

    pool_id: PoolId
    tenant_id: Name
    kind: PoolKind = PoolKind.PRIVATE_CLOUD
    region: Name
    hall: Name
    security_boundary: SecurityBoundary = SecurityBoundary.REGIONAL
    sku_family: Name
    size: Name
    arch: Arch = Arch.X86_64
    gpu_type: Name | None = None
    gpu_count: Annotated[int, Field(ge=0, le=64)] = 0
    vram_gb: Annotated[int, Field(ge=0, le=100_000)] = 0
    cpu_cores: Annotated[int, Field(ge=1, le=4096)]
    ram_gb: Annotated[int, Field(ge=1, le=100_000)]
    nvme: bool = False
    nic_gbps: Annotated[int, Field(ge=1, le=10_000)] = 10
    purchase_model: PurchaseModel
    group_id: Name
    group_basis: GroupBasis = GroupBasis.AGGREGATE
    price_per_hour_usd: Annotated[Decimal, Field(ge=0, max_digits=18, decimal_places=6)]
    guaranteed_price_per_hour_usd: Annotated[Decimal, Field(gt=0, max_digits=18, decimal_places=6)]
    flavor: Annotated[str, Field(min_length=1, max_length=255)]


class Pool(PoolFacts):
    """A pool as the registry holds it now. Capacity counts instances of this size.

    Health, silence, committed memory and the learned cold start are those of a pool with accelerator
    memory; another has none. What nobody knows yet is None as well.
    """

    state: PoolState
    capacity_instances: Annotated[int, Field(ge=0)] = 0
    reserved_instances: Annotated[int, Field(ge=0)] = 0
    utilization: Annotated[Decimal, Field(ge=0, le=1)] = Decimal(0)
    queue_depth: Annotated[int, Field(ge=0)] = 0
    reported_at: datetime | None = None
    cold_start_seconds: Annotated[int, Field(ge=0)] = 0
    endpoint_ref: str | None = None
    version: Annotated[int, Field(ge=1)] = 1
    draining_since: datetime | None = None
    drained_at: datetime | None = None
    health: Health | None = None
    health_problem: str | None = None
    health_changed_at: datetime | None = None
    probed_at: datetime | None = None
    stale_since: datetime | None = None
    committed_vram_gb: Annotated[int, Field(ge=0)] | None = None
    learned_cold_start_seconds: Annotated[int, Field(ge=0)] | None = None

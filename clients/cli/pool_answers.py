"""The server's answers about compute pools."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from clients.cli.answers import Amount, Answer


class LoadedModel(Answer):
    model: str
    vram_gb: int = 0
    last_used_at: datetime | None = None


class CachedModel(Answer):
    """A model that takes memory on a pool: promised, loading or loaded."""

    model: str
    vram_gb: int
    state: str
    loaded_at: datetime | None = None


class Held(Answer):
    """What is in a pool: planned units, live instances, whose they are, and loaded models."""

    units: int = 0
    instances: int = 0
    workloads: tuple[str, ...] = ()
    models: tuple[LoadedModel, ...] = ()


class Pool(Answer):
    pool_id: str
    tenant_id: str
    kind: str
    state: str
    region: str
    hall: str
    security_boundary: str
    sku_family: str
    size: str
    arch: str
    gpu_type: str | None = None
    gpu_count: int = 0
    vram_gb: int = 0
    cpu_cores: int
    ram_gb: int
    nvme: bool = False
    nic_gbps: int
    purchase_model: str
    group_id: str
    group_basis: str
    price_per_hour_usd: Amount
    guaranteed_price_per_hour_usd: Annotated[Amount, Field(gt=0)]
    flavor: str
    capacity_instances: int
    reserved_instances: int
    utilization: Amount
    queue_depth: int = 0
    reported_at: datetime | None = None
    cold_start_seconds: int = 0
    endpoint_ref: str | None = None
    version: int
    draining_since: datetime | None = None
    drained_at: datetime | None = None
    held: Held | None = None
    health: str | None = None
    health_problem: str | None = None
    health_changed_at: datetime | None = None
    probed_at: datetime | None = None
    stale_since: datetime | None = None
    committed_vram_gb: int | None = None
    learned_cold_start_seconds: int | None = None
    cached_models: tuple[CachedModel, ...] = ()
    placeable: bool
    not_placeable_reason: str | None = None
    not_placeable_text: str | None = None

    @property
    def serves(self) -> bool:
        """Whether models are served there; `vram_gb` is then the memory of all its devices together."""
        return self.vram_gb > 0 and self.endpoint_ref is not None

"""What the front door reaches behind the store, seen from inside."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from activities.model_placement_calls import ModelPlacementInput, PlacementRequest


class Starter(Protocol):
    """Starts what is durable, or tells what runs. Raises one of `launching.NOT_STARTED` where it cannot."""

    async def start(
        self, tenant_id: str, partition_id: str, workload_id: str, claim_version: int | None
    ) -> str:
        """The workflow id, once the placement is started or told."""

    async def start_audit(
        self, tenant_id: str, audit_id: UUID, partition_id: str | None, served_by: str
    ) -> str:
        """The workflow id, once the worker of partition `served_by` has the audit."""

    async def start_drain(self, tenant_id: str, pool_id: str) -> str:
        """The workflow id, once the drain of a pool is started, or told where it runs."""

    async def tell_drain(self, tenant_id: str, pool_id: str) -> None:
        """Let the drain of a pool look at what the pool has become, if one runs."""

    async def start_model_placement(self, request: ModelPlacementInput) -> str:
        """The workflow id, once what sees to the load of a placement is started, or runs already."""

    async def tell_model_placement(self, request: PlacementRequest) -> None:
        """Let the workflow of a placement look at what the placement has become, if one runs."""

    async def want_warm_keep(self, tenant_id: str, pool_id: str) -> str:
        """The workflow id, once what keeps a pool warm is started, or told to look where it runs."""

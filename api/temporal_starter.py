"""Starting placements and audits from the front door, through Temporal."""

from __future__ import annotations

from uuid import UUID

from temporalio.client import Client

from activities.audit_calls import AuditInput
from activities.audit_start import start_audit
from activities.drain_calls import PoolChanged, PoolDrainInput
from activities.drain_start import start_drain, tell_drain
from activities.model_placement_calls import ModelPlacementInput, PlacementRequest
from activities.model_placement_start import ModelPlacementStarter
from activities.placement_calls import ClaimChanged, PlacementInput
from activities.placement_start import start_placement
from activities.warm_calls import Wanted, WarmKeepInput
from activities.warm_keep_start import start_warm_keep


class TemporalStarter:
    """Starts or tells placements of workloads and models, and starts audits and drains."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._models = ModelPlacementStarter(client)

    async def start(
        self, tenant_id: str, partition_id: str, workload_id: str, claim_version: int | None
    ) -> str:
        """The workflow id, once Temporal has the placement. `RPCError` when Temporal does not answer."""
        return await start_placement(
            self._client,
            PlacementInput(tenant_id=tenant_id, partition_id=partition_id, workload_id=workload_id),
            ClaimChanged(claim_version=claim_version, why="asked for through the API"),
        )

    async def start_audit(
        self, tenant_id: str, audit_id: UUID, partition_id: str | None, served_by: str
    ) -> str:
        """The workflow id, once Temporal has the audit. `RPCError` when Temporal does not answer."""
        request = AuditInput(tenant_id=tenant_id, audit_id=audit_id, partition_id=partition_id)
        return await start_audit(self._client, request, served_by)

    async def start_drain(self, tenant_id: str, pool_id: str) -> str:
        """The workflow id, once Temporal has the drain. `RPCError` when Temporal does not answer."""
        request = PoolDrainInput(tenant_id=tenant_id, pool_id=pool_id)
        return await start_drain(self._client, request, PoolChanged(why="asked for through the API"))

    async def tell_drain(self, tenant_id: str, pool_id: str) -> None:
        """`RPCError` when Temporal does not answer; that no drain runs is none."""
        await tell_drain(self._client, tenant_id, pool_id, PoolChanged(why="asked for through the API"))

    async def start_model_placement(self, request: ModelPlacementInput) -> str:
        """The workflow id, once Temporal has the placement. `RPCError` when Temporal does not answer."""
        return await self._models.start_model_placement(request)

    async def tell_model_placement(self, request: PlacementRequest) -> None:
        """`RPCError` when Temporal does not answer; that no workflow runs is none."""
        await self._models.tell_model_placement(request)

    async def want_warm_keep(self, tenant_id: str, pool_id: str) -> str:
        """The workflow id, once Temporal has it. `RPCError` when Temporal does not answer."""
        request = WarmKeepInput(tenant_id=tenant_id, pool_id=pool_id)
        return await start_warm_keep(self._client, request, Wanted(why="asked for through the API"))

"""Starting placements from the front door, through Temporal."""

from __future__ import annotations

from temporalio.client import Client

from activities.placement_calls import ClaimChanged, PlacementInput
from activities.placement_start import start_placement


class TemporalStarter:
    """Starts or tells the placement of a workload."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def start(
        self, tenant_id: str, partition_id: str, workload_id: str, claim_version: int | None
    ) -> str:
        """The workflow id, once Temporal has the placement. `RPCError` when Temporal does not answer."""
        return await start_placement(
            self._client,
            PlacementInput(tenant_id=tenant_id, partition_id=partition_id, workload_id=workload_id),
            ClaimChanged(claim_version=claim_version, why="asked for through the API"),
        )

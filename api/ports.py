"""What the front door reaches behind the store, seen from inside."""

from __future__ import annotations

from typing import Protocol


class PlacementStarter(Protocol):
    """Starts durable placements, or tells the one that runs."""

    async def start(
        self, tenant_id: str, partition_id: str, workload_id: str, claim_version: int | None
    ) -> str:
        """The workflow id, once the placement is started. Raises one of `launching.NOT_STARTED` otherwise."""

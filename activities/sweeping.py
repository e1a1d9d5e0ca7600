"""The hand that sweeps: whatever was committed but not carried out is taken up again."""

from __future__ import annotations

from prometheus_client import Counter
from temporalio import activity
from temporalio.client import Client

from activities import metrics
from activities.placement_calls import SWEEP, ClaimChanged, PlacementInput, SweepRequest, Swept
from activities.placement_start import start_placement
from domain.reasons import ShortfallReason
from store import needs
from store.engine import Engine

POKED = Counter("sco_placements_poked_total", "Placements that a sweep started again", ["partition"])


class SweepingActivities:
    """Starts placements for one database through one Temporal client."""

    def __init__(self, engine: Engine, client: Client) -> None:
        self._engine = engine
        self._client = client

    @activity.defn(name=SWEEP)
    async def sweep_placements(self, request: SweepRequest) -> Swept:
        """Start the placement of every workload in need; starting one that runs only tells it."""
        async with self._engine.connect() as connection:
            found = await needs.workloads_in_need(
                connection, request.tenant_id, request.partition_id, request.limit
            )
            missing = await needs.shortfall_units(connection, request.tenant_id, request.partition_id)
        for reason in ShortfallReason:
            metrics.SHORTFALL.labels(request.partition_id, reason.value).set(missing.get(reason.value, 0))
        for workload_id, why in found:
            activity.heartbeat(workload_id)
            await start_placement(
                self._client,
                PlacementInput(
                    tenant_id=request.tenant_id,
                    partition_id=request.partition_id,
                    workload_id=workload_id,
                ),
                ClaimChanged(why=why),
            )
            POKED.labels(request.partition_id).inc()
        return Swept(poked=dict(found))

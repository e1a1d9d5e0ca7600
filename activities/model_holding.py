"""The hand that holds a model placement for its workflow: looks at it, ends it, records how its load went."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from uuid import UUID

import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities import model_placement_metrics as metrics
from activities.model_placement_calls import (
    ENDPOINT_DOWN,
    FAIL_PLACEMENT,
    LOOK_AT_PLACEMENT,
    RECORD_LOAD,
    UNKNOWN_PLACEMENT,
    LoadRecord,
    PlacementFailure,
    PlacementLook,
    PlacementRequest,
)
from domain.serving.health import MAX_PROBLEM
from store import model_placements
from store.engine import Connection, Engine
from store.model_placements import StoredPlacement

# Tenant that says so, owner and id of the pool, what is wrong with its endpoint.
Report = Callable[[str, str, str, str], Awaitable[None]]
log = structlog.get_logger("model_holding")


class ModelHoldingActivities:
    """Holds placements of one database. `report` says that the endpoint of a pool is down."""

    def __init__(self, engine: Engine, report: Report, *, now: Callable[[], datetime]) -> None:
        self._engine = engine
        self._report = report
        self._now = now

    @activity.defn(name=LOOK_AT_PLACEMENT)
    async def look(self, request: PlacementRequest) -> PlacementLook:
        """What the placement is now; one whose time is over expires with this look."""
        async with self._engine.begin() as connection:
            ended = await model_placements.end_if_due(
                connection, request.tenant_id, request.placement_id, self._now()
            )
            return _look(ended or await _find(connection, request.tenant_id, request.placement_id))

    @activity.defn(name=RECORD_LOAD)
    async def record_load(self, request: LoadRecord) -> PlacementLook:
        """Record that the model is loaded. A load that this placement caused is counted once."""
        async with self._engine.begin() as connection:
            caused = (
                await model_placements.record_load(connection, request.tenant_id, request.placement_id)
                if request.caused
                else None
            )
            found = caused or await _find(connection, request.tenant_id, request.placement_id)
        if caused is not None:
            metrics.COLD_STARTS.labels(caused.pool_tenant_id, caused.pool_id).inc()
        return _look(found)

    @activity.defn(name=FAIL_PLACEMENT)
    async def fail(self, request: PlacementFailure) -> PlacementLook:
        """Give back what a placement keeps whose model did not load, and report an endpoint that is down."""
        async with self._engine.begin() as connection:
            released = await model_placements.release_placement(
                connection,
                request.tenant_id,
                request.placement_id,
                at=self._now(),
                problem=f"{request.kind}: {request.problem}"[:MAX_PROBLEM],
            )
            found = released or await _find(connection, request.tenant_id, request.placement_id)
        if request.kind in ENDPOINT_DOWN and found.pool_tenant_id is not None and found.pool_id is not None:
            await self._report(found.tenant_id, found.pool_tenant_id, found.pool_id, request.problem)
        if released is not None:
            metrics.FAILED.labels(request.kind).inc()
            log.warning(
                "model_placement_failed",
                tenant=found.tenant_id,
                placement=str(found.placement_id),
                pool=found.pool_id,
                kind=request.kind,
            )
        return _look(found)


async def _find(connection: Connection, tenant_id: str, placement_id: UUID) -> StoredPlacement:
    found = await model_placements.find_placement(connection, tenant_id, placement_id)
    if found is None or found.expires_at is None:
        raise ApplicationError(
            f"no placement {placement_id} holds or held a pool", type=UNKNOWN_PLACEMENT, non_retryable=True
        )
    return found


def _look(found: StoredPlacement) -> PlacementLook:
    assert found.expires_at is not None
    return PlacementLook(state=found.state.value, expires_at=found.expires_at, problem=found.problem)

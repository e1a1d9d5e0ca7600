"""Telling Temporal of placements behind the back of whoever places: nobody waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

import structlog

from activities.model_placement_calls import ModelPlacementInput, PlacementRequest
from store.model_placements import StoredPlacement

# Starts and signals under way at once, each for so long; what is beyond is left to the sweep.
MAX_UNDER_WAY = 100
TEMPORAL_SECONDS = 3.0
log = structlog.get_logger("model_placing")


class Starter(Protocol):
    """Starts the workflow that sees to a placement's load and end. Raises where Temporal does not answer."""

    async def start_model_placement(self, request: ModelPlacementInput) -> str:
        """The workflow id, once it is started."""

    async def tell_model_placement(self, request: PlacementRequest) -> None:
        """Let the workflow look at what the placement has become, if one runs."""


class Telling:
    """Starts and tells workflows in the background.

    What is lost here is made up for: starts by the sweep, ends by the deadline of each workflow.
    """

    def __init__(self, starter: Starter | None) -> None:
        self._starter = starter
        self._under_way: set[asyncio.Task[None]] = set()

    def start(self, record: StoredPlacement) -> None:
        """Start what sees to the load of a placement that is held."""
        if self._starter is not None:
            self._in_background(self._starter.start_model_placement(workflow_input(record)), record)

    def tell(self, record: StoredPlacement) -> None:
        """Tell the workflow of a placement that it has ended."""
        if self._starter is not None:
            request = PlacementRequest(tenant_id=record.tenant_id, placement_id=record.placement_id)
            self._in_background(self._starter.tell_model_placement(request), record)

    async def settle(self) -> None:
        """Wait until what is under way has come to its end."""
        while self._under_way:
            await asyncio.gather(*self._under_way, return_exceptions=True)

    def _in_background(self, work: Coroutine[Any, Any, object], record: StoredPlacement) -> None:
        if len(self._under_way) >= MAX_UNDER_WAY:
            work.close()
            return
        task = asyncio.create_task(_attempt(work, record))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)


async def _attempt(work: Coroutine[Any, Any, object], record: StoredPlacement) -> None:
    try:
        async with asyncio.timeout(TEMPORAL_SECONDS):
            await work
    except Exception as error:
        log.warning("model_placement_queued", placement=str(record.placement_id), error=type(error).__name__)


def workflow_input(record: StoredPlacement) -> ModelPlacementInput:
    """What the workflow of a placement that is held starts with."""
    assert record.pool_tenant_id is not None
    assert record.pool_id is not None
    return ModelPlacementInput(
        tenant_id=record.tenant_id,
        placement_id=record.placement_id,
        pool_tenant_id=record.pool_tenant_id,
        pool_id=record.pool_id,
        model=record.model,
        vram_gb=record.vram_gb,
        cold_start_seconds=record.cold_start_seconds,
    )

"""The promise of a model placement: its model is loaded, and what it keeps is given back in time.

Postgres says what the placement is; a signal only makes the next look come at once. Whatever runs out here
is read from the store before it is given up.
"""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.model_placement_calls import (
        FAIL_PLACEMENT,
        LOAD_MODEL,
        LOOK_AT_PLACEMENT,
        MODEL_PLACEMENT,
        PLACEMENT_RELEASED,
        RECORD_LOAD,
        LoadModelRequest,
        LoadRecord,
        ModelLoaded,
        ModelPlacementEnded,
        ModelPlacementInput,
        PlacementFailure,
        PlacementLook,
        PlacementReleased,
        PlacementRequest,
    )
    from workflows import terms


@workflow.defn(name=MODEL_PLACEMENT)
class ModelPlacement:
    """Waits for one placement: for its load, then until it is released or its time is over."""

    def __init__(self) -> None:
        self._told = False

    @workflow.signal(name=PLACEMENT_RELEASED)
    def placement_released(self, release: PlacementReleased | None = None) -> None:
        """Look at the placement now; what it has become is read from the store."""
        del release
        self._told = True

    @workflow.run
    async def run(self, request: ModelPlacementInput) -> ModelPlacementEnded:
        look = await self._look(request)
        if look.held and not request.loaded:
            look = await self._load(request, look)
            request = request.model_copy(update={"loaded": look.problem is None})
        while look.held:
            _tell(terms.HELD, f"{request.model} is loaded on {request.pool_id}; {_until(look)}")
            await self._wait(look)
            self._told = False
            look = await self._look(request)
            if look.held and workflow.info().is_continue_as_new_suggested():
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(request)
        return _ended(request, look)

    async def _wait(self, look: PlacementLook) -> None:
        """Until somebody tells of a release, or the time is over."""
        left = look.expires_at - workflow.now()
        try:
            await workflow.wait_condition(
                lambda: self._told, timeout=max(left, terms.LEAST_WAIT), timeout_summary="time is over"
            )
        except TimeoutError:
            return

    async def _load(self, request: ModelPlacementInput, look: PlacementLook) -> PlacementLook:
        """Have the model loaded, and record how that ended.

        A load that began comes to its end whatever becomes of the placement: others may count on it.
        """
        about = f"about {request.cold_start_seconds} s"
        _tell(terms.LOADING, f"loading {request.model} on {request.pool_id}, {about}; {_until(look)}")
        try:
            loaded: ModelLoaded = await workflow.execute_activity(
                LOAD_MODEL,
                LoadModelRequest(
                    tenant_id=request.pool_tenant_id,
                    pool_id=request.pool_id,
                    model=request.model,
                    vram_gb=request.vram_gb,
                    cause="placement",
                ),
                result_type=ModelLoaded,
                start_to_close_timeout=terms.LOAD_TIMEOUT,
                schedule_to_close_timeout=terms.LOAD_PATIENCE,
                heartbeat_timeout=terms.HEARTBEAT,
                retry_policy=terms.LOAD_RETRY,
                summary=f"load {request.model} on {request.pool_id}",
            )
        except ActivityError as error:
            return await self._fail(request, error)
        return await self._record(request, loaded)

    async def _record(self, request: ModelPlacementInput, loaded: ModelLoaded) -> PlacementLook:
        look: PlacementLook = await workflow.execute_activity(
            RECORD_LOAD,
            LoadRecord(tenant_id=request.tenant_id, placement_id=request.placement_id, caused=loaded.caused),
            result_type=PlacementLook,
            start_to_close_timeout=terms.STORE_TIMEOUT,
            heartbeat_timeout=terms.HEARTBEAT,
            retry_policy=terms.STORE_RETRY,
            summary=f"{request.model} is loaded on {request.pool_id}",
        )
        return look

    async def _fail(self, request: ModelPlacementInput, error: ActivityError) -> PlacementLook:
        kind, problem = _problem(error)
        look: PlacementLook = await workflow.execute_activity(
            FAIL_PLACEMENT,
            PlacementFailure(
                tenant_id=request.tenant_id, placement_id=request.placement_id, kind=kind, problem=problem
            ),
            result_type=PlacementLook,
            start_to_close_timeout=terms.STORE_TIMEOUT,
            heartbeat_timeout=terms.HEARTBEAT,
            retry_policy=terms.STORE_RETRY,
            summary=f"{request.model} did not load on {request.pool_id}: {kind}",
        )
        return look

    async def _look(self, request: ModelPlacementInput) -> PlacementLook:
        look: PlacementLook = await workflow.execute_activity(
            LOOK_AT_PLACEMENT,
            PlacementRequest(tenant_id=request.tenant_id, placement_id=request.placement_id),
            result_type=PlacementLook,
            start_to_close_timeout=terms.STORE_TIMEOUT,
            heartbeat_timeout=terms.HEARTBEAT,
            retry_policy=terms.STORE_RETRY,
            summary="what has become of the placement",
        )
        return look


def _tell(phase: str, details: str) -> None:
    workflow.set_current_details(details)
    workflow.upsert_search_attributes([terms.PHASE.value_set(phase)])


def _until(look: PlacementLook) -> str:
    return f"held until {look.expires_at:%Y-%m-%d %H:%M} UTC"


def _ended(request: ModelPlacementInput, look: PlacementLook) -> ModelPlacementEnded:
    outcome = look.state if look.problem is None else terms.FAILED
    _tell(outcome, outcome if look.problem is None else f"failed: {look.problem}")
    return ModelPlacementEnded(outcome=outcome, loaded=request.loaded)


def _problem(error: ActivityError) -> tuple[str, str]:
    """The word and the sentence for a load that failed."""
    cause = error.cause
    if isinstance(cause, ApplicationError):
        return cause.type or terms.FAILED, cause.message
    return "timeout", "the model was not loaded in time"

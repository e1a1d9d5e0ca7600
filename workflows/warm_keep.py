"""The promise of warm keeping: a pool that serves models is looked at every few minutes, and when asked.

Postgres says what is wanted and the endpoint what is there; a signal only makes the next look come at once.
Loads take minutes, so they run beside the looks.
"""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.model_placement_calls import LOAD_MODEL, LoadModelRequest, ModelLoaded
    from activities.warm_calls import (
        LOOK_AT_MODELS,
        WANTED,
        WARM_KEEP,
        FailedLoad,
        ModelsLooked,
        Wanted,
        WarmKeepEnded,
        WarmKeepInput,
    )
    from workflows import terms

Loading = workflow.ActivityHandle[ModelLoaded]


@workflow.defn(name=WARM_KEEP)
class WarmKeep:
    """Keeps one pool warm until it serves no models any more. `wanted` does not wait for the next look."""

    def __init__(self) -> None:
        self._wanted = False
        self._loading: dict[str, Loading] = {}

    @workflow.signal(name=WANTED)
    def wanted(self, wanted: Wanted | None = None) -> None:
        """Look at the pool now; what is wanted of it is read from the store."""
        del wanted
        self._wanted = True

    @workflow.run
    async def run(self, request: WarmKeepInput) -> WarmKeepEnded:
        while True:
            self._wanted = False
            looked = await self._look(request)
            if looked.over and not self._wanted:
                return self._ended()
            for one in looked.loads:
                if one.model not in self._loading:
                    self._loading[one.model] = self._load(one)
            if not self._loading and workflow.info().is_continue_as_new_suggested():
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(request)
            due = await self._wait(looked, request.failed)
            # What failed is tried again when it is time or somebody asks, not because another load ended.
            known = () if due else request.failed
            request = request.model_copy(update={"failed": known + await self._failed()})

    async def _look(self, request: WarmKeepInput) -> ModelsLooked:
        looked: ModelsLooked = await workflow.execute_activity(
            LOOK_AT_MODELS,
            request,
            result_type=ModelsLooked,
            start_to_close_timeout=terms.MODELS_LOOK_TIMEOUT,
            heartbeat_timeout=terms.HEARTBEAT,
            retry_policy=terms.STORE_RETRY,
            summary=f"look at the models of {request.pool_id}",
        )
        return looked

    def _load(self, request: LoadModelRequest) -> Loading:
        return workflow.start_activity(
            LOAD_MODEL,
            request,
            result_type=ModelLoaded,
            start_to_close_timeout=terms.LOAD_TIMEOUT,
            schedule_to_close_timeout=terms.LOAD_PATIENCE,
            heartbeat_timeout=terms.HEARTBEAT,
            retry_policy=terms.LOAD_RETRY,
            cancellation_type=workflow.ActivityCancellationType.TRY_CANCEL,
            summary=f"load {request.model} on {request.pool_id}",
        )

    async def _wait(self, looked: ModelsLooked, failed: tuple[FailedLoad, ...]) -> bool:
        """Until somebody wants something or it is time for the next look: True. Or a load ended: False."""
        workflow.set_current_details(self._details(looked, failed))
        _tell_phase(looked)
        try:
            await workflow.wait_condition(
                lambda: self._wanted or bool(self._done()),
                timeout=looked.pause_seconds,
                timeout_summary="next look",
            )
        except TimeoutError:
            return True
        return self._wanted

    def _done(self) -> list[str]:
        return [model for model, loading in self._loading.items() if loading.done()]

    async def _failed(self) -> tuple[FailedLoad, ...]:
        """What came of the loads that ended: those that failed, with their problem."""
        failed = []
        for model in self._done():
            loading = self._loading.pop(model)
            try:
                await loading
            except ActivityError as error:
                failed.append(_failure(model, error))
        return tuple(failed)

    def _details(self, looked: ModelsLooked, failed: tuple[FailedLoad, ...]) -> str:
        """Such as `2 of 3 models warm; loading llama; next look 14:35 UTC`."""
        said = [f"{looked.warm} of {looked.kept} models warm"]
        if looked.problem is not None:
            said = [f"the endpoint cannot be asked: {looked.problem}"]
        said += [f"loading {', '.join(self._loading)}"] if self._loading else []
        said += [f"unloaded {', '.join(looked.evicted)}"] if looked.evicted else []
        said += [f"{one.model} was not loaded: {one.problem}" for one in failed]
        said += [f"no memory for {', '.join(looked.short)}"] if looked.short else []
        said += [f"next look {looked.next_look_at:%H:%M} UTC"] if looked.next_look_at is not None else []
        return "; ".join(said)

    def _ended(self) -> WarmKeepEnded:
        """What is still being loaded is needed by nobody here; whoever else needs it loads it on."""
        for loading in self._loading.values():
            loading.cancel()
        workflow.set_current_details(NO_MORE)
        workflow.upsert_search_attributes([terms.PHASE.value_set(terms.ENDED)])
        return WarmKeepEnded(why=NO_MORE)


NO_MORE = "the pool serves no models any more"


def _tell_phase(looked: ModelsLooked) -> None:
    """Let lists of workflows tell a warm pool from one that misses models or cannot be asked."""
    phase = terms.WARM if looked.warm >= looked.kept else terms.MISSING
    if looked.problem is not None:
        phase = terms.UNSEEN
    known = workflow.info().typed_search_attributes.get(terms.PHASE)
    # Runs that began before phases were told end without them.
    if phase != known and workflow.patched("phase of models"):
        workflow.upsert_search_attributes([terms.PHASE.value_set(phase)])


def _failure(model: str, error: ActivityError) -> FailedLoad:
    """The word and the sentence for a load that failed."""
    cause = error.cause
    if isinstance(cause, ApplicationError):
        return FailedLoad(model=model, kind=cause.type or terms.FAILED, problem=cause.message)
    return FailedLoad(model=model, kind="timeout", problem="the model was not loaded in time")

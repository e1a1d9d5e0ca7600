"""The promise of a drain: a pool is looked at until it holds nothing, or until it is resumed.

Postgres says what the pool is; a signal only makes the next look come at once. Whatever is held there
leaves by the ordinary placement path.
"""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.drain_calls import (
        DRAIN_POOL,
        POOL_CHANGED,
        POOL_DRAIN,
        DrainLooked,
        PoolChanged,
        PoolDrained,
        PoolDrainInput,
    )
    from workflows import terms


@workflow.defn(name=POOL_DRAIN)
class PoolDrain:
    """Waits for one pool to become empty. `pool_changed` does not wait for the next look."""

    def __init__(self) -> None:
        self._changed = False

    @workflow.signal(name=POOL_CHANGED)
    def pool_changed(self, change: PoolChanged | None = None) -> None:
        """Look at the pool now; what it has become is read from the store."""
        del change
        self._changed = True

    @workflow.run
    async def run(self, request: PoolDrainInput) -> PoolDrained:
        while True:
            self._changed = False
            looked = await self._look(request)
            if looked.over and not self._changed:
                return self._ended(looked)
            request = request.model_copy(update={"told_since": looked.since})
            if workflow.info().is_continue_as_new_suggested():
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(request)
            await self._wait(looked)

    async def _look(self, request: PoolDrainInput) -> DrainLooked:
        looked: DrainLooked = await workflow.execute_activity(
            DRAIN_POOL,
            request,
            result_type=DrainLooked,
            start_to_close_timeout=terms.DRAIN_LOOK_TIMEOUT,
            heartbeat_timeout=terms.HEARTBEAT,
            retry_policy=terms.STORE_RETRY,
            summary=f"look at what {request.pool_id} still holds",
        )
        workflow.set_current_details(_details(looked))
        return looked

    async def _wait(self, looked: DrainLooked) -> None:
        try:
            await workflow.wait_condition(
                lambda: self._changed, timeout=looked.pause_seconds, timeout_summary="next look"
            )
        except TimeoutError:
            return

    def _ended(self, looked: DrainLooked) -> PoolDrained:
        outcome = terms.DRAINED if looked.drained_at is not None else terms.RESUMED
        workflow.upsert_search_attributes([terms.PHASE.value_set(outcome)])
        return PoolDrained(outcome=outcome, drained_at=looked.drained_at)


def _details(looked: DrainLooked) -> str:
    """Such as `draining since 2026-01-31 10:00 UTC; holds 4 units, 2 instances of orders`."""
    if looked.drained_at is not None:
        text = f"drained at {looked.drained_at:%Y-%m-%d %H:%M} UTC"
    elif looked.over or looked.since is None:
        text = f"the pool is {looked.state} again"
    else:
        text = f"draining since {looked.since:%Y-%m-%d %H:%M} UTC; holds {looked.held}"
    return text + (f"; unloaded {', '.join(looked.evicted)}" if looked.evicted else "")

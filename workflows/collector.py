"""The promise of the collector: every minute the pools of all tenants are gone over once."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.collecting_calls import COLLECT, COLLECTOR, Collected, CollectRequest
    from workflows import terms


@workflow.defn(name=COLLECTOR)
class Collector:
    """Collects once: silent pools, cold starts, expired placements and pool hours."""

    @workflow.run
    async def run(self, request: CollectRequest) -> Collected:
        collected: Collected = await workflow.execute_activity(
            COLLECT,
            request,
            result_type=Collected,
            start_to_close_timeout=terms.COLLECT_TIMEOUT,
            heartbeat_timeout=terms.HEARTBEAT,
            retry_policy=terms.COLLECT_RETRY,
            summary="mark silent pools, learn cold starts, expire placements, count hours",
        )
        workflow.set_current_details(_details(collected))
        return collected


def _details(collected: Collected) -> str:
    """Such as `3 placements expired; silent now: platform/gpu-1`."""
    said = [
        f"{collected.hours} pool hours counted, {collected.learned} cold starts learned,"
        f" {collected.expired} placements expired"
    ]
    said += [f"silent now: {terms.some(collected.stale)}"] if collected.stale else []
    said += [f"heard again: {terms.some(collected.fresh)}"] if collected.fresh else []
    return "; ".join(said)

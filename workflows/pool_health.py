"""The promise of health: every few seconds the endpoints of serving pools are asked whether they answer."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.probing_calls import POOL_HEALTH, PROBE_POOLS, Probed, ProbeRequest
    from workflows import terms


@workflow.defn(name=POOL_HEALTH)
class PoolHealth:
    """Probes once. What it finds of a pool counts together with what was found before."""

    @workflow.run
    async def run(self, request: ProbeRequest) -> Probed:
        probed: Probed = await workflow.execute_activity(
            PROBE_POOLS,
            request,
            result_type=Probed,
            start_to_close_timeout=terms.PROBE_TIMEOUT,
            heartbeat_timeout=terms.HEARTBEAT,
            retry_policy=terms.PROBE_RETRY,
            summary="ask every endpoint in service",
        )
        workflow.set_current_details(_details(probed))
        return probed


def _details(probed: Probed) -> str:
    """Such as `40 of 42 endpoints answered; degraded now: platform/gpu-1`."""
    said = [f"{probed.probed - probed.failing} of {probed.probed} endpoints answered"]
    said += [f"{probed.not_asked} could not be asked"] if probed.not_asked else []
    said += [f"degraded now: {terms.some(probed.degraded)}"] if probed.degraded else []
    said += [f"healthy again: {terms.some(probed.healed)}"] if probed.healed else []
    return "; ".join(said)

"""The promise of reconcile: every region of a partition is looked at, again and again, whatever happens.

One workflow per partition, for ever. Each region has a pace of its own: one that cannot be reached holds
up no other. What a cycle concludes is in the store; this workflow only sees to it that there is a next.
"""

from __future__ import annotations

import asyncio

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.reconcile_calls import (
        LOOK_NOW,
        RECONCILE,
        RECONCILE_REGION,
        WATCH_REGIONS,
        LookNow,
        Reconciled,
        ReconcileInput,
        ReconcileRequest,
        WatchRegions,
    )
    from domain.ids import provider_queue
    from workflows import terms


@workflow.defn(name=RECONCILE)
class Reconcile:
    """Looks at the fleet of one partition. `look_now` does not wait for the next cycle."""

    def __init__(self) -> None:
        self._regions: list[str] = []
        self._poked: dict[str, bool] = {}
        self._said: dict[str, str] = {}
        self._watches: list[asyncio.Task[None]] = []

    @workflow.signal(name=LOOK_NOW)
    def look_now(self, look: LookNow | None = None) -> None:
        """Look at one region now; without a body, or without a region, at all of them."""
        for region in self._regions:
            if look is None or look.region in (None, region):
                self._poked[region] = True

    @workflow.signal(name=WATCH_REGIONS)
    def watch_regions(self, watch: WatchRegions | None = None) -> None:
        """Look at more regions. Without a body nothing changes."""
        for region in watch.regions if watch is not None else ():
            if region not in self._regions:
                self._regions.append(region)

    @workflow.run
    async def run(self, request: ReconcileInput) -> None:
        self.watch_regions(WatchRegions(regions=request.regions))
        while not (self._watches and self._all_ended()):
            self._watches += [
                asyncio.create_task(self._watch(request, region))
                for region in self._regions[len(self._watches) :]
            ]
            await workflow.wait_condition(
                lambda: len(self._watches) < len(self._regions) or self._all_ended()
            )
        await asyncio.gather(*self._watches)
        await workflow.wait_condition(workflow.all_handlers_finished)
        workflow.continue_as_new(request.model_copy(update={"regions": tuple(self._regions)}))

    def _all_ended(self) -> bool:
        return all(each.done() for each in self._watches)

    async def _watch(self, request: ReconcileInput, region: str) -> None:
        """Cycles of one region, until the history is long enough."""
        while not workflow.info().is_continue_as_new_suggested():
            self._poked[region] = False
            started = workflow.time()
            pause_seconds = await self._cycle(request, region)
            await self._wait(region, started, pause_seconds)

    async def _wait(self, region: str, started: float, pause_seconds: float) -> None:
        """Wait for the next cycle; one that is asked for comes soon, but not at once after the last."""
        try:
            await workflow.wait_condition(
                lambda: self._poked[region],
                timeout=pause_seconds,
                timeout_summary=f"next look at {region}",
            )
        except TimeoutError:
            return
        early = started + terms.LOOK_AT_MOST_EVERY.total_seconds() - workflow.time()
        if early > 0:
            await workflow.sleep(early)

    async def _cycle(self, request: ReconcileInput, region: str) -> float:
        """One cycle; returns how many seconds to wait before the next."""
        try:
            done: Reconciled = await workflow.execute_activity(
                RECONCILE_REGION,
                ReconcileRequest(
                    tenant_id=request.tenant_id, partition_id=request.partition_id, region=region
                ),
                task_queue=provider_queue(request.tenant_id, region),
                result_type=Reconciled,
                start_to_close_timeout=terms.CYCLE_TIMEOUT,
                schedule_to_close_timeout=terms.CYCLE_PATIENCE,
                heartbeat_timeout=terms.HEARTBEAT,
                retry_policy=terms.CYCLE_RETRY,
                summary=f"look at {region}",
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            self._say(region, f"the last cycle failed: {error.cause}")
            return terms.FAILED_CYCLE_PAUSE.total_seconds()
        self._say(region, _seen(done))
        return done.pause_seconds

    def _say(self, region: str, text: str) -> None:
        self._said[region] = text
        workflow.set_current_details("\n".join(f"{one}: {said}" for one, said in sorted(self._said.items())))


def _seen(done: Reconciled) -> str:
    text = f"{done.phase.replace('_', '-')}, {done.servers} servers"
    if done.drift:
        text += ", drift " + ", ".join(f"{count} {kind}" for kind, count in sorted(done.drift.items()))
    repairs = {name: getattr(done, name) for name in ("adopted", "lost", "deleted", "retagged")}
    if any(repairs.values()):
        text += "; " + ", ".join(f"{count} {name}" for name, count in repairs.items() if count)
    if done.backlog:
        text += f"; {done.backlog} wait for the pace"
    return text

"""Records one history of every path through the workflows: `python -m tests.workflows.record_histories`.

Run it when a workflow was changed on purpose and no execution of the old code is left anywhere; until
then a change must replay the histories that are here. It starts a Temporal server of its own, plays
each story with fake hands, and writes `histories/<story>.json`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.common import RetryPolicy

from activities.audit_calls import AuditInput
from activities.audit_start import start_audit
from activities.collecting_calls import CollectRequest
from activities.drain_calls import DRAIN_POOL, POOL_CHANGED, PoolChanged, PoolDrainInput
from activities.drain_start import start_drain, tell_drain
from activities.placement_calls import ACQUIRE, CLAIM_CHANGED, FINISH
from activities.probing_calls import ProbeRequest
from activities.reconcile_calls import (
    LOOK_NOW,
    RECONCILE_REGION,
    WATCH_REGIONS,
    LookNow,
    ReconcileInput,
    WatchRegions,
)
from activities.warm_calls import LOOK_AT_MODELS, WANTED, Wanted
from domain.ids import partition_queue, provider_queue, reconcile_workflow_id
from tests.workflows.fake_hands import (
    TENANT,
    FakeHands,
    Stage,
    comes_true,
    eventually,
    open_stage,
    own_server,
)
from tests.workflows.model_placement_stories import MODEL_STORIES
from tests.workflows.serving_hands import ServingHands, run_once, seeing_to_pools
from tests.workflows.warm_hands import begin, keeping
from workflows import terms
from workflows.collector import Collector
from workflows.leases import LeaseWatch, LeaseWatchInput
from workflows.pool_health import PoolHealth
from workflows.reconcile import Reconcile
from workflows.scoring import Observation, ObservationInput, PlacementSweep, Scoring, ScoringInput

FOLDER = Path(__file__).parent / "histories"
LONG_HISTORY = {"limit.historyCount.suggestContinueAsNew": "20"}

Handle = WorkflowHandle[Any, Any]
Story = Callable[[Stage, FakeHands], Awaitable[Handle]]


async def placed(stage: Stage, hands: FakeHands) -> Handle:
    await stage.place(hands)
    return stage.handle(hands)


async def planned_again(stage: Stage, hands: FakeHands) -> Handle:
    hands.failing = 1
    return await placed(stage, hands)


async def shortfall(stage: Stage, hands: FakeHands) -> Handle:
    hands.failing = 1000
    return await placed(stage, hands)


async def grown(stage: Stage, hands: FakeHands) -> Handle:
    """A second run that launches and has nothing to give back."""
    await stage.place(hands)
    await stage.newer(hands)
    await stage.result(hands)
    return stage.handle(hands)


async def shrunk(stage: Stage, hands: FakeHands) -> Handle:
    """Nothing to launch, something to give back."""
    hands.surplus, hands.opening = True, False
    return await placed(stage, hands)


async def moved(stage: Stage, hands: FakeHands) -> Handle:
    hands.surplus = True
    return await placed(stage, hands)


async def coalesced(stage: Stage, hands: FakeHands) -> Handle:
    hands.hold(ACQUIRE)
    await stage.start(hands)
    await hands.until(ACQUIRE)
    await stage.newer(hands, versions=3)
    hands.let_go(ACQUIRE)
    await stage.result(hands)
    return stage.handle(hands)


async def claimed_at_the_end(stage: Stage, hands: FakeHands) -> Handle:
    hands.hold(FINISH)
    await stage.start(hands)
    await hands.until(FINISH)
    await stage.newer(hands)
    hands.let_go(FINISH)
    await stage.result(hands)
    return stage.handle(hands)


async def continued_as_new(stage: Stage, hands: FakeHands) -> Handle:
    """The first run, whose history became long."""
    hands.hold(ACQUIRE)
    handle = await stage.start(hands)
    await hands.until(ACQUIRE)
    first = (await handle.describe()).run_id
    await stage.newer(hands, versions=20)
    hands.let_go(ACQUIRE)
    await stage.result(hands)
    return stage.client.get_workflow_handle(handle.id, run_id=first)


async def region_unreachable(stage: Stage, hands: FakeHands) -> Handle:
    """With a short patience: replay does not depend on its length."""
    terms.REGION_PATIENCE = timedelta(seconds=1)
    hands.unreachable = frozenset(hands.regions[:1])
    return await placed(stage, hands)


async def database_away(stage: Stage, hands: FakeHands) -> Handle:
    """Long enough that a retry of the decision waits in the server."""
    terms.DECIDE_RETRY = RetryPolicy(initial_interval=terms.LOCAL_RETRY_THRESHOLD * 1.5)
    hands.lost_answers = 1
    return await placed(stage, hands)


async def extra_arguments(stage: Stage, hands: FakeHands) -> Handle:
    hands.hold(ACQUIRE)
    handle = await stage.start(hands)
    await hands.until(ACQUIRE)
    await handle.signal(CLAIM_CHANGED, args=[{"claim_version": 2}, "please"])
    hands.let_go(ACQUIRE)
    await stage.result(hands)
    return handle


async def cancelled(stage: Stage, hands: FakeHands) -> Handle:
    hands.hold(ACQUIRE)
    handle = await stage.start(hands)
    await hands.until(ACQUIRE)
    await handle.cancel()
    try:
        await stage.result(hands)
    except WorkflowFailureError:
        hands.let_go(ACQUIRE)
    return handle


async def scoring(stage: Stage, hands: FakeHands) -> Handle:
    request = ScoringInput(tenant_id=TENANT, partition_id=hands.partition)
    return await _ended(stage, Scoring.run, request, "scoring", partition_queue(TENANT, hands.partition))


async def sweep(stage: Stage, hands: FakeHands) -> Handle:
    request = ScoringInput(tenant_id=TENANT, partition_id=hands.partition)
    return await _ended(stage, PlacementSweep.run, request, "sweep", partition_queue(TENANT, hands.partition))


async def observation(stage: Stage, hands: FakeHands) -> Handle:
    request = ObservationInput(tenant_id=TENANT, region=hands.regions[0])
    return await _ended(
        stage, Observation.run, request, "observation", provider_queue(TENANT, hands.regions[0])
    )


async def leases(stage: Stage, hands: FakeHands) -> Handle:
    request = LeaseWatchInput(tenant_id=TENANT, region=hands.regions[0])
    return await _ended(stage, LeaseWatch.run, request, "leases", provider_queue(TENANT, hands.regions[0]))


async def reconciled(stage: Stage, hands: FakeHands) -> Handle:
    """Two regions, one of which cannot be reached, a look that is asked for, and a third region."""
    hands.unreachable = frozenset(hands.regions[1:])
    request = ReconcileInput(tenant_id=TENANT, partition_id=hands.partition, regions=hands.regions)
    handle: Handle = await stage.client.start_workflow(
        Reconcile.run,
        request,
        id=reconcile_workflow_id(TENANT, hands.partition),
        task_queue=partition_queue(TENANT, hands.partition),
    )
    await eventually(lambda: hands.counts[RECONCILE_REGION] == len(hands.regions), "first looks")
    await handle.signal(LOOK_NOW, LookNow(region=hands.regions[0]))
    await handle.signal(WATCH_REGIONS, WatchRegions(regions=(*hands.regions, f"more-{hands.tag}")))
    await eventually(lambda: hands.counts[RECONCILE_REGION] > len(hands.regions), "a look asked for")
    await handle.terminate()
    return handle


async def reconciled_for_long(stage: Stage, hands: FakeHands) -> Handle:
    """The first run, whose history became long."""
    hands.pause_seconds = 0.05
    request = ReconcileInput(tenant_id=TENANT, partition_id=hands.partition, regions=hands.regions)
    handle: Handle = await stage.client.start_workflow(
        Reconcile.run,
        request,
        id=reconcile_workflow_id(TENANT, hands.partition),
        task_queue=partition_queue(TENANT, hands.partition),
    )
    first = (await handle.describe()).run_id

    async def runs_anew() -> bool:
        return (await handle.describe()).run_id != first

    await comes_true(runs_anew, "a new run")
    await handle.terminate()
    return stage.client.get_workflow_handle(handle.id, run_id=first)


async def audited(stage: Stage, hands: FakeHands) -> Handle:
    """Two regions, of which one has a finding."""
    hands.auditing.spoilt = frozenset(hands.regions[1:])
    return await _audited(stage, hands)


async def audit_failed(stage: Stage, hands: FakeHands) -> Handle:
    """Two regions, of which one does not answer."""
    hands.auditing.silent = frozenset(hands.regions[:1])
    return await _audited(stage, hands)


async def _audited(stage: Stage, hands: FakeHands) -> Handle:
    request = AuditInput(tenant_id=TENANT, audit_id=uuid4())
    handle: Handle = stage.client.get_workflow_handle(
        await start_audit(stage.client, request, hands.partition)
    )
    await handle.result()
    return handle


async def _draining(stage: Stage, hands: FakeHands) -> Handle:
    """A drain that looked once and waits."""
    request = PoolDrainInput(tenant_id=TENANT, pool_id=f"pool-{hands.tag}")
    workflow_id = await start_drain(stage.client, request, queue=partition_queue(TENANT, hands.partition))
    await eventually(lambda: hands.counts[DRAIN_POOL] == 1, "the first look")
    return stage.client.get_workflow_handle(workflow_id)


async def drained(stage: Stage, hands: FakeHands) -> Handle:
    """A model is unloaded, units leave, and a signal makes the last look come at once."""
    hands.draining.evicting = ("llama",)
    handle = await _draining(stage, hands)
    hands.draining.held = 0
    await handle.signal(POOL_CHANGED)
    await handle.result()
    return handle


async def drain_resumed(stage: Stage, hands: FakeHands) -> Handle:
    """Looks by timer, then the pool is resumed."""
    hands.draining.pause_seconds = 0.05
    handle = await _draining(stage, hands)
    await eventually(lambda: hands.counts[DRAIN_POOL] >= 3, "looks by timer")
    hands.draining.resumed = True
    await tell_drain(stage.client, TENANT, f"pool-{hands.tag}", PoolChanged(why="resumed"))
    await handle.result()
    return handle


async def drained_for_long(stage: Stage, hands: FakeHands) -> Handle:
    """The first run, whose history became long."""
    hands.draining.pause_seconds = 0.05
    handle = await _draining(stage, hands)
    first = (await handle.describe()).run_id

    async def runs_anew() -> bool:
        return (await handle.describe()).run_id != first

    await comes_true(runs_anew, "a new run")
    await handle.terminate()
    return stage.client.get_workflow_handle(handle.id, run_id=first)


async def collected(stage: Stage, hands: FakeHands) -> Handle:
    """A run of the collector whose first attempt fails."""
    serving = ServingHands()
    serving.failing = 1
    return await _seen_to(stage, serving, Collector.run, CollectRequest(), f"collected-{hands.tag}")


async def probed(stage: Stage, hands: FakeHands) -> Handle:
    """A round of probes."""
    return await _seen_to(stage, ServingHands(), PoolHealth.run, ProbeRequest(), f"probed-{hands.tag}")


async def kept_warm(stage: Stage, hands: FakeHands) -> Handle:
    """Two loads of which one fails, another that is asked for while it runs, and the end of the pool."""
    async with keeping(stage, hands) as warm:
        warm.wants, warm.refuses = ["llama", "qwen"], {"qwen"}
        handle = await begin(stage, warm)
        await eventually(lambda: warm.counts[LOOK_AT_MODELS] >= 2, "the look after the loads")
        warm.wants.append("gemma")
        await handle.signal(WANTED, Wanted(why="asked for"))
        await eventually(lambda: "gemma" in warm.loaded, "the load that was asked for")
        warm.over = True
        await handle.signal(WANTED)
        await handle.result()
    return handle


async def kept_warm_for_long(stage: Stage, hands: FakeHands) -> Handle:
    """The first run, whose history became long."""
    async with keeping(stage, hands) as warm:
        warm.pause_seconds = 0.05
        handle = await begin(stage, warm)
        first = (await handle.describe()).run_id

        async def runs_anew() -> bool:
            return (await handle.describe()).run_id != first

        await comes_true(runs_anew, "a new run")
        await handle.terminate()
    return stage.client.get_workflow_handle(handle.id, run_id=first)


async def _seen_to(stage: Stage, serving: ServingHands, run: Any, request: Any, queue: str) -> Handle:
    async with seeing_to_pools(stage, serving, queue):
        handle = await run_once(stage, run, request, queue)
        await handle.result()
    return handle


async def _ended(stage: Stage, run: Any, request: Any, workflow_id: str, queue: str) -> Handle:
    handle: Handle = await stage.client.start_workflow(run, request, id=workflow_id, task_queue=queue)
    await handle.result()
    return handle


STORIES: Mapping[str, Story] = {
    story.__name__: story
    for story in (
        *(placed, planned_again, shortfall, grown, shrunk, moved, coalesced, claimed_at_the_end),
        *(continued_as_new, region_unreachable, database_away, extra_arguments, cancelled),
        *(scoring, sweep, observation, leases, reconciled, reconciled_for_long, audited, audit_failed),
        *(drained, drain_resumed, drained_for_long),
        *(collected, probed),
        *(kept_warm, kept_warm_for_long),
        *MODEL_STORIES,
    )
}
LONG_STORIES = {
    *("continued_as_new", "reconciled_for_long", "drained_for_long", "kept_warm_for_long"),
    "model_placed_for_long",
}
# The sandbox would load their changed terms anew.
WITH_OTHER_TERMS = {"region_unreachable", "database_away"}


async def record(name: str, stage: Stage) -> None:
    kept = terms.REGION_PATIENCE, terms.DECIDE_RETRY
    hands = FakeHands(("here", "there"), tag=name.replace("_", "-"))
    try:
        async with stage.playing(hands, sandbox=name not in WITH_OTHER_TERMS):
            handle = await STORIES[name](stage, hands)
            history = await handle.fetch_history()
    finally:
        terms.REGION_PATIENCE, terms.DECIDE_RETRY = kept
    content = json.dumps(without_machine(json.loads(history.to_json())), indent=1)
    (FOLDER / f"{name}.json").write_text(content + "\n")
    print(f"{name}: {len(history.events)} events")


def without_machine(told: Any) -> Any:
    """A history without stack traces: they name folders of the machine that recorded it."""
    if isinstance(told, dict):
        return {key: without_machine(value) for key, value in told.items() if key != "stackTrace"}
    return [without_machine(each) for each in told] if isinstance(told, list) else told


async def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.json"):
        old.unlink()
    async with own_server({}) as usual, own_server(LONG_HISTORY) as forgetful:
        for name in STORIES:
            await record(name, await open_stage(forgetful if name in LONG_STORIES else usual))
    # The SDK's threads still answer for a moment, and an interpreter that ends under them aborts.
    await asyncio.sleep(1)


if __name__ == "__main__":
    asyncio.run(main())

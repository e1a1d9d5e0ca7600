"""Every path through the workflow of a model placement, for its recorded histories."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio.client import WorkflowHandle

from activities.model_placement_calls import LOAD_MODEL, LOOK_AT_PLACEMENT, PLACEMENT_RELEASED, RECORD_LOAD
from tests.workflows.fake_hands import FakeHands, Stage, comes_true, eventually
from tests.workflows.model_placement_hands import begin, serving

Handle = WorkflowHandle[Any, Any]


async def model_placed(stage: Stage, hands: FakeHands) -> Handle:
    """A load, a stray signal, a look at an end that was renewed, and the release."""
    async with serving(stage, hands) as models:
        models.expires_at = datetime.now(UTC) + timedelta(seconds=1.5)
        handle = await begin(stage, models)
        await eventually(lambda: models.times(RECORD_LOAD) == 1, "a load that is recorded")
        models.expires_at = datetime.now(UTC) + timedelta(hours=1)
        await eventually(lambda: models.times(LOOK_AT_PLACEMENT) == 2, "a look at the old end")
        await handle.signal(PLACEMENT_RELEASED)
        await eventually(lambda: models.times(LOOK_AT_PLACEMENT) == 3, "a look that was asked for")
        models.state = "released"
        await handle.signal(PLACEMENT_RELEASED)
        await handle.result()
    return handle


async def model_released_early(stage: Stage, hands: FakeHands) -> Handle:
    """A placement that was released before its workflow looked."""
    async with serving(stage, hands) as models:
        models.state = "released"
        handle = await begin(stage, models)
        await handle.result()
    return handle


async def model_released_while_it_loads(stage: Stage, hands: FakeHands) -> Handle:
    hands.hold(LOAD_MODEL)
    async with serving(stage, hands) as models:
        handle = await begin(stage, models)
        await hands.until(LOAD_MODEL)
        models.state = "released"
        await handle.signal(PLACEMENT_RELEASED)
        hands.let_go(LOAD_MODEL)
        await handle.result()
    return handle


async def model_not_loaded(stage: Stage, hands: FakeHands) -> Handle:
    """A load that fails for good."""
    async with serving(stage, hands) as models:
        models.refusal = ("no_memory", "the endpoint has not 70 GB left")
        handle = await begin(stage, models)
        await handle.result()
    return handle


async def model_placed_for_long(stage: Stage, hands: FakeHands) -> Handle:
    """The first run, whose history became long."""
    async with serving(stage, hands) as models:
        handle = await begin(stage, models)
        first = (await handle.describe()).run_id

        async def runs_anew() -> bool:
            await handle.signal(PLACEMENT_RELEASED)
            return (await handle.describe()).run_id != first

        await comes_true(runs_anew, "a new run")
        await handle.terminate()
    return stage.client.get_workflow_handle(handle.id, run_id=first)


MODEL_STORIES = (
    *(model_placed, model_released_early, model_released_while_it_loads),
    *(model_not_loaded, model_placed_for_long),
)

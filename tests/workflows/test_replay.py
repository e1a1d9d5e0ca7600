"""Recorded histories of every path still replay, so an upgrade does not stop what is under way."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Interceptor, Replayer
from temporalio.workflow import NondeterminismError

from activities.audit_calls import AUDIT_REGION
from activities.collecting_calls import COLLECT
from activities.drain_calls import DRAIN_POOL
from activities.leasing_calls import RENEW_LEASES
from activities.model_placement_calls import FAIL_PLACEMENT, LOAD_MODEL, LOOK_AT_PLACEMENT
from activities.placement_calls import (
    ACQUIRE,
    DECIDE,
    FINISH,
    PLACEMENT,
    PLAN_RELEASE,
    RELEASE,
    Finished,
    PlacementInput,
)
from activities.probing_calls import PROBE_POOLS
from activities.reconcile_calls import RECONCILE_REGION
from activities.scoring_calls import OBSERVE, SCORE
from activities.warm_calls import LOOK_AT_MODELS
from tests.workflows.chronicle import chronicle
from tests.workflows.record_histories import FOLDER, STORIES
from workers.assemble import WORKFLOWS, strict_sandbox
from workflows.placement import Placement
from workflows.signals import ForgivingSignals

EARLIER = ("earlier/kept_warm_without_phases",)
FORGIVING: tuple[Interceptor, ...] = (ForgivingSignals(),)


@workflow.defn(name=PLACEMENT, sandboxed=False)
class PlacementThatSleepsFirst(Placement):
    """A change that must not go unnoticed: one more timer."""

    @workflow.run
    async def run(self, request: PlacementInput) -> Finished:
        await workflow.sleep(1)
        return await super().run(request)


def recorded(story: str) -> WorkflowHistory:
    return WorkflowHistory.from_json(f"placement/{story}", (FOLDER / f"{story}.json").read_text())


def replayer(workflows: Sequence[type], interceptors: Sequence[Interceptor] = FORGIVING) -> Replayer:
    return Replayer(
        workflows=workflows,
        workflow_runner=strict_sandbox(),
        data_converter=pydantic_data_converter,
        interceptors=interceptors,
    )


@pytest.mark.parametrize("story", STORIES)
async def test_a_recorded_history_replays(story: str) -> None:
    await replayer(WORKFLOWS).replay_workflow(recorded(story))


@pytest.mark.parametrize("story", EARLIER)
async def test_a_history_of_an_earlier_version_replays(story: str) -> None:
    """Runs that began before a change to their workflow go on; no story records these anew."""
    await replayer(WORKFLOWS).replay_workflow(recorded(story))


def test_every_history_has_its_story() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(STORIES)


def test_the_histories_hold_the_paths_they_are_named_after() -> None:
    told = {story: chronicle(recorded(story)) for story in STORIES}
    assert told["placed"].count(DECIDE) == 1
    assert told["planned_again"].count(DECIDE) == 2
    assert told["shortfall"].count(DECIDE) > 2
    assert {f"+{ACQUIRE}", f"+{FINISH}"} <= set(told["grown"])
    assert f"+{ACQUIRE}" not in told["shrunk"]
    assert told["shrunk"].count(f"-{RELEASE}") == 2
    assert {f"-{ACQUIRE}", f"-{PLAN_RELEASE}", f"-{RELEASE}"} <= set(told["moved"])
    assert (told["coalesced"].count("signal"), told["coalesced"].count(DECIDE)) == (4, 2)
    assert told["claimed_at_the_end"].count(f"-{FINISH}") == 2
    assert told["continued_as_new"].count("signal") == 21
    assert told["region_unreachable"].count(f"-{ACQUIRE}") == 1
    assert told["extra_arguments"].count(DECIDE) == 2
    assert f"+{FINISH}" not in told["cancelled"]
    assert told["reconciled"].count(f"+{RECONCILE_REGION}") == 4
    assert told["reconciled"].count("signal") == 2
    assert told["reconciled_for_long"].count(f"+{RECONCILE_REGION}") >= 2
    assert [told[story].count(f"-{AUDIT_REGION}") for story in ("audited", "audit_failed")] == [2, 1]
    assert (told["drained"].count(f"-{DRAIN_POOL}"), told["drained"].count("signal")) == (2, 1)
    assert told["drain_resumed"].count(f"-{DRAIN_POOL}") >= 4
    assert told["drained_for_long"].count(f"-{DRAIN_POOL}") >= 2
    assert told["collected"] == [f"+{COLLECT}", f"-{COLLECT}"]
    assert told["probed"] == [f"+{PROBE_POOLS}", f"-{PROBE_POOLS}"]
    assert told["kept_warm"].count(f"+{LOAD_MODEL}") >= 3
    assert told["kept_warm"].count("signal") == 2
    assert told["kept_warm"].count("version phase of models") == 1
    assert told["model_placed"].count(f"-{LOOK_AT_PLACEMENT}") == 4
    assert told["model_placed"].count("signal") == 2
    assert f"+{LOAD_MODEL}" not in told["model_released_early"]
    assert told["model_released_while_it_loads"].index("signal") < told[
        "model_released_while_it_loads"
    ].index(f"-{LOAD_MODEL}")
    assert f"-{FAIL_PLACEMENT}" in told["model_not_loaded"]
    assert told["model_placed_for_long"].count(f"-{LOOK_AT_PLACEMENT}") >= 2
    assert told["kept_warm_for_long"].count(f"-{LOOK_AT_MODELS}") >= 2
    assert (told["scoring"], told["observation"], told["leases"]) == (
        [f"+{SCORE}", f"-{SCORE}"],
        [f"+{OBSERVE}", f"-{OBSERVE}"],
        [f"+{RENEW_LEASES}", f"-{RENEW_LEASES}"],
    )


async def test_a_changed_workflow_is_noticed() -> None:
    with pytest.raises(NondeterminismError):
        await replayer([PlacementThatSleepsFirst]).replay_workflow(recorded("placed"))


async def test_a_signal_with_extra_arguments_needs_the_interceptor() -> None:
    with pytest.raises(Exception, match="positional argument"):
        await replayer(WORKFLOWS, ()).replay_workflow(recorded("extra_arguments"))

"""The schedules of a control plane, on a real Temporal server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import uuid4

import pytest
import pytest_asyncio
from temporalio.client import (
    ScheduleActionStartWorkflow,
    ScheduleDescription,
    ScheduleOverlapPolicy,
)

from tests.workflows.fake_hands import Stage
from workers.schedules import ensure_schedules, wanted
from workers.settings import WorkerSettings


@pytest_asyncio.fixture
async def settings(stage: Stage) -> AsyncIterator[WorkerSettings]:
    """A control plane of one partition and one region; its schedules are deleted afterwards."""
    tag = uuid4().hex[:8]
    own = stage.settings.model_copy(
        update={"partitions": (f"test-{tag}",), "regions": (f"here-{tag}",), "serving": False}
    )
    yield own
    for schedule_id, _ in wanted(own):
        await stage.client.get_schedule_handle(schedule_id).delete()


async def described(stage: Stage, settings: WorkerSettings) -> dict[str, ScheduleDescription]:
    """What the server knows, by the first word of the id."""
    return {
        schedule_id.split("/")[0]: await stage.client.get_schedule_handle(schedule_id).describe()
        for schedule_id, _ in wanted(settings)
    }


async def test_each_schedule_runs_at_its_interval_and_never_twice_at_once(
    stage: Stage, settings: WorkerSettings
) -> None:
    await ensure_schedules(stage.client, settings)
    found = await described(stage, settings)
    intervals = {name: one.schedule.spec.intervals[0].every for name, one in found.items()}
    assert intervals == {
        "observation": timedelta(minutes=1),
        "leases": timedelta(minutes=15),
        "scoring": timedelta(minutes=5),
        "placement-sweep": timedelta(minutes=1),
    }
    for one in found.values():
        assert one.schedule.policy.overlap is ScheduleOverlapPolicy.SKIP
        assert one.schedule.policy.catchup_window == timedelta(minutes=1)
        assert not one.schedule.state.paused


async def test_each_schedule_starts_its_workflow_on_its_own_queue(
    stage: Stage, settings: WorkerSettings
) -> None:
    await ensure_schedules(stage.client, settings)
    actions = {}
    for name, one in (await described(stage, settings)).items():
        assert isinstance(one.schedule.action, ScheduleActionStartWorkflow)
        actions[name] = (one.schedule.action.workflow, one.schedule.action.task_queue)
    partition, region = settings.partitions[0], settings.regions[0]
    assert actions == {
        "observation": ("Observation", f"provider-{region}"),
        "leases": ("LeaseWatch", f"provider-{region}"),
        "scoring": ("Scoring", f"partition-{partition}"),
        "placement-sweep": ("PlacementSweep", f"partition-{partition}"),
    }


async def test_a_new_schedule_runs_at_once(stage: Stage, settings: WorkerSettings) -> None:
    await ensure_schedules(stage.client, settings)
    for _ in range(300):
        if all(one.info.num_actions for one in (await described(stage, settings)).values()):
            return
        await asyncio.sleep(0.1)
    pytest.fail("a schedule did not run within 30 seconds of its creation")


async def test_ensuring_again_changes_nothing(stage: Stage, settings: WorkerSettings) -> None:
    await ensure_schedules(stage.client, settings)
    first = await described(stage, settings)
    await ensure_schedules(stage.client, settings)
    second = await described(stage, settings)
    assert {name: one.schedule.spec for name, one in first.items()} == {
        name: one.schedule.spec for name, one in second.items()
    }
    assert all(one.info.num_actions <= 1 for one in second.values())


async def test_new_settings_reach_schedules_that_exist(stage: Stage, settings: WorkerSettings) -> None:
    await ensure_schedules(stage.client, settings)
    faster = settings.model_copy(update={"observation_seconds": 15, "scoring_minutes": 2})
    await ensure_schedules(stage.client, faster)
    found = await described(stage, settings)
    assert found["observation"].schedule.spec.intervals[0].every == timedelta(seconds=15)
    assert found["scoring"].schedule.spec.intervals[0].every == timedelta(minutes=2)


async def test_what_a_person_paused_stays_paused(stage: Stage, settings: WorkerSettings) -> None:
    await ensure_schedules(stage.client, settings)
    handle = stage.client.get_schedule_handle(f"placement-sweep/{settings.partitions[0]}")
    await handle.pause(note="maintenance until noon")
    await ensure_schedules(stage.client, settings)
    state = (await handle.describe()).schedule.state
    assert state.paused
    assert state.note == "maintenance until noon"
    await handle.unpause()
    await ensure_schedules(stage.client, settings)
    assert not (await handle.describe()).schedule.state.paused


def test_two_tenants_with_the_same_names_share_no_schedule_and_no_queue(stage: Stage) -> None:
    def names(tenant_id: str) -> set[str]:
        names = {"tenant_id": tenant_id, "partitions": ("k8s",), "regions": ("here",), "serving": False}
        found = dict(wanted(stage.settings.model_copy(update=names)))
        actions = [
            one.action for one in found.values() if isinstance(one.action, ScheduleActionStartWorkflow)
        ]
        assert len(actions) == len(found) == 4
        return {*found, *(one.id for one in actions), *(one.task_queue for one in actions)}

    assert names("platform").isdisjoint(names("acme"))

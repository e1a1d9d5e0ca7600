"""The schedules of the control plane: observe and sweep every minute, rank every five, watch leases."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleUpdate,
    ScheduleUpdateInput,
)

from domain.ids import partition_queue, provider_queue
from workers.settings import WorkerSettings
from workflows.leases import LeaseWatch, LeaseWatchInput
from workflows.scoring import Observation, ObservationInput, PlacementSweep, Scoring, ScoringInput

SWEEP_EVERY = timedelta(minutes=1)
LEASES_EVERY = timedelta(minutes=15)
# A control plane that was away does not make up for missed runs: the next one sees everything.
CATCH_UP = timedelta(minutes=1)


def wanted(settings: WorkerSettings) -> Iterable[tuple[str, Schedule]]:
    """Schedule ids with their schedules, for the partitions and regions of this process."""
    tenant_id = settings.tenant_id
    for region in settings.regions:
        yield (
            f"observation/{region}",
            _every(
                timedelta(seconds=settings.observation_seconds),
                ScheduleActionStartWorkflow(
                    Observation.run,
                    ObservationInput(tenant_id=tenant_id, region=region),
                    id=f"observation/{region}",
                    task_queue=provider_queue(region),
                    static_summary=f"Observe {region}",
                ),
            ),
        )
        yield (
            f"leases/{region}",
            _every(
                LEASES_EVERY,
                ScheduleActionStartWorkflow(
                    LeaseWatch.run,
                    LeaseWatchInput(tenant_id=tenant_id, region=region),
                    id=f"leases/{region}",
                    task_queue=provider_queue(region),
                    static_summary=f"Watch the leases of {region}",
                ),
            ),
        )
    for partition_id in settings.partitions:
        request = ScoringInput(tenant_id=tenant_id, partition_id=partition_id)
        queue = partition_queue(partition_id)
        yield (
            f"scoring/{partition_id}",
            _every(
                timedelta(minutes=settings.scoring_minutes),
                ScheduleActionStartWorkflow(
                    Scoring.run,
                    request,
                    id=f"scoring/{partition_id}",
                    task_queue=queue,
                    static_summary=f"Rank the pools of {partition_id}",
                ),
            ),
        )
        yield (
            f"placement-sweep/{partition_id}",
            _every(
                SWEEP_EVERY,
                ScheduleActionStartWorkflow(
                    PlacementSweep.run,
                    request,
                    id=f"placement-sweep/{partition_id}",
                    task_queue=queue,
                    static_summary=f"Take up what {partition_id} left undone",
                ),
            ),
        )


def _every(interval: timedelta, action: ScheduleActionStartWorkflow) -> Schedule:
    return Schedule(
        action=action,
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=interval)]),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=CATCH_UP),
    )


async def ensure_schedules(client: Client, settings: WorkerSettings) -> None:
    """Create missing schedules and bring existing ones up to date, paused ones stay paused."""
    for schedule_id, schedule in wanted(settings):
        try:
            await client.create_schedule(schedule_id, schedule, trigger_immediately=True)
        except ScheduleAlreadyRunningError:
            await client.get_schedule_handle(schedule_id).update(_replace_by(schedule))


def _replace_by(schedule: Schedule) -> Callable[[ScheduleUpdateInput], ScheduleUpdate]:
    def replace(current: ScheduleUpdateInput) -> ScheduleUpdate:
        schedule.state.paused = current.description.schedule.state.paused
        schedule.state.note = current.description.schedule.state.note
        return ScheduleUpdate(schedule=schedule)

    return replace

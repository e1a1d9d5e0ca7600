"""The schedules of the control plane: what is observed, ranked, swept, probed and collected, how often."""

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

from activities.collecting_calls import CollectRequest
from activities.probing_calls import ProbeRequest
from domain.ids import SERVING_QUEUE, own_name, partition_queue, provider_queue
from workers.settings import WorkerSettings
from workflows.collector import Collector
from workflows.leases import LeaseWatch, LeaseWatchInput
from workflows.pool_health import PoolHealth
from workflows.scoring import Observation, ObservationInput, PlacementSweep, Scoring, ScoringInput

SWEEP_EVERY = timedelta(minutes=1)
LEASES_EVERY = timedelta(minutes=15)
# A control plane that was away does not make up for missed runs: the next one sees everything.
CATCH_UP = timedelta(minutes=1)


def wanted(settings: WorkerSettings) -> Iterable[tuple[str, Schedule]]:
    """Schedule ids with their schedules, for what this process sees to."""
    tenant_id = settings.tenant_id
    if settings.serving:
        yield from _of_serving_pools(settings)
    for region in settings.regions:
        queue, name = provider_queue(tenant_id, region), own_name(tenant_id, region)
        yield (
            f"observation/{name}",
            _every(
                timedelta(seconds=settings.observation_seconds),
                ScheduleActionStartWorkflow(
                    Observation.run,
                    ObservationInput(tenant_id=tenant_id, region=region),
                    id=f"observation/{name}",
                    task_queue=queue,
                    static_summary=f"Observe {region}",
                ),
            ),
        )
        yield (
            f"leases/{name}",
            _every(
                LEASES_EVERY,
                ScheduleActionStartWorkflow(
                    LeaseWatch.run,
                    LeaseWatchInput(tenant_id=tenant_id, region=region),
                    id=f"leases/{name}",
                    task_queue=queue,
                    static_summary=f"Watch the leases of {region}",
                ),
            ),
        )
    for partition_id in settings.partitions:
        request = ScoringInput(tenant_id=tenant_id, partition_id=partition_id)
        queue, name = partition_queue(tenant_id, partition_id), own_name(tenant_id, partition_id)
        yield (
            f"scoring/{name}",
            _every(
                timedelta(minutes=settings.scoring_minutes),
                ScheduleActionStartWorkflow(
                    Scoring.run,
                    request,
                    id=f"scoring/{name}",
                    task_queue=queue,
                    static_summary=f"Rank the pools of {partition_id}",
                ),
            ),
        )
        yield (
            f"placement-sweep/{name}",
            _every(
                SWEEP_EVERY,
                ScheduleActionStartWorkflow(
                    PlacementSweep.run,
                    request,
                    id=f"placement-sweep/{name}",
                    task_queue=queue,
                    static_summary=f"Take up what {partition_id} left undone",
                ),
            ),
        )


def _of_serving_pools(settings: WorkerSettings) -> Iterable[tuple[str, Schedule]]:
    """One schedule each for the pools of all tenants, however many processes see to them."""
    yield (
        "collector",
        _every(
            timedelta(seconds=settings.collector_seconds),
            ScheduleActionStartWorkflow(
                Collector.run,
                CollectRequest(),
                id="collector",
                task_queue=SERVING_QUEUE,
                static_summary="Collect from the pools of all tenants",
            ),
        ),
    )
    yield (
        "pool-health",
        _every(
            timedelta(seconds=settings.pool_probe_seconds),
            ScheduleActionStartWorkflow(
                PoolHealth.run,
                ProbeRequest(),
                id="pool-health",
                task_queue=SERVING_QUEUE,
                static_summary="Probe the endpoints of serving pools",
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

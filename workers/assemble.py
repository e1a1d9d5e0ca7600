"""The wiring: the one place that names concrete classes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry
from pydantic import ValidationError
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import PollerBehaviorAutoscaling, UnsandboxedWorkflowRunner, Worker, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions
from temporalio.workflow import SandboxImportNotificationPolicy

from activities.acquiring import AcquiringActivities
from activities.adopting import Adoptions
from activities.auditing import AuditingActivities, AuditRecordsActivities
from activities.boot_copies import BootCopies
from activities.bundle_key_choice import bundle_keys_of
from activities.bundling import Bundling, Told
from activities.finishing import FinishingActivities
from activities.launching import Launcher
from activities.leasing import LeasingActivities
from activities.node_settings import read_node_settings
from activities.observing import ObservingActivities
from activities.openstack.budget import StoreTokenBudget
from activities.openstack.catalog import OpenStackCatalog
from activities.openstack.compute import NovaCompute
from activities.openstack.flavors import FlavorBook
from activities.openstack.metrics import ProviderMetrics
from activities.openstack.session import Connections
from activities.openstack.settings import CloudSettings
from activities.placement_start import PlacementPoke
from activities.placing import PlacingActivities
from activities.ports import Catalog, Compute
from activities.provider_acts import ProviderActs
from activities.ranking import RankingActivities
from activities.reconciling import ReconcilingActivities
from activities.repairing import Repairs
from activities.sweeping import SweepingActivities
from domain.circuit import CircuitTerms
from domain.ids import partition_queue, provider_queue
from domain.policy import Policy
from store.budget import BudgetStore
from store.engine import Engine
from workers.history_writer import HistoryWriter
from workers.pulse import Pulse
from workers.settings import WorkerSettings
from workflows.audit import Audit
from workflows.collector import Collector
from workflows.leases import LeaseWatch
from workflows.model_placement import ModelPlacement
from workflows.placement import Placement
from workflows.pool_drain import PoolDrain
from workflows.pool_health import PoolHealth
from workflows.reconcile import Reconcile
from workflows.scoring import Observation, PlacementSweep, Scoring
from workflows.signals import ForgivingSignals
from workflows.warm_keep import WarmKeep

# Every workflow that this code may have to replay, whatever queue it runs on.
WORKFLOWS: Sequence[type] = (
    *(Placement, PoolDrain, Reconcile, Audit, Scoring, Observation, PlacementSweep, LeaseWatch),
    *(Collector, PoolHealth, WarmKeep, ModelPlacement),
)
# A worker that is told to stop lets running hands come to their next heartbeat.
GRACE = timedelta(seconds=10)
# Provider calls of one region are few and slow; the token budget bounds their rate.
REGION_SLOTS = 32
PARTITION_SLOTS = 500
MAX_BUDGET_WAIT_SECONDS = 60.0
# Well below the shortest heartbeat timeout, so that a delayed heartbeat is not taken for a dead worker.
HEARTBEATS_AT_MOST_EVERY = timedelta(seconds=4)
# A workflow whose worker died waits for it this long before any other worker may take it over.
STICKY_PATIENCE = timedelta(seconds=4)


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Provider:
    """The two provider ports, however they are filled."""

    compute: Compute
    catalog: Catalog
    close: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Wiring:
    """What every worker of one process shares."""

    client: Client
    engine: Engine
    settings: WorkerSettings
    policy: Policy


class CloudFileRefused(ValueError):
    """A cloud file that cannot be used; the text names no value, since values may be secrets."""


async def connect(settings: WorkerSettings) -> Client:
    """A client of Temporal; ConnectionError where it does not answer."""
    try:
        return await Client.connect(
            settings.temporal_address,
            namespace=settings.temporal_namespace,
            data_converter=pydantic_data_converter,
            identity=settings.identity,
        )
    except RuntimeError as error:  # what the client raises when it cannot connect
        raise ConnectionError(f"Temporal at {settings.temporal_address}: {error}") from error


def open_provider(
    cloud: CloudSettings,
    budgets: BudgetStore,
    registry: CollectorRegistry = REGISTRY,
    *,
    circuit: CircuitTerms = CircuitTerms(),  # noqa: B008 - frozen
) -> Provider:
    """OpenStack behind the token budget of each region. A metrics registry takes one provider only."""
    metrics = ProviderMetrics(registry)
    budget = StoreTokenBudget(
        budgets,
        metrics,
        max_wait_seconds=MAX_BUDGET_WAIT_SECONDS,
        rng=random.SystemRandom(),
        terms=circuit,
    )
    connections = Connections(cloud, budget, metrics, now=utc_now)
    flavors = FlavorBook(connections)
    return Provider(
        compute=NovaCompute(cloud, connections, flavors),
        catalog=OpenStackCatalog(cloud, connections, flavors),
        close=connections.close,
    )


def read_cloud_settings(path: Path) -> CloudSettings:
    """The provider's address and credential, from a file that only the process's user may read."""
    try:
        return CloudSettings.model_validate_json(path.read_bytes())
    except OSError as error:
        raise CloudFileRefused(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in one['loc']) or 'the whole file'}: {one['msg']}"
            for one in error.errors(include_input=False, include_url=False)
        )
        raise CloudFileRefused(f"{path} is refused: {problems}") from None


def history_writer(settings: WorkerSettings, engine: Engine) -> HistoryWriter | None:
    """What keeps the lifecycle events of nodes; None without a node bus."""
    if not settings.node_bus_url:
        return None
    return HistoryWriter(
        engine,
        settings.node_bus_url,
        now=utc_now,
        credentials=settings.node_bus_credentials,
        replicas=settings.node_bus_replicas,
    )


def runner(settings: WorkerSettings) -> WorkflowRunner:
    return strict_sandbox() if settings.sandbox else UnsandboxedWorkflowRunner()


def strict_sandbox() -> SandboxedWorkflowRunner:
    """A sandbox in which a module that a workflow uses without saying so is an error."""
    strict = SandboxImportNotificationPolicy.RAISE_ON_UNINTENTIONAL_PASSTHROUGH
    return SandboxedWorkflowRunner(
        restrictions=SandboxRestrictions.default.with_import_notification_policy(strict)
    )


def partition_worker(wiring: Wiring, partition_id: str) -> Worker:
    """Workflows and store-backed hands of one partition."""
    placing = PlacingActivities(wiring.engine, policy=wiring.policy.placement, now=utc_now)
    ranking = RankingActivities(wiring.engine, policy=wiring.policy.scoring, now=utc_now)
    finishing = FinishingActivities(wiring.engine)
    sweeping = SweepingActivities(wiring.engine, wiring.client)
    audits = AuditRecordsActivities(wiring.engine, now=utc_now)
    return make_worker(
        wiring.client,
        partition_queue(wiring.settings.tenant_id, partition_id),
        wiring.settings,
        slots=PARTITION_SLOTS,
        workflows=WORKFLOWS,
        activities=[
            placing.decide_placement,
            ranking.score_partition,
            finishing.plan_release,
            finishing.finish_placement,
            sweeping.sweep_placements,
            audits.open_audit,
            audits.close_audit,
        ],
    )


def boot_copies(wiring: Wiring) -> BootCopies | None:
    """The bundles that go with launches; None without a node file. Raises `NodeFileRefused`."""
    if wiring.settings.node_file is None:
        return None
    told = read_node_settings(wiring.settings.node_file)
    keys = bundle_keys_of(told, now=utc_now)
    bundling = Bundling(wiring.engine, keys, Told(told.notice_keys, told.node_bus), now=utc_now)
    return BootCopies(wiring.engine, bundling, told.api_url)


def region_worker(wiring: Wiring, provider: Provider, region: str) -> Worker:
    """Hands that call the provider of one region."""
    policy, identity = wiring.policy, wiring.settings.identity
    acts = ProviderActs(
        wiring.engine,
        provider.compute,
        identity=identity,
        terms=policy.reconcile,
        settle_seconds=policy.acquisition.settle_seconds,
        now=utc_now,
    )
    launcher = Launcher(
        wiring.engine,
        provider.catalog,
        acts,
        terms=policy.acquisition,
        backoff=policy.placement,
        now=utc_now,
        boot=boot_copies(wiring),
    )
    acquiring = AcquiringActivities(
        wiring.engine,
        provider.compute,
        acts,
        launcher,
        identity=identity,
        terms=policy.acquisition,
        now=utc_now,
        poll_seconds=wiring.settings.poll_seconds,
    )
    repairs = Repairs(
        wiring.engine,
        provider.compute,
        acts,
        PlacementPoke(wiring.client),
        identity=identity,
        terms=policy.reconcile,
        backoff=policy.placement,
        now=utc_now,
    )
    adoptions = Adoptions(wiring.engine, identity=identity, now=utc_now)
    reconciling = ReconcilingActivities(
        wiring.engine, provider.compute, adoptions, repairs, terms=policy.reconcile, now=utc_now
    )
    observing = ObservingActivities(wiring.engine, provider.catalog, policy=policy.scoring, now=utc_now)
    leasing = LeasingActivities(
        wiring.engine, provider.catalog, identity=identity, terms=policy.leases, now=utc_now
    )
    auditing = AuditingActivities(
        wiring.engine,
        provider.compute,
        now=utc_now,
        settle_seconds=policy.acquisition.settle_seconds,
        catalog=provider.catalog,
    )
    return make_worker(
        wiring.client,
        provider_queue(wiring.settings.tenant_id, region),
        wiring.settings,
        slots=REGION_SLOTS,
        workflows=[Observation, LeaseWatch],
        activities=[
            acquiring.acquire_region,
            acquiring.release_region,
            observing.observe_region,
            reconciling.reconcile_region,
            leasing.renew_leases,
            auditing.audit_region,
        ],
    )


def make_worker(
    client: Client,
    queue: str,
    settings: WorkerSettings,
    *,
    slots: int,
    workflows: Sequence[type],
    activities: Sequence[Callable[..., Any]],
) -> Worker:
    """A worker with the options that every queue of ours has."""
    return Worker(
        client,
        task_queue=queue,
        workflows=workflows,
        activities=activities,
        workflow_runner=runner(settings),
        max_concurrent_workflow_tasks=slots,
        max_concurrent_activities=slots,
        max_concurrent_local_activities=slots,
        workflow_task_poller_behavior=PollerBehaviorAutoscaling(),
        activity_task_poller_behavior=PollerBehaviorAutoscaling(),
        graceful_shutdown_timeout=GRACE,
        max_heartbeat_throttle_interval=HEARTBEATS_AT_MOST_EVERY,
        default_heartbeat_throttle_interval=HEARTBEATS_AT_MOST_EVERY,
        sticky_queue_schedule_to_start_timeout=STICKY_PATIENCE,
        interceptors=[ForgivingSignals(), Pulse()],
    )

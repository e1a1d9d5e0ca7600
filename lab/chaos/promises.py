"""What the workflows promise of one workload, kept by the real hands in processes that may die."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.placement_calls import (
    Decided,
    DecideRequest,
    Finished,
    FinishRequest,
    RegionAcquired,
    RegionRequest,
    ReleasePlan,
    WorkloadRequest,
)
from activities.reconcile_calls import Reconciled, ReconcileRequest
from domain.claim import Demand, Requirements, Shape, ShapeCount
from domain.contract import Contract, Tier
from domain.reconcile import FleetPhase
from lab.bench.estate import TENANT
from lab.chaos.killing import Fuse, Killed
from lab.chaos.lane import REGION, Lane
from lab.chaos.process import Process
from lab.chaos.terms import READ_TIMEOUT_SECONDS
from store import workloads
from store.licences import Place

UNIT = Shape(vcpu_milli=4_000, ram_mib=16_384)
# As the workflows do it, with seconds in place of minutes.
MAX_REPLANS = 5
MAX_TRIES = 60
FIRST_RETRY_SECONDS, MOST_RETRY_SECONDS, MOST_WAIT_SECONDS = 0.03, 0.3, 1.2
WATCH_SECONDS = 0.2
# How often a process dies at all, and within how many commits and calls.
DEATH_SHARE, MOMENTS = 0.6, 120
OVERTAKEN_SHARE, WATCHED_SHARE, CANCELLED_SHARE = 0.15, 0.5, 0.15
Hand = Callable[[Process], Callable[..., Coroutine[Any, Any, Any]]]


def contract(tier: Tier = Tier.BESPOKE) -> Contract:
    """No floor, and caps that spread a handful of units over several pools."""
    return Contract(
        contract_id=f"chaos-{tier.value.lower()}",
        tier=tier,
        floor_share=Decimal(0),
        pool_cap_share=Decimal("0.30"),
        group_cap_share=Decimal("0.50"),
    )


class Promises:
    """One workload of one partition. `deaths` is how often its processes may end early, `watched_share`
    how often there are cycles of reconcile beside a placement."""

    def __init__(
        self,
        lane: Lane,
        partition_id: str,
        workload_id: str,
        rng: random.Random,
        *,
        deaths: int = 0,
        watched_share: float = WATCHED_SHARE,
        read_timeout_seconds: float = READ_TIMEOUT_SECONDS,
    ) -> None:
        self.lane = lane
        self.partition_id = partition_id
        self.workload_id = workload_id
        self.rng = rng
        self.deaths_left = deaths
        self.deaths = 0
        # Workloads of the partition that have to be placed anew; shared by those that share a fleet.
        self.pokes: set[str] = set()
        # A call of a process that is given up for dead may still arrive, however late.
        self.overlapped = False
        self._may_overlap = deaths > 0
        self._watched_share = watched_share
        self._read_timeout_seconds = read_timeout_seconds
        self._processes: list[Process] = []
        self._current: Process | None = None
        self._overtaken: list[asyncio.Future[Any]] = []

    @property
    def poked(self) -> bool:
        """Whether the workload has to be placed anew."""
        return self.workload_id in self.pokes

    async def register(self, tier: Tier = Tier.BESPOKE) -> None:
        """The workload under a contract of this tier; its partition exists."""
        under = contract(tier)
        async with self.lane.engine.begin() as connection:
            await workloads.put_contract(connection, TENANT, under)
            await workloads.put_workload(
                connection,
                tenant_id=TENANT,
                workload_id=self.workload_id,
                partition_id=self.partition_id,
                contract_id=under.contract_id,
                owner_team="chaos",
            )

    async def claim(self, units: int) -> None:
        demand = Demand(
            shapes=(ShapeCount(shape=UNIT, units=units),), requirements=Requirements(regions=(REGION,))
        )
        async with self.lane.engine.begin() as connection:
            await workloads.add_claim(
                connection,
                tenant_id=TENANT,
                workload_id=self.workload_id,
                demand=demand,
                source="chaos",
                intake={},
            )

    def end(self) -> None:
        """Every process ends now."""
        for process in self._processes:
            process.fuse.dead = True

    def close(self) -> None:
        for process in self._processes:
            process.connections.close()

    # Placement

    async def place(self, units: int | None = None) -> Finished | None:
        """Claim, decide, launch and plan again while launches fail; then give back and record."""
        if units is not None:
            await self.claim(units)
        self.pokes.discard(self.workload_id)
        watched = self.rng.random() < self._watched_share
        beside = asyncio.create_task(self._watch()) if watched else None
        try:
            return await self._place()
        finally:
            if beside is not None:
                beside.cancel()
                with suppress(asyncio.CancelledError, Killed):
                    await beside

    async def _place(self) -> Finished | None:
        for _ in range(MAX_REPLANS + 1):
            decided = await self.decide()
            acquired = await self.acquire() if decided.acquire_regions else None
            reached = acquired is not None or not decided.acquire_regions
            failed = acquired is not None and bool(acquired.failures)
            if not (reached and failed):
                break
        if decided.releases and reached and not failed:
            await self.release()
        finished = await self.carry_out(
            lambda one: one.finishing.finish_placement,
            FinishRequest(tenant_id=TENANT, workload_id=self.workload_id, finish_id=self._uuid()),
        )
        return cast("Finished | None", finished)

    async def decide(self) -> Decided:
        request = DecideRequest(tenant_id=TENANT, workload_id=self.workload_id, decision_id=self._uuid())
        decided = await self.carry_out(lambda one: one.placing.decide_placement, request)
        assert decided is not None, "a decision is never given up"
        return cast(Decided, decided)

    async def acquire(self) -> RegionAcquired | None:
        acquired = await self.carry_out(
            lambda one: one.acquiring.acquire_region, self.of_region(), may_overlap=True
        )
        return cast("RegionAcquired | None", acquired)

    async def release(self) -> None:
        plan: ReleasePlan | None = await self.carry_out(
            lambda one: one.finishing.plan_release,
            WorkloadRequest(tenant_id=TENANT, workload_id=self.workload_id),
        )
        if plan is not None and plan.regions:
            await self.carry_out(lambda one: one.acquiring.release_region, self.of_region(), may_overlap=True)

    def of_region(self) -> RegionRequest:
        """What the provider's hands are asked to work on."""
        return RegionRequest(
            tenant_id=TENANT, partition_id=self.partition_id, workload_id=self.workload_id, region=REGION
        )

    # Reconcile

    async def cycle(self) -> Reconciled | None:
        """One cycle of reconcile; None where it failed, or its process died."""
        request = ReconcileRequest(tenant_id=TENANT, partition_id=self.partition_id, region=REGION)
        process = self.process()
        try:
            done = await ActivityEnvironment().run(process.reconciling.reconcile_region, request)
        except ApplicationError:
            return None
        except Killed:
            self._died(process)
            return None
        return done

    async def license(self) -> None:
        """Cycles until the partition may act."""
        for _ in range(MAX_TRIES):
            done = await self.cycle()
            if done is not None and done.phase is not FleetPhase.READ_ONLY:
                return
            await asyncio.sleep(FIRST_RETRY_SECONDS)

    async def _watch(self) -> None:
        """Cycles beside a placement, as there always are."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            await self.cycle()

    # Processes

    async def carry_out(self, hand: Hand, request: object, *, may_overlap: bool = False) -> Any:
        """Run a hand until it answers, as Temporal does; None when it may not be tried again."""
        try:
            return await self._carry_out(hand, request, may_overlap=may_overlap and self._may_overlap)
        finally:
            await asyncio.gather(*self._overtaken, return_exceptions=True)
            self._overtaken.clear()

    async def _carry_out(self, hand: Hand, request: object, *, may_overlap: bool) -> Any:
        pause = FIRST_RETRY_SECONDS
        for _ in range(MAX_TRIES):
            process = self.process()
            if may_overlap and self.rng.random() < OVERTAKEN_SHARE:
                await self._overtake(hand, request)
            try:
                return await self._run(process, hand, request, may_be_cancelled=may_overlap)
            except ApplicationError as error:
                if error.non_retryable:
                    return None
                asked = error.next_retry_delay
                wait = pause if asked is None else asked.total_seconds()
                await asyncio.sleep(min(wait, MOST_WAIT_SECONDS))
                pause = min(MOST_RETRY_SECONDS, pause * 1.5)
            except (Killed, asyncio.CancelledError):
                current = asyncio.current_task()
                if current is not None and current.cancelling():
                    raise
                self._died(process)
        return None

    def _run(
        self, process: Process, hand: Hand, request: object, *, may_be_cancelled: bool
    ) -> Awaitable[Any]:
        run = asyncio.ensure_future(ActivityEnvironment().run(hand(process), request))
        if may_be_cancelled and self.deaths_left > 0 and self.rng.random() < CANCELLED_SHARE:
            self.overlapped = True
            asyncio.get_running_loop().call_later(self.rng.uniform(0.02, 0.4), run.cancel)
        return run

    async def _overtake(self, hand: Hand, request: object) -> None:
        """A worker that seemed dead is still at it when the next one begins."""
        self.overlapped = True
        process = self.new_process(Fuse())
        self._overtaken.append(asyncio.ensure_future(ActivityEnvironment().run(hand(process), request)))
        await asyncio.sleep(self.rng.uniform(0, 0.05))

    def process(self) -> Process:
        """The one that runs now; a new one after a death."""
        if self._current is None:
            blows = self.deaths_left > 0 and self.rng.random() < DEATH_SHARE
            self._current = self.new_process(Fuse(self.rng.randint(1, MOMENTS) if blows else None))
        return self._current

    def new_process(self, fuse: Fuse) -> Process:
        process = Process(
            self.lane,
            fuse,
            self._poke,
            identity=f"{self.workload_id}-{len(self._processes)}",
            read_timeout_seconds=self._read_timeout_seconds,
        )
        self._processes.append(process)
        return process

    def _died(self, process: Process) -> None:
        process.fuse.dead = True
        if self._current is process:
            self._current = None
            self.deaths += 1
            self.deaths_left -= 1

    async def _poke(self, place: Place, workload_id: str) -> None:
        del place
        self.pokes.add(workload_id)

    def _uuid(self) -> UUID:
        return UUID(int=self.rng.getrandbits(128), version=4)

"""A fleet on one provider: the hands as a worker wires them, driven as the workflows drive them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.acquiring import AcquiringActivities
from activities.adopting import Adoptions
from activities.auditing import audit
from activities.finishing import FinishingActivities
from activities.launching import Launcher
from activities.placement_calls import Finished, FinishRequest, RegionRequest, WorkloadRequest
from activities.provider_acts import ProviderActs
from activities.reconcile_calls import Reconciled, ReconcileRequest
from activities.reconciling import ReconcilingActivities
from activities.repairing import Repairs
from domain.acquisition import AcquisitionTerms
from domain.audit import AuditReport
from domain.placement.scoring import PoolInputs
from domain.policy import PlacementPolicy
from domain.reconcile import FleetPhase, ReconcileTerms
from store.licences import Place
from tests.activities.deciding import Placer
from tests.conformance.hands import Hands
from tests.conformance.provider import HALL, OTHER_HALL
from tests.domain.worlds import facts
from tests.estates import PARTITION, REGION, TENANT, Clock, Estate, contract

UNITS_PER_INSTANCE = 2
# A crashed Nova never builds what waited in its queue: such servers are given up after a while.
TERMS = AcquisitionTerms(settle_seconds=4, build_patience_seconds=20)
PACE = ReconcileTerms(cycle_seconds=5, recovery_cycle_seconds=1, lapse_seconds=60, pace_window_seconds=2)
MOST_TRIES, MOST_CYCLES, CYCLE_SECONDS = 20, 60, 0.3


class RealClock(Clock):
    """The time that it is."""

    def __call__(self) -> datetime:
        return datetime.now(UTC)

    def move(self, seconds: float) -> None:
        del seconds


class Fleet:
    """Workloads of one partition on one provider. Its pools are two halls of one flavor."""

    def __init__(self, estate: Estate, hands: Hands) -> None:
        self.estate = estate
        self.hands = hands
        self.placer = Placer(estate)
        self.poked: set[str] = set()
        now = estate.clock
        acts = ProviderActs(
            estate.engine,
            hands.compute,
            identity="tests",
            terms=PACE,
            settle_seconds=TERMS.settle_seconds,
            now=now,
        )
        launcher = Launcher(
            estate.engine,
            hands.catalog,
            acts,
            terms=TERMS,
            backoff=PlacementPolicy(backoff_seconds=1),
            now=now,
        )
        self.acquiring = AcquiringActivities(
            estate.engine,
            hands.compute,
            acts,
            launcher,
            identity="tests",
            terms=TERMS,
            now=now,
            poll_seconds=0.1,
        )
        self.finishing = FinishingActivities(estate.engine)
        self.reconciling = ReconcilingActivities(
            estate.engine,
            hands.compute,
            Adoptions(estate.engine, identity="tests", now=now),
            Repairs(
                estate.engine,
                hands.compute,
                acts,
                self._poke,
                identity="tests",
                terms=PACE,
                backoff=PlacementPolicy(backoff_seconds=1, thrash_seconds=1),
                now=now,
            ),
            terms=PACE,
            now=now,
        )

    async def open(self, workload_id: str) -> None:
        """Pools and one workload; nobody has looked at the region yet."""
        pools = [
            PoolInputs(facts=facts(f"{hall}-gp-m", hall=hall, group=f"{hall}-a1"), free_instances=40)
            for hall in (HALL, OTHER_HALL)
        ]
        await self.estate.open(pools)
        await self.estate.rows("DELETE FROM reconciles")
        await self.estate.workload(workload_id, contract(pool="1", group="1"))

    async def _poke(self, place: Place, workload_id: str) -> None:
        del place
        self.poked.add(workload_id)

    async def place(self, workload_id: str, instances: int | None = None) -> Finished:
        """Carry a placement out, for a new claim or again, as often as its steps have to be repeated."""
        if instances is not None:
            await self.estate.claim(instances * UNITS_PER_INSTANCE, workload_id)
        await self.placer.decide(workload_id)
        request = RegionRequest(
            tenant_id=TENANT, partition_id=PARTITION, workload_id=workload_id, region=REGION
        )
        await self._insist(self.acquiring.acquire_region, request)
        await self.finishing.plan_release(WorkloadRequest(tenant_id=TENANT, workload_id=workload_id))
        await self._insist(self.acquiring.release_region, request)
        end = FinishRequest(tenant_id=TENANT, workload_id=workload_id, finish_id=uuid4())
        return await self.finishing.finish_placement(end)

    async def cycle(self) -> Reconciled:
        request = ReconcileRequest(tenant_id=TENANT, partition_id=PARTITION, region=REGION)
        done = await self._insist(self.reconciling.reconcile_region, request)
        assert isinstance(done, Reconciled)
        return done

    async def settle(self) -> list[Reconciled]:
        """Cycles until the fleet is as it should be, and placements that they ask for."""
        done = []
        for _ in range(MOST_CYCLES):
            done.append(await self.cycle())
            for workload_id in sorted(self.poked):
                await self.place(workload_id)
            self.poked.clear()
            if done[-1].phase is FleetPhase.NORMAL and not done[-1].drift:
                return done
            await asyncio.sleep(CYCLE_SECONDS)
        raise AssertionError(f"not settled after {MOST_CYCLES} cycles: {done[-1]}")

    async def audit(self) -> AuditReport:
        return await audit(
            self.estate.engine,
            self.hands.compute,
            tenant_id=TENANT,
            partitions=(PARTITION,),
            regions=[REGION],
            now=self.estate.clock,
            settle_seconds=0.5,
        )

    async def _insist(self, hand: Any, request: Any) -> Any:
        """Repeat a step as Temporal does, a bounded number of times."""
        for _ in range(MOST_TRIES):
            try:
                return await ActivityEnvironment().run(hand, request)
            except ApplicationError as error:
                last = error
            # An open circuit says when it may be tried again.
            delay = last.next_retry_delay
            await asyncio.sleep(0.3 if delay is None else delay.total_seconds())
        raise last

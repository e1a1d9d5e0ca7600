"""The acquiring hand on a test's database and a scripted provider, under Temporal's activity environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from temporalio.testing import ActivityEnvironment

from activities.acquiring import AcquiringActivities
from activities.launching import Launcher
from activities.placement_calls import RegionAcquired, RegionReleased, RegionRequest
from activities.ports import Catalog
from activities.provider_acts import ProviderActs
from domain.acquisition import AcquisitionTerms
from domain.policy import PlacementPolicy
from domain.reconcile import ReconcileTerms
from lab.chaos.killing import FusedEngine
from store.engine import Engine
from tests.activities.deciding import Placer, counts_are_right
from tests.activities.provider import Fuse, ScriptedCompute
from tests.estates import PARTITION, REGION, TENANT, Estate

TERMS = AcquisitionTerms(settle_seconds=4, build_patience_seconds=15, max_attempts=3)
# Every look moves the provider's clock by two seconds, so a run that does not end has very many.
MAX_LOOKS = 200


class LeaseBook:
    """The part of the port `Catalog` that a launch reads: leases by hall and flavor."""

    def __init__(self, leases: dict[tuple[str, str], str]) -> None:
        self._leases = leases

    def committed_reservations(self, region: str) -> dict[tuple[str, str], str]:
        return self._leases


class Acquirer:
    """Acquires and gives back for workloads of one estate, at one provider."""

    def __init__(
        self,
        estate: Estate,
        *,
        leases: dict[tuple[str, str], str] | None = None,
        terms: AcquisitionTerms = TERMS,
    ) -> None:
        self.estate = estate
        self.terms = terms
        self.placer = Placer(estate)
        self.compute = ScriptedCompute(estate.clock)
        self.reconcile = ReconcileTerms()
        self.leases = leases or {}
        self.heartbeats: list[Sequence[Any]] = []
        self.environment = ActivityEnvironment()

    async def acquire(self, workload_id: str = "orders", fuse: Fuse | None = None) -> RegionAcquired:
        hands = self.hands(fuse)
        return cast(RegionAcquired, await self._run(hands.acquire_region, workload_id))

    async def release(self, workload_id: str = "orders", fuse: Fuse | None = None) -> RegionReleased:
        hands = self.hands(fuse)
        return cast(RegionReleased, await self._run(hands.release_region, workload_id))

    def hands(self, fuse: Fuse | None = None) -> AcquiringActivities:
        burn = fuse or Fuse()
        looks = 0

        def on_call(point: str) -> None:
            nonlocal looks
            looks += point == "before list"
            assert looks <= MAX_LOOKS, "the run does not end"
            burn(point)

        self.compute.on_call = on_call
        engine = cast(Engine, FusedEngine(self.estate.engine, burn))
        acts = ProviderActs(
            engine,
            self.compute,
            identity="tests",
            terms=self.reconcile,
            settle_seconds=self.terms.settle_seconds,
            now=self.estate.clock,
        )
        launcher = Launcher(
            engine,
            cast(Catalog, LeaseBook(self.leases)),
            acts,
            terms=self.terms,
            backoff=PlacementPolicy(),
            now=self.estate.clock,
        )
        return AcquiringActivities(
            engine,
            self.compute,
            acts,
            launcher,
            identity="tests",
            terms=self.terms,
            now=self.estate.clock,
            poll_seconds=0,
        )

    async def _run(self, hand: Any, workload_id: str) -> object:
        self.environment = ActivityEnvironment()
        self.environment.on_heartbeat = lambda *details: self.heartbeats.append(details)
        request = RegionRequest(
            tenant_id=TENANT, partition_id=PARTITION, workload_id=workload_id, region=REGION
        )
        return await self.environment.run(hand, request)

    async def servers_of(self, workload_id: str, *states: str) -> set[str]:
        rows = await self.estate.rows(
            "SELECT server_id FROM instances WHERE workload_id = :w AND state = ANY(:states)",
            w=workload_id,
            states=list(states),
        )
        return {row[0] for row in rows}

    async def ended_well(self, workload_id: str = "orders") -> None:
        """No slot is open, every running slot has its own server, and the provider has no other of ours."""
        states = await self.placer.slots(workload_id)
        assert set(states) <= {"active", "failed", "gone"}, states
        running = await self.servers_of(workload_id, "active")
        assert len(running) == states.get("active", 0)
        assert running == {
            one for one in self.compute.left() if self.compute.made[one].server.workload_id == workload_id
        }
        await counts_are_right(self.estate)

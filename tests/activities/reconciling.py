"""The reconciling hand on a test's database and a scripted provider."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from temporalio.testing import ActivityEnvironment

from activities.adopting import Adoptions
from activities.provider_acts import ProviderActs
from activities.reconcile_calls import Reconciled, ReconcileRequest
from activities.reconciling import ReconcilingActivities
from activities.repairing import Repairs
from domain.acquisition import ServerStatus
from domain.backoff import BackoffTerms
from domain.reconcile import ReconcileTerms
from domain.tags import server_tags
from lab.chaos.killing import FusedEngine
from store.engine import Engine
from store.licences import Place
from tests.activities.acquiring import Acquirer
from tests.activities.provider import Create, Fuse
from tests.estates import PARTITION, REGION, TENANT, Estate

TERMS = ReconcileTerms(cycle_seconds=60, recovery_cycle_seconds=10, lapse_seconds=300, finds_per_cycle=4)


class Reconciler:
    """Looks at the fleet of one estate, at one provider. Every cycle comes a while after the last."""

    def __init__(self, estate: Estate, terms: ReconcileTerms = TERMS) -> None:
        self.estate = estate
        self.terms = terms
        self.acquirer = Acquirer(estate)
        self.compute = self.acquirer.compute
        self.poked: list[str] = []

    async def launch(self, units: int, workload_id: str = "orders", **under: Any) -> None:
        """A workload with so many units that all run."""
        await self.estate.workload(workload_id, **under)
        await self.acquirer.placer.place(units, workload_id)
        await self.acquirer.acquire(workload_id)
        self.compute.creates.clear()
        await self.cycle()

    async def cycle(self, *, after_seconds: float = 30, fuse: Fuse | None = None) -> Reconciled:
        """One cycle, so long after the last."""
        self.estate.clock.move(after_seconds)
        burn = fuse or Fuse()
        self.compute.on_call = burn
        engine = cast(Engine, FusedEngine(self.estate.engine, burn))
        adoptions = Adoptions(engine, identity="tests", now=self.estate.clock)
        hands = ReconcilingActivities(
            engine,
            self.compute,
            adoptions,
            self.repairs(engine),
            terms=self.terms,
            now=self.estate.clock,
        )
        request = ReconcileRequest(tenant_id=TENANT, partition_id=PARTITION, region=REGION)
        return cast(Reconciled, await ActivityEnvironment().run(hands.reconcile_region, request))

    def repairs(self, engine: Engine | None = None) -> Repairs:
        engine, now = engine or self.estate.engine, self.estate.clock
        acts = ProviderActs(
            engine, self.compute, identity="tests", terms=self.terms, settle_seconds=4, now=now
        )

        async def poke(place: Place, workload_id: str) -> None:
            self.poked.append(workload_id)

        return Repairs(
            engine,
            self.compute,
            acts,
            poke,
            identity="tests",
            terms=self.terms,
            backoff=BackoffTerms(),
            now=now,
        )

    async def cycles(self, count: int, **options: Any) -> list[Reconciled]:
        return [await self.cycle(**options) for _ in range(count)]

    def servers(self) -> list[str]:
        """Ids of servers that nobody asked to delete, in the order of their creation."""
        return sorted(self.compute.left())

    def change(self, server_id: str, **fields: Any) -> None:
        """The provider shows a server differently from now on."""
        made = self.compute.made[server_id]
        made.server = replace(made.server, **fields)

    def breaks(self, server_id: str, fate: ServerStatus = ServerStatus.ERROR) -> None:
        self.compute.made[server_id].fate = fate

    def stray(self, like: str, **metadata: str) -> str:
        """One more server that looks like another of ours, except for some metadata."""
        model = self.compute.made[like].server
        return self.compute.add(model.metadata | metadata, Create(), tags=model.tags)

    def foreign(self) -> str:
        """A server of somebody else in the same project; the provider lists it with all others here."""
        return self.compute.add({"role": "database"}, Create(), tags=("team:data",))

    async def states(self) -> dict[str, int]:
        rows = await self.estate.rows("SELECT state, count(*) FROM instances GROUP BY 1")
        return dict(rows)

    async def log(self, action: str) -> list[tuple[str, bool]]:
        """Servers and whether it counted against the pace, of every entry of one action."""
        rows = await self.estate.rows(
            "SELECT server_id, paced FROM audit_log WHERE action = :a ORDER BY sequence", a=action
        )
        return [tuple(row) for row in rows]

    async def forget_fleet(self) -> None:
        """The records of the fleet are lost; the workloads and their claims are not."""
        for statement in (
            "DELETE FROM instances",
            "DELETE FROM reservations",
            "DELETE FROM plan_generations",
            "DELETE FROM placement_decisions",
            "UPDATE workloads SET planned_version = 0, generation = 0, phase = 'requested'",
        ):
            await self.estate.rows(statement)


def tags_of(workload_id: str, purchase_model: str = "reclaimable") -> tuple[str, ...]:
    return server_tags(PARTITION, workload_id, purchase_model)

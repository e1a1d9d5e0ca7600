"""A fleet that the real hands launched in a simulated cloud, to be spoilt and audited."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import sql
from temporalio.testing import ActivityEnvironment

from activities.acquiring import AcquiringActivities
from activities.auditing import audit
from activities.finishing import FinishingActivities
from activities.launching import Launcher
from activities.placement_calls import FinishRequest, RegionRequest, WorkloadRequest
from activities.ports import Compute, Server
from activities.provider_acts import ProviderActs
from domain.acquisition import AcquisitionTerms
from domain.audit import AuditReport, FindingKind
from domain.placement.scoring import PoolInputs
from domain.policy import PlacementPolicy
from domain.reconcile import ReconcileTerms
from lab.cloud.cloud import Cloud
from lab.cloud.server import CloudHandle
from store.engine import Engine
from tests.activities.deciding import Placer
from tests.activities.openstack.hands import Hands
from tests.domain.worlds import facts
from tests.estates import PARTITION, REGION, TENANT, Estate, contract

UNITS, INSTANCES = 6, 3
SETTLE_SECONDS = 0.5
HALLS = tuple(f"{REGION}-h{number}" for number in range(1, 5))


class Fleet:
    """Workloads of one estate, launched with the real hands."""

    def __init__(self, estate: Estate, cloud: CloudHandle, dsn: str) -> None:
        self.estate = estate
        self._handle = cloud
        self.cloud = cloud.admin
        self.hands = Hands(cloud)
        self.dsn = dsn
        self.placer = Placer(estate)

    async def open(self) -> None:
        """One pool in each hall, of the cloud's own names."""
        pools = [
            PoolInputs(facts=facts(f"{hall}-gp-m", hall=hall, group=f"{hall}-a1", cores=8), free_instances=40)
            for hall in HALLS
        ]
        await self.estate.open(pools)

    async def settled(self, workload_id: str = "orders", units: int = UNITS) -> str:
        """A workload whose placement has ended; its id."""
        await self.estate.workload(workload_id, contract(pool="1", group="1"))
        await self.placer.place(units, workload_id)
        request = RegionRequest(
            tenant_id=TENANT, partition_id=PARTITION, workload_id=workload_id, region=REGION
        )
        acquiring, finishing = self._acquiring(), FinishingActivities(self.estate.engine)
        await ActivityEnvironment().run(acquiring.acquire_region, request)
        await finishing.plan_release(WorkloadRequest(tenant_id=TENANT, workload_id=workload_id))
        await ActivityEnvironment().run(acquiring.release_region, request)
        end = FinishRequest(tenant_id=TENANT, workload_id=workload_id, finish_id=uuid4())
        assert (await finishing.finish_placement(end)).phase == "placed"
        return workload_id

    def _acquiring(self) -> AcquiringActivities:
        terms = AcquisitionTerms(settle_seconds=SETTLE_SECONDS)
        acts = ProviderActs(
            self.estate.engine,
            self.hands.compute,
            identity="tests",
            terms=ReconcileTerms(),
            settle_seconds=SETTLE_SECONDS,
            now=self.estate.clock,
        )
        launcher = Launcher(
            self.estate.engine,
            self.hands.catalog,
            acts,
            terms=terms,
            backoff=PlacementPolicy(),
            now=self.estate.clock,
        )
        return AcquiringActivities(
            self.estate.engine,
            self.hands.compute,
            acts,
            launcher,
            identity="tests",
            terms=terms,
            now=self.estate.clock,
            poll_seconds=0.02,
        )

    async def audit(self, engine: Engine | None = None, *, hours: int = 1, **changes: Any) -> AuditReport:
        """What the auditor says, a good while after everything was launched."""
        self.estate.clock.at += timedelta(hours=hours)
        options: dict[str, Any] = {
            "tenant_id": TENANT,
            "partitions": None,
            "regions": [REGION],
            "now": self.estate.clock,
            "settle_seconds": 0.05,
        }
        compute = changes.pop("compute", self.hands.compute)
        return await audit(engine or self.estate.engine, compute, **options | changes)

    async def found(self, **changes: Any) -> list[tuple[FindingKind, str]]:
        return [(one.kind, one.subject) for one in (await self.audit(**changes)).findings]

    async def slot(self, place: int = 0, workload_id: str = "orders") -> tuple[str, str, str]:
        """Slot key, batch key and server id of one of its active slots."""
        query = (
            "SELECT slot_key, batch_key, server_id FROM instances"
            " WHERE workload_id = :w AND state = 'active' ORDER BY slot_key"
        )
        rows = await self.estate.rows(query, w=workload_id)
        slot_key, batch_key, server_id = rows[place]
        return slot_key, batch_key, server_id

    async def change(self, statement: str, **named: Any) -> None:
        """Write past the triggers, as somebody might who has the right to."""
        with psycopg.connect(self.dsn) as owner:
            owner.execute("SET LOCAL session_replication_role = replica")
            owner.execute(statement, named)

    def spoil(self, server_id: str, **fields: Any) -> None:
        """Change a server inside the cloud."""

        def change(cloud: Cloud) -> None:
            region = cloud.regions[REGION]
            server = region.servers.get(server_id)
            assert server is not None
            for name, value in fields.items():
                setattr(server, name, value)
            region.touch(server)

        self._handle.call(change)

    def launch(self, tags: tuple[str, ...], metadata: dict[str, str], *, count: int = 1) -> set[str]:
        """Put servers there that nobody planned; their ids."""
        before = {one["id"] for one in self.cloud.servers()}
        assert self.cloud.load(REGION, count, tags=tags, metadata=metadata) == count
        return {one["id"] for one in self.cloud.servers()} - before

    def close(self) -> None:
        """Leave the cloud empty for the next test."""
        for one in self.cloud.servers():
            if one["status"] != "DELETED":
                self.cloud.terminate(one["id"])
        self.hands.connections.close()


class BetweenLooks:
    """The provider, where something changes after the auditor's first list and before its second."""

    def __init__(self, compute: Compute, change: Callable[[], None]) -> None:
        self._compute = compute
        self._change = change
        self.lists = 0

    def list_managed(self, region: str) -> Sequence[Server]:
        self.lists += 1
        if self.lists == 2:
            self._change()
        return self._compute.list_managed(region)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compute, name)


@contextmanager
def without(dsn: str, table: str, constraint: str) -> Iterator[None]:
    """A table without one of its constraints, which is back in the end."""
    names = sql.Identifier(table), sql.Identifier(constraint)
    with psycopg.connect(dsn, autocommit=True) as owner:
        found = owner.execute(
            "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = %s", [constraint]
        ).fetchone()
        assert found is not None
        owner.execute(sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(*names))
        try:
            yield
        finally:
            definition = sql.SQL(found[0])
            owner.execute(sql.SQL("ALTER TABLE {} ADD CONSTRAINT {} {}").format(*names, definition))

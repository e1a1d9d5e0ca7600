"""The hand that renews leases, on a test's database and a simulated cloud whose clock both follow."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, cast

from prometheus_client import REGISTRY
from temporalio.testing import ActivityEnvironment

from activities.leasing import LeasingActivities
from activities.leasing_calls import LeasesWatched, RenewLeasesRequest
from activities.ports import Catalog, Lease
from domain.leases import LeaseTerms
from domain.pool import PoolState, PurchaseModel
from lab.chaos.killing import FusedEngine
from lab.cloud.cloud import Cloud
from lab.cloud.estate import stable_id
from lab.cloud.identity import PROJECT_ID, USER_ID
from lab.cloud.leases import Lease as CloudLease
from lab.cloud.leases import Reservation
from lab.cloud.server import CloudHandle
from store import registry
from store.engine import Engine
from tests.activities.openstack.hands import Hands, spec
from tests.activities.provider import Fuse
from tests.domain.worlds import facts
from tests.estates import REGION, TENANT, Estate

FLAVOR = "gp.l"
DAY = 86_400.0


def pool_of(hall: int) -> str:
    return f"{REGION}-h{hall}-gp-l-committed"


class Watcher:
    """Watches the leases of one region, of which the halls `ours` hold committed pools of ours."""

    def __init__(self, estate: Estate, cloud: CloudHandle, terms: LeaseTerms | None = None) -> None:
        self.estate = estate
        self.cloud = cloud
        self.hands = Hands(cloud)
        self.terms = terms or LeaseTerms()
        self.heartbeats = 0
        self.hand = self._hand(self.estate.engine)
        self._follow()

    async def open(self, ours: Sequence[int] = (1, 2)) -> None:
        pools = [
            facts(
                pool_of(hall),
                hall=f"{REGION}-h{hall}",
                cores=16,
                model=PurchaseModel.COMMITTED,
                group=f"{REGION}-h{hall}-a1",
            ).model_copy(update={"flavor": FLAVOR, "size": "l"})
            for hall in ours
        ]
        async with self.estate.engine.begin() as connection:
            await registry.register_pools(connection, pools, PoolState.ACTIVE)

    async def watch(self, fuse: Fuse | None = None, catalog: object = None) -> LeasesWatched:
        """One look. With a fuse it may end at any point of its transactions, as a killed worker does."""
        hand = self.hand
        if fuse is not None or catalog is not None:
            hand = self._hand(cast(Engine, FusedEngine(self.estate.engine, fuse or Fuse())), catalog)
        environment = ActivityEnvironment()
        environment.on_heartbeat = lambda *_: self._beat()
        request = RenewLeasesRequest(tenant_id=TENANT, region=REGION)
        return cast(LeasesWatched, await environment.run(hand.renew_leases, request))

    def advance(self, *, days: float = 0, hours: float = 0) -> None:
        self.cloud.admin.advance(days * DAY + hours * 3_600)
        self._follow()

    def leases(self) -> dict[str, Lease]:
        """What the provider lists, by name."""
        return {lease.name: lease for lease in self.hands.catalog.leases(REGION)}

    def ends(self, hall: int = 1) -> datetime:
        return self.leases()[pool_of(hall)].ends_at

    def launch(self, hall: int = 1, count: int = 2) -> None:
        """Committed servers on the lease of a hall."""
        reservations = self.hands.catalog.committed_reservations(REGION)
        name = f"{REGION}-h{hall}"
        batch = spec(
            batch_key=f"b-{hall}", hall=name, flavor=FLAVOR, reservation_id=reservations[name, FLAVOR]
        )
        self.hands.compute.create_batch(batch, count)
        self.advance(hours=1)

    def running(self) -> int:
        return len([one for one in self.cloud.admin.servers(region=REGION) if one["status"] == "ACTIVE"])

    def book(self, hall: int, *, name: str, days: float, starts: float = 0) -> None:
        """Another lease of our project on all the committed capacity of a hall that is free then."""

        def act(cloud: Cloud) -> None:
            region = cloud.regions[REGION]
            start = region.now() + timedelta(days=starts)
            group = region.groups[pool_of(hall)]
            end = start + timedelta(days=days)
            free = group.reservable - region.leases.peak_amount(group.name, start, end)
            asked: dict[str, object] = {"flavor_id": group.flavor.id}
            booked = Reservation(stable_id(name), group.name, "flavor:instance", free, asked)
            region.book(CloudLease(name, name, PROJECT_ID, USER_ID, start, end, start, reservations=[booked]))

        self.cloud.call(act)
        self.cloud.admin.advance(0)

    async def rows(self, columns: str, where: str = "true") -> list[Any]:
        return sorted(await self.estate.rows(f"SELECT {columns} FROM leases WHERE {where}"))

    async def entries(self) -> list[Any]:
        return await self.estate.rows(
            "SELECT actor, action, pool_id, cause FROM audit_log"
            " WHERE action = 'renew_lease' ORDER BY sequence"
        )

    def close(self) -> None:
        self.hands.connections.close()

    def _hand(self, engine: Engine, catalog: object = None) -> LeasingActivities:
        return LeasingActivities(
            engine,
            cast(Catalog, catalog or self.hands.catalog),
            identity="tests",
            terms=self.terms,
            now=self.estate.clock,
        )

    def _follow(self) -> None:
        self.estate.clock.at = datetime.fromisoformat(self.cloud.admin.clock()["now"])

    def _beat(self) -> None:
        self.heartbeats += 1


def sample(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, {"region": REGION, **labels})

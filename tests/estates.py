"""A control plane's memory filled for a test: pools with capacity, rankings, workloads and claims."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa

from domain.claim import Demand, Requirements, Shape, ShapeCount
from domain.contract import Contract, Tier
from domain.placement.scoring import PoolInputs, rank
from domain.policy import ScoringPolicy
from domain.pool import PoolFacts, PoolState
from domain.reconcile import FleetPhase, FleetState
from store import licences, observations, partitions, rankings, registry, workloads
from store.engine import Engine
from store.licences import Place
from store.observations import PoolReport
from tests.domain.worlds import UNIT

TENANT = "platform"
PARTITION = "k8s-eu-north"
REGION = "eu-north"
START = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self, at: datetime = START) -> None:
        self.at = at

    def __call__(self) -> datetime:
        return self.at

    def move(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


def contract(
    contract_id: str = "even", *, floor: str = "0", pool: str = "0.15", group: str = "0.30"
) -> Contract:
    return Contract(
        contract_id=contract_id,
        tier=Tier.BESPOKE,
        floor_share=Decimal(floor),
        pool_cap_share=Decimal(pool),
        group_cap_share=Decimal(group),
    )


def demand(*units: int, shapes: Sequence[Shape] = (UNIT,), regions: tuple[str, ...] | None = None) -> Demand:
    groups = tuple(ShapeCount(shape=shape, units=each) for shape, each in zip(shapes, units, strict=True))
    return Demand(shapes=groups, requirements=Requirements(regions=regions))


class Estate:
    """Fills one database. Every pool reports `free` instances at the clock's time."""

    def __init__(self, engine: Engine, clock: Clock, tenant_id: str = TENANT) -> None:
        self.engine = engine
        self.clock = clock
        self.tenant_id = tenant_id
        self.pools: list[PoolInputs] = []

    async def open(self, pools: Sequence[PoolInputs], *, free: int = 100) -> None:
        """Register pools as active, report them, and rank them for the partition."""
        self.pools = [
            one.model_copy(update={"facts": one.facts.model_copy(update={"tenant_id": self.tenant_id})})
            for one in pools
        ]
        async with self.engine.begin() as connection:
            await registry.register_pools(connection, [one.facts for one in self.pools], PoolState.ACTIVE)
            await partitions.put_partition(
                connection,
                tenant_id=self.tenant_id,
                partition_id=PARTITION,
                region=REGION,
                scheduler="kubernetes",
            )
        await self.report(free)
        await self.rank()
        for region in sorted({one.facts.region for one in self.pools}):
            await self.license(region)

    async def license(self, region: str = REGION, *, phase: FleetPhase = FleetPhase.NORMAL) -> None:
        """Let the partition act in a region for as long as a test may last."""
        place = Place(self.tenant_id, PARTITION, region)
        state = FleetState(phase, 2, self.clock() + timedelta(days=1000), self.clock(), unattended=False)
        async with self.engine.begin() as connection:
            await licences.open_cycle(connection, place)
            await licences.write_cycle(
                connection, place, state, view=None, fleet=0, backlog=0, at=self.clock()
            )

    async def report(self, free: int, only: Sequence[str] | None = None) -> None:
        reports = [report(one.facts, free) for one in self.pools if only is None or one.facts.pool_id in only]
        async with self.engine.begin() as connection:
            await observations.report_pools(connection, self.tenant_id, reports, self.clock())

    async def rank(self, pools: Sequence[PoolInputs] | None = None) -> UUID:
        ranking_id = uuid4()
        inputs = list(self.pools if pools is None else pools)
        ranking = rank(str(ranking_id), PARTITION, inputs, ScoringPolicy())
        async with self.engine.begin() as connection:
            await rankings.save_ranking(connection, self.tenant_id, ranking, inputs)
        return ranking_id

    async def workload(self, workload_id: str = "orders", under: Contract | None = None) -> None:
        terms = under or contract()
        async with self.engine.begin() as connection:
            await workloads.put_contract(connection, self.tenant_id, terms)
            await workloads.put_workload(
                connection,
                tenant_id=self.tenant_id,
                workload_id=workload_id,
                partition_id=PARTITION,
                contract_id=terms.contract_id,
                owner_team="orders",
            )

    async def claim(self, wanted: Demand | int, workload_id: str = "orders") -> int:
        """Submit a claim, in units of the usual shape where only a number is given."""
        async with self.engine.begin() as connection:
            version, _ = await workloads.add_claim(
                connection,
                tenant_id=self.tenant_id,
                workload_id=workload_id,
                demand=demand(wanted) if isinstance(wanted, int) else wanted,
                source="test",
                intake={},
            )
        return version

    async def rows(self, query: str, **named: Any) -> list[Any]:
        """What a query answers, committed like any statement."""
        async with self.engine.begin() as connection:
            answer = await connection.execute(sa.text(query), named)
            return [tuple(row) for row in answer] if answer.returns_rows else []

    async def value(self, query: str, **named: Any) -> Any:
        return (await self.rows(query, **named))[0][0]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def estate(engine: Engine, clock: Clock) -> Estate:
    """The test's own database, still without pools."""
    return Estate(engine, clock)


@pytest.fixture(scope="module")
def shared_estate(shared_engine: Engine) -> Estate:
    """The module's database, still without pools."""
    return Estate(shared_engine, Clock())


def report(facts: PoolFacts, free: int, *, free_24h: int = 40, quota: int | None = None) -> PoolReport:
    return PoolReport(
        pool_id=facts.pool_id,
        free_instances=free,
        free_24h_instances=free_24h,
        quota_instances=quota,
        price_per_hour_usd=facts.price_per_hour_usd,
        guaranteed_price_per_hour_usd=facts.guaranteed_price_per_hour_usd,
    )


BROKEN_COUNTS = """
    SELECT 'reservation', concat_ws('/', r.workload_id, r.pool_id, r.shape_key), r.instances, s.live
    FROM reservations r LEFT JOIN (
      SELECT tenant_id, workload_id, pool_id, shape_key, count(*) AS live FROM instances
      WHERE state IN ('planned', 'building', 'active', 'releasing') GROUP BY 1, 2, 3, 4
    ) s USING (tenant_id, workload_id, pool_id, shape_key)
    WHERE r.instances <> coalesce(s.live, 0)
    UNION ALL
    SELECT 'pool', c.pool_id, c.reserved_instances, coalesce(s.live, 0)
    FROM pool_capacity c LEFT JOIN (
      SELECT tenant_id, pool_id, count(*) AS live FROM instances
      WHERE state IN ('planned', 'building', 'active', 'releasing') GROUP BY 1, 2
    ) s USING (tenant_id, pool_id)
    WHERE c.reserved_instances <> coalesce(s.live, 0) OR c.reserved_instances > c.capacity_instances
"""

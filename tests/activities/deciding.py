"""The deciding hand on a test's own database."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from uuid import UUID, uuid4

from activities.placement_calls import Decided, DecideRequest
from activities.placing import PlacingActivities
from domain.claim import Demand
from domain.placement.scoring import PoolInputs
from domain.policy import PlacementPolicy
from store import releases
from tests.domain.worlds import facts
from tests.estates import BROKEN_COUNTS, Estate


def halls(count: int = 4, *, per_hall: int = 2, region: str = "eu-north") -> list[PoolInputs]:
    """Equal pools of one unit per instance: `per_hall` correlation groups of one pool in each hall."""
    return [
        PoolInputs(
            facts=facts(
                f"{region}-h{hall}-p{place}",
                region=region,
                hall=f"{region}-h{hall}",
                group=f"{region}-h{hall}-a{place}",
                cores=4,
                price=f"{Decimal('0.30') + Decimal('0.01') * hall}",
            ),
            free_instances=40,
        )
        for hall in range(1, count + 1)
        for place in range(1, per_hall + 1)
    ]


class Placer:
    """Decides for workloads of one estate, as one process does."""

    def __init__(
        self,
        estate: Estate,
        *,
        policy: PlacementPolicy | None = None,
        pulse_age: timedelta = timedelta(seconds=1),
    ) -> None:
        self.estate = estate
        self.hands = PlacingActivities(
            estate.engine, policy=policy or PlacementPolicy(), now=estate.clock, pulse_age=pulse_age
        )

    async def decide(self, workload_id: str = "orders", decision_id: UUID | None = None) -> Decided:
        """Decide after the pools' live state that was read before is too old to be planned on."""
        self.estate.clock.move(2)
        request = DecideRequest(
            tenant_id=self.estate.tenant_id, workload_id=workload_id, decision_id=decision_id or uuid4()
        )
        return await self.hands.decide_placement(request)

    async def place(self, units: Demand | int, workload_id: str = "orders") -> Decided:
        """Submit a claim and decide for it."""
        await self.estate.claim(units, workload_id)
        return await self.decide(workload_id)

    async def held(self, workload_id: str = "orders") -> dict[str, tuple[int, int]]:
        """Units and target instances by pool, of pools that are to hold any."""
        rows = await self.estate.rows(
            "SELECT pool_id, units, target_instances FROM reservations"
            " WHERE workload_id = :w AND target_instances > 0 ORDER BY 1",
            w=workload_id,
        )
        return {pool: (units, instances) for pool, units, instances in rows}

    async def slots(self, workload_id: str = "orders") -> dict[str, int]:
        """Slots by state."""
        rows = await self.estate.rows(
            "SELECT state, count(*) FROM instances WHERE workload_id = :w GROUP BY 1", w=workload_id
        )
        return dict(rows)

    async def run(self) -> None:
        """Every planned slot gets a server that runs."""
        await self.estate.rows(
            "UPDATE instances SET state = 'building', server_id = 'of-' || slot_key WHERE state = 'planned'"
        )
        await self.estate.rows("UPDATE instances SET state = 'active' WHERE state = 'building'")

    async def generations(self, workload_id: str = "orders") -> int:
        return int(
            await self.estate.value(
                "SELECT count(*) FROM plan_generations WHERE workload_id = :w", w=workload_id
            )
        )

    async def give_back(self, workload_id: str = "orders") -> None:
        """What is held beyond the plan is marked, and its servers are gone."""
        async with self.estate.engine.begin() as connection:
            leaving = await releases.mark_surplus(connection, self.estate.tenant_id, workload_id)
            gone = [row["slot_key"] for row in leaving]
            await releases.mark_gone(connection, self.estate.tenant_id, workload_id, gone)


async def new_workload(placer: Placer, name: str) -> str:
    await placer.estate.workload(name)
    return name


async def counts_are_right(estate: Estate) -> None:
    assert await estate.rows(BROKEN_COUNTS) == []

"""What was stored of a decision is enough to decide it again: over random estates, claims and troubles."""

from __future__ import annotations

import random
from decimal import Decimal
from uuid import UUID

import pytest

from activities.replaying import replay_placement
from domain.claim import Demand
from domain.placement.filters import RequirementClass, shortlist
from domain.placement.portfolio import plan
from domain.placement.record import plan_document, question_from
from domain.placement.scoring import PoolInputs
from domain.pool import PurchaseModel
from store import decisions, rankings
from tests.activities.deciding import Placer, counts_are_right
from tests.domain.strategies import SHAPES
from tests.domain.worlds import facts
from tests.estates import TENANT, Estate, contract, demand

CLAIMS = 4
TROUBLES = (
    "UPDATE pool_capacity SET standing = 'excluded' WHERE pool_id = :pool",
    "UPDATE pool_capacity SET standing = 'probation' WHERE pool_id = :pool",
    "UPDATE pool_capacity SET degraded = true WHERE pool_id = :pool",
    "UPDATE pools SET state = 'draining' WHERE pool_id = :pool",
    "UPDATE instances SET state = 'failed' WHERE pool_id = :pool AND state IN ('planned', 'active')",
)


def random_pools(rng: random.Random) -> list[PoolInputs]:
    pools = []
    for number in range(rng.randint(6, 14)):
        cores, hall = rng.choice((4, 8, 16)), rng.randint(1, 4)
        committed = rng.random() < 0.3
        pools.append(
            PoolInputs(
                facts=facts(
                    f"pool-{number:02d}",
                    hall=f"h{hall}",
                    group=f"h{hall}-a{rng.randint(1, 3)}",
                    cores=cores,
                    model=PurchaseModel.COMMITTED if committed else PurchaseModel.RECLAIMABLE,
                    price=f"{cores * rng.randint(30, 60) * Decimal('0.001')}",
                    guaranteed=f"{cores * Decimal('0.1')}",
                ),
                episodes=rng.choice((0, 0, 5, 100)),
                observed_hours=720,
                free_instances=rng.randint(1, 60),
            )
        )
    return pools


@pytest.mark.parametrize("seed", range(8))
async def test_every_stored_decision_is_decided_the_same_again(estate: Estate, seed: int) -> None:
    rng = random.Random(seed)
    pools = random_pools(rng)
    await estate.open(pools, free=rng.randint(3, 20))
    under = contract(
        "random", floor=rng.choice(("0", "0.1", "0.3")), pool=rng.choice(("0.15", "0.5")), group="0.5"
    )
    await estate.workload("orders", under)
    placer = Placer(estate)
    for _ in range(CLAIMS):
        shapes = rng.sample(SHAPES, rng.randint(1, 3))
        await placer.place(demand(*(rng.randint(0, 15) for _ in shapes), shapes=shapes))
        if rng.random() < 0.7:
            await placer.run()
        if rng.random() < 0.5:
            await placer.give_back()
        await estate.rows(rng.choice(TROUBLES), pool=rng.choice(pools).facts.pool_id)
        await counts_are_right(estate)
    stored = await estate.rows("SELECT decision_id FROM placement_decisions ORDER BY generation")
    assert len(stored) == CLAIMS
    for generation, (decision_id,) in enumerate(stored, start=1):
        await decided_again(estate, decision_id)
        async with estate.engine.connect() as connection:
            replay = await replay_placement(connection, TENANT, "orders", generation)
        assert replay.differences == ()


async def decided_again(estate: Estate, decision_id: UUID) -> None:
    async with estate.engine.connect() as connection:
        row = await decisions.find_decision(connection, TENANT, decision_id)
        assert row is not None
        ranking = await rankings.load_ranking(connection, TENANT, row["ranking_id"])
        listed = await rankings.find_shortlist(connection, TENANT, row["ranking_id"], row["class_key"])
    drawn = shortlist(ranking, RequirementClass.model_validate(listed["requirement_class"]))
    assert [one.pool_id for one in drawn.fill] == listed["fill"]
    assert drawn.class_key == row["class_key"]
    document = plan_document(plan(question_from(row["question"], drawn)))
    for part in ("allocations", "reasons", "shortfalls"):
        assert document[part] == row[part], part
    assert document["cost_micro_usd"] == row["cost_per_hour"] * 1_000_000
    assert document["depth_premium_micro_usd"] == row["depth_premium_per_hour"] * 1_000_000


async def test_the_claim_of_a_decision_is_the_one_that_was_submitted(estate: Estate) -> None:
    await estate.open(random_pools(random.Random(1)))
    await estate.workload()
    placer = Placer(estate)
    wanted = demand(3, 2, shapes=SHAPES[:2])
    decided = await placer.place(wanted)
    await estate.claim(1)
    rows = await estate.rows("SELECT demand FROM claims WHERE version = :v", v=decided.claim_version)
    assert Demand.model_validate(rows[0][0]) == wanted

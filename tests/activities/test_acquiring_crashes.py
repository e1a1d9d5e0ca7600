"""A run that ends at any point: the next one finds what is there, and leaves nothing twice or too many."""

from __future__ import annotations

import random
from collections import Counter, deque

import pytest
import pytest_asyncio

from domain.acquisition import ServerStatus
from tests.activities.acquiring import TERMS, Acquirer
from tests.activities.deciding import halls
from tests.activities.provider import Crashed, Create, Fuse, in_doubt, refused
from tests.estates import Estate, contract

BUILDS, BREAKS, STUCK = ServerStatus.ACTIVE, ServerStatus.ERROR, ServerStatus.BUILDING
SCRIPTS: dict[str, list[Create]] = {
    "calm": [],
    "in doubt and late": [Create(answer=in_doubt(), delay_seconds=2), Create(made=1, answer=in_doubt())],
    "broken and refused": [Create(fates=(BREAKS, BUILDS), fault="broken"), Create(made=0, answer=refused())],
}


@pytest_asyncio.fixture(scope="module")
async def pools(shared_estate: Estate) -> Estate:
    await shared_estate.open(halls(2, per_hall=1), free=5000)
    return shared_estate


async def planned(pools: Estate, name: str, script: list[Create], units: int = 4) -> Acquirer:
    """Two instances in each of two pools, and a provider with this script."""
    await pools.report(5000)
    await pools.workload(name, contract("halves", pool="0.5", group="0.5"))
    acquirer = Acquirer(pools)
    await acquirer.placer.place(units, name)
    acquirer.compute.script = deque(script)
    return acquirer


async def all_is_accounted_for(acquirer: Acquirer, name: str, units: int) -> None:
    await acquirer.ended_well(name)
    states = await acquirer.placer.slots(name)
    assert sum(states.values()) == units, "no slot is planned anew by a launch"
    asked = Counter[str]()
    for spec, number in acquirer.compute.creates:
        asked[spec.batch_key] += number
    slots = await acquirer.estate.rows(
        "SELECT batch_key, count(*), max(launch_attempts) FROM instances WHERE workload_id = :w GROUP BY 1",
        w=name,
    )
    for batch, size, attempts in slots:
        assert attempts <= TERMS.max_attempts
        assert asked[batch] <= size * attempts


@pytest.mark.parametrize("trouble", SCRIPTS)
async def test_a_run_may_end_at_every_point(pools: Estate, trouble: str) -> None:
    whole = Fuse()
    prefix = trouble.replace(" ", "-")
    acquirer = await planned(pools, f"{prefix}-whole", list(SCRIPTS[trouble]))
    expected = await acquirer.acquire(f"{prefix}-whole", whole)
    await all_is_accounted_for(acquirer, f"{prefix}-whole", 4)
    for point in range(1, len(whole.points) + 1):
        name = f"{prefix}-{point}"
        acquirer = await planned(pools, name, list(SCRIPTS[trouble]))
        with pytest.raises(Crashed):
            await acquirer.acquire(name, Fuse(point))
        acquired = await acquirer.acquire(name)
        await all_is_accounted_for(acquirer, name, 4)
        failed = (await acquirer.placer.slots(name)).get("failed", 0)
        assert acquired.active == 4 - failed
        assert sum(one.instances for one in acquired.failures) == failed, "a failure was not told"
        if trouble != "broken and refused":
            assert acquired.active == expected.active == 4


@pytest.mark.parametrize("seed", range(12))
async def test_runs_may_end_again_and_again(pools: Estate, seed: int) -> None:
    rng = random.Random(seed)
    name, units = f"again-{seed}", 2 * rng.randint(1, 4)
    acquirer = await planned(pools, name, [random_create(rng) for _ in range(6)], units)
    for _ in range(10):
        try:
            await acquirer.acquire(name, Fuse(rng.randint(1, 40)))
        except Crashed:
            continue
    acquired = await acquirer.acquire(name)
    await all_is_accounted_for(acquirer, name, units)
    told = sum(one.instances for one in acquired.failures)
    assert acquired.active + told == units


def random_create(rng: random.Random) -> Create:
    answer = rng.choice((None, None, in_doubt(), refused()))
    definite = answer is not None and not answer.in_doubt
    return Create(
        made=0 if definite else rng.choice((None, None, 0, 1)),
        fates=tuple(rng.choice((BUILDS, BUILDS, BUILDS, BREAKS, STUCK)) for _ in range(3)),
        delay_seconds=rng.choice((0, 0, 1, 3)),
        answer=answer,
        fault="broken",
    )

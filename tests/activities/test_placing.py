"""Decisions about one workload: asked again, unchanged, growing, shrinking, refused."""

from __future__ import annotations

from uuid import uuid4

from domain.claim import Demand, Requirements, Shape, ShapeCount
from domain.pool import SecurityBoundary
from tests.activities.deciding import Placer, counts_are_right, new_workload
from tests.domain.worlds import UNIT
from tests.estates import TENANT, contract, demand

SMALL = Shape(vcpu_milli=2000, ram_mib=4096)


async def events(placer: Placer, workload_id: str) -> list[tuple[str, int]]:
    query = "SELECT payload->>'outcome', (payload->>'generation')::int FROM outbox WHERE key = :w ORDER BY 2"
    return [tuple(row) for row in await placer.estate.rows(query, w=workload_id)]


async def test_asked_again_it_is_the_same_decision(opened: Placer) -> None:
    name = await new_workload(opened, "asked-again")
    await opened.estate.claim(6, name)
    decision_id = uuid4()
    first = await opened.decide(name, decision_id)
    again = [await opened.decide(name, decision_id) for _ in range(3)]
    other_process = await Placer(opened.estate).decide(name, decision_id)
    assert [*again, other_process] == [first] * 4
    assert (first.generation, first.placed_units, first.claim_version) == (1, 6, 1)
    assert await opened.generations(name) == 1
    assert await opened.slots(name) == {"planned": 6}
    assert await events(opened, name) == [("placed", 1)]


async def test_nothing_new_is_no_new_generation(opened: Placer) -> None:
    name = await new_workload(opened, "nothing-new")
    first = await opened.place(6, name)
    again = await opened.decide(name)
    assert again == first
    assert await opened.generations(name) == 1
    assert await events(opened, name) == [("placed", 1)]


async def test_an_equal_claim_is_planned_and_launches_nothing(opened: Placer) -> None:
    name = await new_workload(opened, "equal-claim")
    await opened.place(6, name)
    held = await opened.held(name)
    again = await opened.place(6, name)
    assert (again.generation, again.claim_version) == (2, 2)
    assert await opened.held(name) == held
    assert await opened.slots(name) == {"planned": 6}


async def test_growing_adds_and_moves_nothing(opened: Placer) -> None:
    name = await new_workload(opened, "growing")
    await opened.place(6, name)
    before = await opened.held(name)
    grown = await opened.place(20, name)
    after = await opened.held(name)
    assert (grown.placed_units, grown.releases) == (20, False)
    assert all(after[pool][0] >= units for pool, (units, _) in before.items())
    assert await opened.slots(name) == {"planned": 20}


async def test_shrinking_keeps_what_runs_until_it_is_given_back(opened: Placer) -> None:
    name = await new_workload(opened, "shrinking")
    await opened.place(20, name)
    await opened.run()
    shrunk = await opened.place(7, name)
    assert (shrunk.placed_units, shrunk.releases, shrunk.acquire_regions) == (7, True, ())
    assert await opened.slots(name) == {"active": 20}
    waiting = await opened.decide(name)
    assert waiting == shrunk, "what waits to be given back is no reason for another plan"
    await opened.give_back(name)
    assert await opened.slots(name) == {"active": 7, "gone": 13}
    assert not (await opened.decide(name)).releases
    assert await opened.generations(name) == 2
    await counts_are_right(opened.estate)


async def test_to_nothing_and_back(opened: Placer) -> None:
    name = await new_workload(opened, "to-nothing")
    await opened.place(6, name)
    await opened.run()
    nothing = await opened.place(0, name)
    assert (nothing.units, nothing.placed_units, nothing.releases) == (0, 0, True)
    assert nothing.cost_per_hour == "0.000000"
    await opened.give_back(name)
    assert await opened.held(name) == {}
    back = await opened.place(6, name)
    assert (back.generation, back.placed_units) == (3, 6)
    assert await opened.slots(name) == {"gone": 6, "planned": 6}


async def test_a_new_ranking_moves_nothing_that_runs(opened: Placer) -> None:
    name = await new_workload(opened, "new-ranking")
    await opened.place(6, name)
    await opened.run()
    before = await opened.decide(name)
    dearer = [one.model_copy(update={"free_instances": 1}) for one in reversed(opened.estate.pools)]
    await opened.estate.rank(dearer)
    assert await opened.decide(name) == before
    await opened.place(7, name)
    held = await opened.held(name)
    assert sum(units for units, _ in held.values()) == 7
    newest = await opened.estate.value(
        "SELECT count(DISTINCT ranking_id) FROM placement_decisions WHERE workload_id = :w", w=name
    )
    assert newest == 2
    await opened.estate.rank()


async def test_a_claim_without_regions_runs_where_its_scheduler_is(opened: Placer) -> None:
    at_home = await new_workload(opened, "at-home")
    abroad = await new_workload(opened, "abroad")
    assert (await opened.place(6, at_home)).acquire_regions == ("eu-north",)
    assert (await opened.place(demand(6, regions=("eu-west",)), abroad)).acquire_regions == ("eu-west",)
    both = await new_workload(opened, "both")
    decided = await opened.place(demand(60, regions=("eu-north", "eu-west")), both)
    assert decided.acquire_regions == ("eu-north", "eu-west")


async def test_shapes_are_placed_side_by_side(opened: Placer) -> None:
    name = await new_workload(opened, "shapes")
    decided = await opened.place(demand(6, 9, shapes=(UNIT, SMALL)), name)
    assert decided.placed_units == 15
    rows = await opened.estate.rows(
        "SELECT shape_key, sum(units), sum(target_instances) FROM reservations WHERE workload_id = :w"
        " GROUP BY 1 ORDER BY 1",
        w=name,
    )
    assert [row[:2] for row in rows] == [("2000m-4096Mi", 9), ("4000m-16384Mi", 6)]
    assert rows[1][2] == 6
    assert 5 <= rows[0][2] <= 9
    await opened.run()
    fewer = await opened.place(demand(6, shapes=(UNIT,)), name)
    assert (fewer.placed_units, fewer.releases) == (6, True)
    await opened.run()
    await opened.give_back(name)
    assert (await opened.slots(name))["active"] == 6


async def test_what_the_region_forbids_is_denied_and_recorded(opened: Placer) -> None:
    name = await new_workload(opened, "denied")
    wanted = Demand(
        shapes=(ShapeCount(shape=UNIT, units=6),),
        requirements=Requirements(boundaries=(SecurityBoundary.PRIVATE,)),
    )
    denied = await opened.place(wanted, name)
    assert (denied.placed_units, denied.shortfall_units, denied.shortfall_reason) == (0, 6, "policy_denied")
    assert await events(opened, name) == [("policy_denied", 1)]
    stored = await opened.estate.rows(
        "SELECT outcome, shortfalls FROM placement_decisions WHERE workload_id = :w", w=name
    )
    assert stored == [("policy_denied", [[6, "policy_denied"]])]
    assert await opened.decide(name) == denied


async def test_a_shortfall_is_recorded_with_its_reason(opened: Placer) -> None:
    name = "few-pools"
    await opened.estate.workload(name, contract("tight", pool="0.05", group="0.05"))
    decided = await opened.place(100, name)
    assert (decided.placed_units, decided.shortfall_units) == (40, 60)
    assert decided.shortfall_reason == "caps_unsatisfiable"
    assert await opened.estate.rows(
        "SELECT phase, shortfall_units, shortfall_reason FROM workloads WHERE workload_id = :w", w=name
    ) == [("planned", 60, "caps_unsatisfiable")]
    assert await opened.estate.rows(
        "SELECT units, placed_units, pool_cap_units, group_cap_units FROM plan_generations"
        " WHERE workload_id = :w",
        w=name,
    ) == [(100, 40, 5, 5)]


async def test_cost_and_depth_premium_are_stored_to_the_millionth(opened: Placer) -> None:
    """Twenty units under a cap of three per pool; the cheapest hall alone would take all for 0.31 each."""
    name = await new_workload(opened, "premium")
    decided = await opened.place(20, name)
    assert (decided.cost_per_hour, decided.depth_premium_per_hour) == ("6.440000", "0.240000")
    rows = await opened.estate.rows(
        "SELECT cost_per_hour::text, depth_premium_per_hour::text, currency FROM plan_generations"
        " WHERE workload_id = :w",
        w=name,
    )
    assert rows == [("6.440000", "0.240000", "USD")]


async def test_the_event_tells_whose_decision_it_is(opened: Placer) -> None:
    name = await new_workload(opened, "told")
    decided = await opened.place(6, name)
    rows = await opened.estate.rows("SELECT tenant_id, topic, payload FROM outbox WHERE key = :w", w=name)
    assert rows == [
        (
            TENANT,
            "compute-pools.placement.v1.plan-committed",
            {
                "placementId": str(decided.decision_id),
                "tenantId": TENANT,
                "workloadId": name,
                "generation": 1,
                "outcome": "placed",
                "units": 6,
                "placedUnits": 6,
            },
        )
    ]

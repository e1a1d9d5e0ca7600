"""From a claim to running servers and back, with real hands in the strict sandbox."""

from __future__ import annotations

from activities.placement_calls import ACQUIRE, PLAN_RELEASE
from tests.workflows.chronicle import chronicle
from tests.world import World

HELD = """
    SELECT p.hall, p.group_id, p.purchase_model, r.units, r.instances
    FROM reservations r JOIN pools p USING (tenant_id, pool_id)
    WHERE r.workload_id = :workload AND r.units > 0
"""
EVENTS = "SELECT topic FROM outbox WHERE key = :workload ORDER BY sequence"


async def test_a_claim_becomes_running_servers_within_its_contract(world: World) -> None:
    workload = await world.workload(floor="0.3")
    finished = await world.place(workload, 42)
    assert (finished.phase, finished.placed_units) == ("placed", 42)
    held = await world.rows(HELD, workload=workload)
    committed = [row for row in held if row[2] == "committed"]
    reclaimable = [row for row in held if row[2] == "reclaimable"]
    assert sum(row[3] for row in committed) >= 13
    assert len({row[0] for row in committed}) >= 3
    assert max(row[3] for row in reclaimable) <= 6
    for group in {row[1] for row in reclaimable}:
        assert sum(row[3] for row in reclaimable if row[1] == group) <= 12
    servers = world.cloud.admin.servers(metadata={"sco_workload": workload})
    assert [one["status"] for one in servers] == ["ACTIVE"] * sum(row[4] for row in held)
    assert len(servers) == finished.active_instances
    assert await world.problems() == []


async def test_a_workload_grows_shrinks_and_ends(world: World) -> None:
    workload = await world.workload()
    for units in (10, 30, 8, 0):
        finished = await world.place(workload, units)
        assert (finished.phase, finished.placed_units) == ("placed", units)
        assert await world.problems() == []
    assert finished.active_instances == 0
    servers = world.cloud.admin.servers(metadata={"sco_workload": workload})
    assert {one["status"] for one in servers} == {"DELETED"}


async def test_a_smaller_claim_gives_back_and_launches_nothing(world: World) -> None:
    workload = await world.workload()
    await world.place(workload, 30)
    before = {one["id"] for one in world.cloud.admin.servers(metadata={"sco_workload": workload})}
    await world.place(workload, 20)
    after = {one["id"] for one in world.cloud.admin.servers(metadata={"sco_workload": workload})}
    told = chronicle(await world.placement(workload).fetch_history())
    assert after == before
    assert f"-{PLAN_RELEASE}" in told
    assert f"+{ACQUIRE}" not in told


async def test_the_same_claim_again_changes_nothing(world: World) -> None:
    workload = await world.workload()
    await world.place(workload, 12)
    generations = "SELECT count(*), max(placed_units) FROM plan_generations WHERE workload_id = :workload"
    servers = "SELECT slot_key, server_id FROM instances WHERE workload_id = :workload ORDER BY 1"
    before = await world.rows(servers, workload=workload)
    finished = await world.place(workload, 12)
    assert finished.phase == "placed"
    assert await world.rows(servers, workload=workload) == before
    assert (await world.rows(generations, workload=workload))[0][1] == 12


async def test_every_step_is_told_in_order(world: World) -> None:
    workload = await world.workload()
    await world.place(workload, 5)
    topics = [row[0] for row in await world.rows(EVENTS, workload=workload)]
    assert [topic.rsplit(".", 1)[-1] for topic in topics] == ["plan-committed", "placement-finished"]

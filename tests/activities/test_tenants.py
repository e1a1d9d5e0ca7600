"""Two tenants with the same names for everything: neither sees, uses or changes what the other has."""

from __future__ import annotations

from store import releases, slots
from tests.activities.deciding import Placer, counts_are_right, halls
from tests.estates import Clock, Estate, contract

HELD = "SELECT pool_id, units, target_instances, instances FROM reservations WHERE tenant_id = :t ORDER BY 1"
SLOTS = "SELECT state, count(*) FROM instances WHERE tenant_id = :t GROUP BY 1"


async def test_tenants_share_nothing(estate: Estate) -> None:
    other = Estate(estate.engine, Clock(), "others")
    placers = []
    for one, free in ((estate, 10), (other, 3)):
        await one.open(halls(2, per_hall=1), free=free)
        await one.workload("orders", contract("halves", pool="0.5", group="0.5"))
        placers.append(Placer(one))
    ours, theirs = placers
    assert (await ours.place(8)).placed_units == 8
    assert (await theirs.place(8)).placed_units == 6
    before = await estate.rows(HELD, t="others")
    async with estate.engine.begin() as connection:
        live = await slots.live_slots(connection, estate.tenant_id, "orders", "eu-north")
        assert len(live) == 8
        await releases.mark_gone(connection, "others", "orders", [row["slot_key"] for row in live])
    assert await estate.rows(HELD, t="others") == before
    await ours.place(2)
    async with estate.engine.begin() as connection:
        await releases.mark_surplus(connection, estate.tenant_id, "orders")
    assert await estate.rows(SLOTS, t="others") == [("planned", 6)]
    assert dict(await estate.rows(SLOTS, t=estate.tenant_id)) == {"planned": 2, "gone": 6}
    assert await estate.rows("SELECT tenant_id, generation FROM workloads ORDER BY 1") == [
        ("others", 1),
        (estate.tenant_id, 2),
    ]
    await counts_are_right(estate)

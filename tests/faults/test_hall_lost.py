"""A hall is lost: what it held is planned again in the others, within the caps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.plant import PARTITION, REGION, Plant

HELD = """
    SELECT p.pool_id, p.hall, p.group_id, p.purchase_model, r.units
    FROM reservations r JOIN pools p USING (tenant_id, pool_id)
    WHERE r.workload_id = %s AND r.units > 0 ORDER BY 1
"""
CAPS = """
    SELECT pool_cap_units, group_cap_units, floor_units FROM plan_generations WHERE workload_id = %s
    ORDER BY generation DESC LIMIT 1
"""
# Pools that serve models elsewhere stand in no hall of the provider.
HALLS = "SELECT DISTINCT hall FROM pools WHERE region = %s AND kind = 'private_cloud'"
LOST = (
    "SELECT count(*) FROM pool_capacity JOIN pools USING (tenant_id, pool_id) WHERE hall = %s AND hall_lost"
)


@pytest.fixture
def plant_with_halls(plant: Plant) -> Iterator[Plant]:
    """The plant; its halls are back after the test."""
    yield plant
    halls = [row[0] for row in plant.rows(HALLS, REGION)]
    for hall in halls:
        plant.cloud.set_hall(hall, "up")
    plant.trigger(f"observation/{REGION}")
    plant.until(lambda: not any(plant.rows(LOST, hall)[0][0] for hall in halls), "the halls are back")


def test_units_of_a_lost_hall_move_to_the_others(plant_with_halls: Plant) -> None:
    plant = plant_with_halls
    workload = plant.new(40)
    plant.settle(workload)
    hall = plant.rows(HELD, workload)[0][1]
    plant.cloud.set_hall(hall, "lost")
    plant.trigger(f"observation/{REGION}")
    plant.until(lambda: plant.rows(LOST, hall)[0][0], "the registry knows of the lost hall")
    plant.trigger(f"placement-sweep/{PARTITION}")
    plant.until(
        lambda: hall not in {row[1] for row in plant.rows(HELD, workload)},
        "nothing is planned in the lost hall",
    )
    phase, missing, reason = plant.settle(workload)[workload]
    held = plant.rows(HELD, workload)
    assert sum(row[4] for row in held) + missing == 40
    assert (phase == "placed") == (missing == 0) == (reason is None)
    assert not [one for one in plant.servers(workload) if one["availability_zone"] == hall]
    pool_cap, group_cap, floor = plant.rows(CAPS, workload)[0]
    reclaimable = [row for row in held if row[3] == "reclaimable"]
    assert all(units <= pool_cap for *_, units in reclaimable)
    for group in {row[2] for row in reclaimable}:
        assert sum(row[4] for row in reclaimable if row[2] == group) <= group_cap
    committed = [row for row in held if row[3] == "committed"]
    assert sum(row[4] for row in committed) >= floor
    assert len({row[1] for row in committed}) >= 3

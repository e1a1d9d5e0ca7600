"""Workloads over REST: their owners, and the fleet against the caps of the claim."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.api.door import ORDERS, Door, problem


async def test_a_workload_needs_a_contract_and_a_partition_that_exist(door: Door) -> None:
    await door.open_estate()
    told = problem(await door.put("/workloads/web", ORDERS | {"contractId": "web"}), 422, "unknown_contract")
    assert "'web'" in told["detail"]
    told = problem(
        await door.put("/workloads/web", ORDERS | {"partitionId": "moon"}), 422, "unknown_partition"
    )
    assert "k8s-eu-north" in told["detail"]


async def test_the_partition_of_a_workload_is_fixed(door: Door) -> None:
    await door.open_estate()
    await door.put("/partitions/slurm-eu-north", {"region": "eu-north", "scheduler": "slurm"})
    moved = await door.put("/workloads/orders-daily", ORDERS | {"partitionId": "slurm-eu-north"})
    problem(moved, 409, "workload_in_other_partition")
    renamed = await door.put("/workloads/orders-daily", ORDERS | {"ownerTeam": "finance"})
    assert (renamed.status_code, renamed.json()["ownerTeam"]) == (200, "finance")


@pytest.mark.parametrize("owner", ["", "  ", "a\nb", "a\u0000b", "x" * 101, None, 7])
async def test_an_owner_is_one_line_of_text(read_door: Door, owner: object) -> None:
    told = problem(await read_door.put("/workloads/w", ORDERS | {"ownerTeam": owner}), 422, "invalid_request")
    assert told["errors"][0]["field"] == "ownerTeam"


async def test_before_its_first_claim_a_workload_has_no_fleet(door: Door) -> None:
    await door.open_estate()
    answer = (await door.get("/workloads/orders-daily")).json()
    assert (answer["phase"], answer["claim"], answer["caps"], answer["fleet"]) == (
        "requested",
        None,
        None,
        [],
    )
    problem(await door.get("/workloads/nobody"), 404, "unknown_workload")


async def test_the_fleet_adds_up_and_stays_within_the_caps(read_door: Door) -> None:
    answer = (await read_door.get("/workloads/orders-daily")).json()
    assert (answer["claim"]["units"], answer["claim"]["vcpu"], answer["claim"]["memoryGib"]) == (42, 168, 672)
    caps = answer["caps"]
    assert (caps["floorUnits"], caps["poolUnits"], caps["groupUnits"]) == (13, 6, 12)
    fleet = answer["fleet"]
    assert sum(row["units"] for row in fleet) == 42
    assert sum(row["units"] for row in fleet if row["purchaseModel"] == "committed") == 13
    assert all(row["units"] <= 6 for row in fleet if row["purchaseModel"] == "reclaimable")
    assert sum(row["units"] for row in answer["byGroup"]) == 42 - 13
    assert all(row["units"] <= row["capUnits"] == 12 for row in answer["byGroup"])
    assert sum(row["units"] for row in answer["byHall"]) == 42
    assert abs(sum((Decimal(row["share"]) for row in answer["byHall"]), Decimal(0)) - 1) < Decimal("0.001")
    assert answer["instancesByState"] == {"planned": sum(row["instances"] for row in fleet)}


async def test_waste_and_cost_are_those_of_the_instances(read_door: Door) -> None:
    answer = (await read_door.get("/workloads/orders-daily")).json()
    pools = {
        pool["poolId"]: pool
        for pool in (await read_door.get("/factory/compute-pools", pageSize=1000)).json()["items"]
    }
    has_vcpu = sum(row["instances"] * pools[row["poolId"]]["cpuCores"] for row in answer["fleet"])
    assert answer["waste"]["vcpu"] == has_vcpu - 168
    cost = sum(row["instances"] * Decimal(pools[row["poolId"]]["pricePerHourUsd"]) for row in answer["fleet"])
    assert answer["costPerHour"] == {"amount": f"{cost:.6f}", "currency": "USD"}
    assert Decimal(answer["depthPremiumPerHour"]["amount"]) >= 0


async def test_a_shortfall_is_told_with_its_reason(door: Door) -> None:
    await door.open_estate(free=0)
    await door.placed(42)
    answer = (await door.get("/workloads/orders-daily")).json()
    assert answer["shortfall"]["units"] == 42
    assert answer["shortfall"]["text"]
    listed = (await door.get("/workloads")).json()["items"]
    assert listed[0]["shortfall"] == answer["shortfall"]

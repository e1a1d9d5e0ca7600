"""Partitions over REST: created once, in a region that has pools, and never changed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from domain.pool import PoolState
from store import registry
from tests.api.door import ORDERS, T1, Door, problem

NORTH = {"region": "eu-north", "scheduler": "kubernetes"}


async def test_a_partition_is_created_once_and_takes_workloads(door: Door) -> None:
    await door.open_estate()
    slurm = {"region": "eu-north", "scheduler": "slurm"}
    first = await door.put("/partitions/slurm-eu-north", slurm)
    again = await door.put("/partitions/slurm-eu-north", slurm | {"partitionId": "slurm-eu-north"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json() == slurm | {"partitionId": "slurm-eu-north"}
    listed = (await door.get("/partitions")).json()["items"]
    assert [one["partitionId"] for one in listed] == ["k8s-eu-north", "slurm-eu-north"]
    workload = await door.put("/workloads/train", ORDERS | {"partitionId": "slurm-eu-north"})
    assert workload.status_code == 201


@pytest.mark.parametrize("changed", [{"region": "eu-west"}, {"scheduler": "slurm"}])
async def test_region_and_scheduler_are_fixed(door: Door, changed: dict[str, str]) -> None:
    assert (await door.put("/partitions/k8s-eu-north", NORTH)).status_code == 201
    told = problem(await door.put("/partitions/k8s-eu-north", NORTH | changed), 409, "partition_differs")
    assert "'eu-north' with scheduler 'kubernetes'" in told["detail"]
    assert (await door.get("/partitions")).json()["items"] == [NORTH | {"partitionId": "k8s-eu-north"}]


async def test_a_region_without_pools_is_refused_with_those_that_have_some(door: Door) -> None:
    await door.open_estate()
    told = problem(await door.put("/partitions/moon", NORTH | {"region": "moon"}), 422, "unknown_region")
    assert told["detail"] == "no pool is registered in region 'moon': regions with pools are eu-north"
    assert [one["partitionId"] for one in (await door.get("/partitions")).json()["items"]] == ["k8s-eu-north"]


async def test_before_any_pool_is_registered_every_region_is_taken(door: Door) -> None:
    assert (await door.put("/partitions/k8s-moon", NORTH | {"region": "moon"})).status_code == 201
    await door.open_estate()
    assert (await door.put("/partitions/k8s-moon", NORTH | {"region": "moon"})).status_code == 200


async def test_many_at_once_create_it_once(door: Door) -> None:
    answers = await asyncio.gather(*(door.put("/partitions/k8s-eu-north", NORTH) for _ in range(8)))
    assert sorted(one.status_code for one in answers) == [200] * 7 + [201]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"region": "eu-north"}, "scheduler"),
        (NORTH | {"scheduler": "nomad"}, "scheduler"),
        (NORTH | {"region": "Eu North"}, "region"),
        (NORTH | {"partitionId": "other"}, "partitionId"),
        (NORTH | {"hall": "eu-north-h1"}, "hall"),
    ],
)
async def test_a_wrong_field_is_named(read_door: Door, body: dict[str, Any], field: str) -> None:
    told = problem(await read_door.put("/partitions/k8s-new", body), 422, "invalid_request")
    assert [error["field"] for error in told["errors"]] == [field]


async def test_a_workload_of_an_unknown_partition_is_told_how_to_create_it(door: Door) -> None:
    await door.put("/contracts/orders-daily", T1)
    told = problem(await door.put("/workloads/orders-daily", ORDERS), 422, "unknown_partition")
    assert "PUT /partitions/{partitionId}" in told["whatToDo"]


async def test_no_pools_are_registered_without_any(door: Door) -> None:
    async with door.estate.engine.begin() as connection:
        assert await registry.register_pools(connection, [], PoolState.ACTIVE) == 0

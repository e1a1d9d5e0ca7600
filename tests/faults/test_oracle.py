"""The oracle says what is wrong when it is: on one placed workload, shown a doctored cloud or plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from lab.oracle import check
from tests.faults.plant import Plant

Servers = list[dict[str, Any]]


class Doctored:
    """The cloud's admin API, but for what it says of servers."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    def servers(self) -> Servers:
        return self._servers


@pytest.fixture(scope="module")
def placed(own_plant: Plant) -> str:
    workload = own_plant.new(10)
    own_plant.settle(workload)
    return workload


def first_of(servers: Servers, workload: str) -> dict[str, Any]:
    return next(
        one
        for one in servers
        if one["metadata"].get("sco_workload") == workload and one["status"] != "DELETED"
    )


def vanished(servers: Servers, workload: str) -> None:
    servers.remove(first_of(servers, workload))


def deleted(servers: Servers, workload: str) -> None:
    first_of(servers, workload)["status"] = "DELETED"


def leaving(servers: Servers, workload: str) -> None:
    first_of(servers, workload)["task_state"] = "deleting"


def made_twice(servers: Servers, workload: str) -> None:
    servers.append(first_of(servers, workload) | {"id": "another"})


def exchanged(servers: Servers, workload: str) -> None:
    one = first_of(servers, workload)
    one["metadata"] = one["metadata"] | {"sco_pool": "eu-north-h9-gp-s"}


def orphaned(servers: Servers, workload: str) -> None:
    one = first_of(servers, workload)
    servers.append(one | {"id": "another", "metadata": {}})


@pytest.mark.parametrize(
    ("doctor", "said"),
    [
        (vanished, "does not exist"),
        (deleted, "does not exist"),
        (leaving, "is being deleted"),
        (made_twice, "has 0 live slots"),
        (made_twice, "servers for"),
        (exchanged, "was made for another slot"),
        (orphaned, "has 0 live slots"),
    ],
)
def test_a_cloud_that_differs_is_told_of(
    plant: Plant, placed: str, doctor: Callable[[Servers, str], None], said: str
) -> None:
    servers = [dict(one) for one in plant.cloud.servers()]
    doctor(servers, placed)
    problems = check(plant.dsn, Doctored(servers))
    assert any(said in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("shortfall_units = 3", "units are placed and 3 missing of 10"),
        ("shortfall_units = 3", "missing with reason None"),
        ("phase = 'shortfall'", "shortfall with 0 units missing"),
    ],
)
def test_a_plan_that_does_not_add_up_is_told_of(plant: Plant, placed: str, change: str, said: str) -> None:
    with psycopg.connect(plant.dsn, autocommit=True) as owner:
        owner.execute("UPDATE workloads SET " + change + " WHERE workload_id = %s", [placed])
        problems = check(plant.dsn, plant.cloud)
        owner.execute(
            "UPDATE workloads SET phase = 'placed', shortfall_units = 0 WHERE workload_id = %s", [placed]
        )
    assert any(said in problem for problem in problems), problems
    assert check(plant.dsn, plant.cloud) == []

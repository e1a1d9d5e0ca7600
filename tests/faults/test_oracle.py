"""The oracle says what is wrong when it is: on one placed workload, shown a doctored cloud or plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from lab.oracle import check, ran_at_once
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


def sent_away(servers: Servers, workload: str) -> None:
    """Whose servers are of a workload that is not registered."""
    one = first_of(servers, workload)
    one["metadata"] = one["metadata"] | {"sco_workload": "nobody"}


def untagged(servers: Servers, workload: str) -> None:
    first_of(servers, workload)["tags"] = ["sco:managed"]


def broken(servers: Servers, workload: str) -> None:
    first_of(servers, workload)["status"] = "ERROR"


def beside_its_lease(servers: Servers, workload: str) -> None:
    one = next(one for one in servers if one["reservation"] is not None and one["status"] != "DELETED")
    assert one["metadata"]["sco_workload"] == workload
    one["reservation"] = None


@pytest.mark.parametrize(
    ("doctor", "said"),
    [
        (vanished, "does not exist"),
        (deleted, "does not exist"),
        (leaving, "is being deleted"),
        (made_twice, "servers for"),
        (exchanged, "was made for another slot"),
        (orphaned, "which nobody knows"),
        (sent_away, "has metadata sco_workload=nobody"),
        (untagged, "lacks the tags"),
        (broken, "is active, its server"),
        (beside_its_lease, "is not on a lease"),
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
        ("shortfall_units = 3", "are missing with reason None"),
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


def test_an_action_that_nobody_logged_is_told_of_where_the_log_is_asked(plant: Plant, placed: str) -> None:
    erase = "UPDATE audit_log SET action = %s WHERE workload_id = %s AND action = %s"
    with psycopg.connect(plant.dsn, autocommit=True) as owner:
        owner.execute("SET session_replication_role = replica")
        owner.execute(erase, ["renew_lease", placed, "launch"])
        problems = check(plant.dsn, plant.cloud)
        without_log = check(plant.dsn, plant.cloud, with_log=False)
        owner.execute(erase, ["launch", placed, "renew_lease"])
    assert problems
    assert all("audit log" in problem for problem in problems)
    assert without_log == []


def test_servers_of_others_that_were_touched_are_told_of(plant: Plant) -> None:
    known = {one["id"] for one in plant.cloud.servers()}
    plant.cloud.load("eu-south", 3, tags=("web",))
    foreign = sorted({one["id"] for one in plant.cloud.servers()} - known)
    assert check(plant.dsn, plant.cloud, foreign=foreign) == []
    servers = [dict(one) for one in plant.cloud.servers()]
    first, second = (next(one for one in servers if one["id"] == server_id) for server_id in foreign[:2])
    first["actions"] = [*first["actions"], {"action": "delete"}]
    second["tags"] = ["web", "sco:managed"]
    problems = check(plant.dsn, Doctored(servers), foreign=foreign)
    assert f"foreign server {foreign[0]} was touched: delete" in problems
    assert f"foreign server {foreign[1]} was tagged as ours" in problems


def test_a_batch_that_ever_ran_one_server_too_many_is_told_of(plant: Plant, placed: str) -> None:
    assert ran_at_once(plant.dsn, plant.cloud) == []
    servers = [dict(one) for one in plant.cloud.servers()]
    one = first_of(servers, placed)
    slots = sum(each["metadata"].get("sco_batch") == one["metadata"]["sco_batch"] for each in servers)
    ended = one["launched_at"].replace("20", "19", 1)
    gone = {"id": "gone", "status": "DELETED", "launched_at": ended, "terminated_at": one["launched_at"]}
    assert ran_at_once(plant.dsn, Doctored([*servers, one | gone])) == []
    twin = {"id": "twin", "status": "DELETED", "terminated_at": "9999-01-01T00:00:00Z"}
    problems = ran_at_once(plant.dsn, Doctored([*servers, one | twin]))
    assert problems == [
        f"batch {one['metadata']['sco_batch']} had {slots + 1} servers running at once for {slots} slots"
    ]

"""Bare metal: pools counted in nodes, whether the simulated cloud or a real Ironic lists them."""

from __future__ import annotations

import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from openstack.connection import Connection

from activities.openstack.bare_metal import FAILED_STATES, IronicNodes, Node
from activities.ports import PoolObservation
from lab.cloud.server import CloudHandle
from lab.cloud.settings import CloudSettings
from lab.openstack.ironic import RunningIronic
from tests.activities.openstack.hands import Hands, spec
from tests.conformance.provider import HALL, REGION
from tests.stack_fixtures import new_folder

SKU, FLAVOR = "bm", "bm.xl.reclaimable"
RESOURCE_CLASS, PLACEMENT_CLASS = "metal.bm", "CUSTOM_METAL_BM"
MICROVERSION = "1.46"
INSTANCE = "7d2f1d0c-0000-4000-8000-000000000001"
NODES = 5
SETTLE_SECONDS, POLL_SECONDS = 60.0, 0.1


class Yard(ABC):
    """A cloud that offers bare metal, and a hand on its nodes, `NODES` of which are ready."""

    def __init__(self, settings: CloudSettings) -> None:
        self.cloud = CloudHandle.start_in_thread(settings)
        # The pool with its price and flavor. Where Ironic is real, nobody sees these nodes.
        self.enrolled = self.cloud.admin.enroll(HALL, SKU, NODES)
        self.hands = Hands(self.cloud)
        self.client: Connection = self.cloud.connect(REGION)
        self.ready: list[str] = []

    @abstractmethod
    def take(self) -> str:
        """Put an instance on a node; the node's id."""

    @abstractmethod
    def give_back(self, node: str) -> None:
        """Take the instance off a node again."""

    @abstractmethod
    def spoil(self, node: str) -> None:
        """Let a node end in a failed state."""

    def close(self) -> None:
        self.hands.connections.close()
        self.client.close()
        self.cloud.stop()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """One request to Ironic as it is."""
        call = getattr(self.client.baremetal, method)
        return call(path, json=body, microversion=MICROVERSION)

    def provision(self, node: str, verb: str, after: str, **more: Any) -> None:
        answer = self.ask("put", f"/nodes/{node}/states/provision", {"target": verb, **more})
        assert answer.status_code == 202, answer.text
        self.until(node, lambda state: state == after)

    def until(self, node: str, holds: Callable[[str], bool]) -> None:
        deadline = time.monotonic() + SETTLE_SECONDS
        while not holds(state := self.ask("get", f"/nodes/{node}").json()["provision_state"]):
            assert time.monotonic() < deadline, f"the node stays in {state}"
            time.sleep(POLL_SECONDS)

    def listed(self) -> dict[str, Node]:
        found = IronicNodes(self.hands.connections).read(REGION)
        assert found is not None
        return {node.node_id: node for node in found}

    def pool(self) -> PoolObservation:
        (pool,) = [one for one in self.hands.catalog.observe(REGION) if one.flavor == FLAVOR]
        return pool


class SimulatedYard(Yard):
    def __init__(self) -> None:
        super().__init__(CloudSettings(speed=50))
        self.ready = self.enrolled

    def take(self) -> str:
        self.hands.compute.create_batch(spec(flavor=FLAVOR), 1)
        (taken,) = [node.node_id for node in self.listed().values() if node.is_taken]
        return taken

    def give_back(self, node: str) -> None:
        (server,) = self.hands.compute.list_managed(REGION)
        self.hands.compute.delete(REGION, server.server_id)
        self.until(node, lambda state: state == "available")

    def spoil(self, node: str) -> None:
        self.cloud.admin.set_node(node, "clean failed")


class IronicYard(Yard):
    def __init__(self, ironic: RunningIronic) -> None:
        super().__init__(CloudSettings(endpoints={"baremetal": ironic.url}))
        self.ready = [self.enroll(number) for number in range(NODES)]

    def enroll(self, number: int) -> str:
        body = {
            "name": f"node-{number}",
            "driver": "fake-hardware",
            "resource_class": RESOURCE_CLASS,
            "extra": {"availability_zone": HALL},
        }
        node = str(self.ask("post", "/nodes", body).json()["uuid"])
        self.provision(node, "manage", "manageable")
        self.provision(node, "provide", "available")
        return node

    def take(self) -> str:
        """As Nova does before it deploys."""
        self._change(self.ready[2], {"op": "add", "path": "/instance_uuid", "value": INSTANCE})
        return self.ready[2]

    def give_back(self, node: str) -> None:
        self._change(node, {"op": "remove", "path": "/instance_uuid"})

    def _change(self, node: str, change: dict[str, str]) -> None:
        assert self.ask("patch", f"/nodes/{node}", [change]).status_code == 200

    def spoil(self, node: str) -> None:
        self.provision(node, "manage", "manageable")
        steps = [{"interface": "deploy", "step": "no_such_step"}]
        self.provision(node, "clean", "clean failed", clean_steps=steps)


@pytest.fixture(scope="module")
def simulated_yard() -> Iterator[Yard]:
    yard = SimulatedYard()
    yield yard
    yard.close()


@pytest.fixture(scope="module")
def ironic_yard() -> Iterator[Yard]:
    """Started when the first test asks for it, which takes about 15 s."""
    folder = new_folder()
    with RunningIronic.start(folder / "ironic") as ironic:
        yard = IronicYard(ironic)
        yield yard
        yard.close()
    shutil.rmtree(folder)


@pytest.fixture(params=["simulated", "ironic"])
def yard(request: pytest.FixtureRequest) -> Yard:
    found = request.getfixturevalue(f"{request.param}_yard")
    assert isinstance(found, Yard)
    return found


def test_nodes_are_listed_with_class_hall_and_state(yard: Yard) -> None:
    """In several pages where Ironic is real: its pages are short here."""
    listed = yard.listed()
    assert set(yard.ready) <= set(listed)
    for node in yard.ready:
        assert (listed[node].resource_class, listed[node].hall) == (PLACEMENT_CLASS, HALL)
        assert (listed[node].provision_state, listed[node].in_maintenance) == ("available", False)
    assert (yard.pool().total_instances, yard.pool().free_instances) == (NODES, NODES)


def test_a_node_in_maintenance_does_not_count_until_it_is_back(yard: Yard) -> None:
    node = yard.ready[0]
    assert yard.ask("put", f"/nodes/{node}/maintenance", {"reason": "a fan"}).status_code == 202
    assert yard.listed()[node].in_maintenance
    assert (yard.pool().total_instances, yard.pool().free_instances) == (NODES - 1, NODES - 1)
    assert yard.ask("delete", f"/nodes/{node}/maintenance").status_code == 202
    assert yard.pool().total_instances == NODES


def test_a_node_that_its_operator_took_back_does_not_count(yard: Yard) -> None:
    node = yard.ready[1]
    yard.provision(node, "manage", "manageable")
    assert (yard.pool().total_instances, yard.pool().free_instances) == (NODES - 1, NODES - 1)
    yard.provision(node, "provide", "available")
    assert yard.pool().total_instances == NODES


def test_a_verb_that_does_not_fit_the_state_is_refused(yard: Yard) -> None:
    answer = yard.ask("put", f"/nodes/{yard.ready[1]}/states/provision", {"target": "provide"})
    assert answer.status_code == 400
    assert "can not be performed on node" in answer.json()["error_message"]


def test_pages_follow_each_other_with_the_marker(yard: Yard) -> None:
    first = yard.ask("get", "/nodes?limit=2&fields=uuid,maintenance").json()
    marker = first["nodes"][-1]["uuid"]
    assert f"marker={marker}" in first["next"]
    assert set(first["nodes"][0]) - {"links"} == {"uuid", "maintenance"}
    second = yard.ask("get", f"/nodes?limit=2&fields=uuid&marker={marker}").json()
    ids = [node["uuid"] for page in (first, second) for node in page["nodes"]]
    assert len(set(ids)) == 4
    assert set(ids) <= set(yard.listed())


def test_a_node_that_nobody_knows_is_not_found(yard: Yard) -> None:
    answer = yard.ask("get", "/nodes/nobody")
    assert answer.status_code == 404
    assert "Node nobody could not be found." in answer.json()["error_message"]


def test_a_taken_node_counts_and_is_not_free(yard: Yard) -> None:
    taken = yard.take()
    assert yard.listed()[taken].is_taken
    assert (yard.pool().total_instances, yard.pool().free_instances) == (NODES, NODES - 1)
    yard.give_back(taken)
    assert yard.pool().free_instances == NODES


def test_a_node_in_a_failed_state_does_not_count(yard: Yard) -> None:
    """Last of all: a real node does not come back from it within a test."""
    spoilt = yard.ready[3]
    yard.spoil(spoilt)
    assert yard.listed()[spoilt].provision_state in FAILED_STATES
    assert (yard.pool().total_instances, yard.pool().free_instances) == (NODES - 1, NODES - 1)

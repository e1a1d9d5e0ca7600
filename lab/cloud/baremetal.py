"""Bare metal: nodes as Ironic keeps them, and the host groups that offer them to Nova.

A node is one instance of its pool. Which node a server runs on, and the state that follows from it, is
worked out when the region settles, so that launching and deleting know nothing of nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from lab.cloud.capacity import HostGroup
from lab.cloud.errors import CloudError
from lab.cloud.estate import METAL, metal_plan, resource_class, stable_id
from lab.cloud.records import Server, Status
from lab.cloud.table import ServerTable

DELETING = "deleting"


class NodeState(StrEnum):
    """Provision states, in Ironic's words."""

    ENROLL = "enroll"
    MANAGEABLE = "manageable"
    AVAILABLE = "available"
    DEPLOYING = "deploying"
    ACTIVE = "active"
    DELETING = "deleting"
    DEPLOY_FAILED = "deploy failed"
    CLEAN_FAILED = "clean failed"
    ERROR = "error"


# The states that follow from the server on a node. The others last until somebody changes them.
FOLLOWING = frozenset({NodeState.AVAILABLE, NodeState.DEPLOYING, NodeState.ACTIVE, NodeState.DELETING})
VERBS: dict[tuple[str, NodeState], NodeState] = {
    ("manage", NodeState.ENROLL): NodeState.MANAGEABLE,
    ("manage", NodeState.AVAILABLE): NodeState.MANAGEABLE,
    ("manage", NodeState.CLEAN_FAILED): NodeState.MANAGEABLE,
    ("provide", NodeState.MANAGEABLE): NodeState.AVAILABLE,
    ("deleted", NodeState.ERROR): NodeState.AVAILABLE,
    ("deleted", NodeState.DEPLOY_FAILED): NodeState.AVAILABLE,
}
"""What a provisioning verb makes of a state; Ironic's way there is left out."""


@dataclass(slots=True)
class Node:
    """One machine. `instance_id` is the server on it."""

    id: str
    name: str
    hall: str
    sku: str
    created_at: datetime
    provision_state: NodeState = NodeState.AVAILABLE
    maintenance: bool = False
    maintenance_reason: str | None = None
    instance_id: str | None = None
    updated_at: datetime | None = None

    @property
    def group(self) -> str:
        return metal_plan(self.hall, self.sku).name

    @property
    def resource_class(self) -> str:
        return resource_class(self.sku)

    @property
    def is_free(self) -> bool:
        free = self.provision_state is NodeState.AVAILABLE and self.instance_id is None
        return free and not self.maintenance


class NodeYard:
    """The nodes of one region, in the order of their enrolment."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}

    def all(self) -> list[Node]:
        return list(self._nodes.values())

    def add(self, nodes: Iterable[Node]) -> None:
        self._nodes.update({node.id: node for node in nodes})

    def enroll(self, hall: str, sku: str, count: int, now: datetime) -> list[Node]:
        """Nodes of a family in a hall, ready for use; 404 for an unknown family."""
        if sku not in METAL:
            raise CloudError(404, f"bare-metal family {sku!r} does not exist: give one of {', '.join(METAL)}")
        first = 1 + sum(node.hall == hall and node.sku == sku for node in self._nodes.values())
        names = [f"{hall}-{sku}-{number:03d}" for number in range(first, first + count)]
        made = [Node(stable_id("node", name), name, hall, sku, now) for name in names]
        self.add(made)
        return made

    def get(self, key: str) -> Node:
        """The node of this id or name; 404 in Ironic's words otherwise."""
        found = self._nodes.get(key) or next(
            (node for node in self._nodes.values() if node.name == key), None
        )
        if found is None:
            raise CloudError(404, f"Node {key} could not be found.")
        return found

    def settle(self, groups: dict[str, HostGroup], servers: ServerTable) -> None:
        """Put servers on nodes, and let every host group offer as many instances as it has free nodes."""
        by_group: dict[str, list[Node]] = {}
        for node in self._nodes.values():
            by_group.setdefault(node.group, []).append(node)
        for name, nodes in by_group.items():
            _seat(nodes, servers.with_key(("host", name)))
            group = groups[name]
            total = group.used + sum(node.is_free for node in nodes)
            if total != group.total:
                group.resize(total)


def _seat(nodes: list[Node], servers: list[Server]) -> None:
    """Every server on a node of its own, and every node in the state of its server."""
    present = {server.id: server for server in servers}
    for node in nodes:
        if node.instance_id is not None and node.instance_id not in present:
            node.instance_id = None
            if node.provision_state in FOLLOWING:
                node.provision_state = NodeState.AVAILABLE
    seated = {node.instance_id for node in nodes}
    free = [node for node in nodes if node.is_free]
    for server in servers:
        if server.id not in seated and free:
            free.pop(0).instance_id = server.id
    for node in nodes:
        if node.instance_id is not None and node.provision_state in FOLLOWING:
            node.provision_state = _state_under(present[node.instance_id])


def _state_under(server: Server) -> NodeState:
    if server.task_state == DELETING:
        return NodeState.DELETING
    return NodeState.DEPLOYING if server.status is Status.BUILD else NodeState.ACTIVE

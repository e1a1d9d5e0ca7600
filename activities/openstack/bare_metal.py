"""Bare-metal nodes, through Ironic: how many instances of a pool there are, and how many are free.

Nova launches bare metal like anything else, with a flavor that asks for one node of a resource class and
for no vCPU: `resources:CUSTOM_METAL_BM=1`, `resources:VCPU=0`. What is free of it, no forward capacity
knows as exactly as the list of nodes. A node's hall is, in this order:

1. `extra.availability_zone`, what an operator wrote on it,
2. `properties.availability_zone`, the same where inspection fills it in,
3. its conductor group, where each hall has conductors of its own.

A node without any of these is in no hall, and counts nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from keystoneauth1.exceptions import EndpointNotFound
from openstack.exceptions import raise_from_response

from activities.openstack.answers import Answer
from activities.openstack.session import Connections, RegionClient

SERVICE = "baremetal"
# Conductor groups (1.46), fields (1.8) and resource classes (1.21).
MICROVERSION = "1.46"
FIELDS = ("uuid", "resource_class", "provision_state", "maintenance", "instance_uuid")
PLACE_FIELDS = ("conductor_group", "extra", "properties")
MAX_PAGES = 1_000
AVAILABLE = "available"
FAILED_STATES = frozenset(
    {
        "error",
        "deploy failed",
        "clean failed",
        "inspect failed",
        "adopt failed",
        "rescue failed",
        "unrescue failed",
        "service failed",
    }
)
# Nodes that their operator has not handed over yet, or has taken back.
APART_STATES = frozenset({"enroll", "verifying", "manageable", "inspecting", "inspect wait"})
CLASS_SPEC, NO_VCPU_SPEC = "resources:CUSTOM_", "resources:VCPU"
CUSTOM, RESERVATION_CLASS = "CUSTOM_", "CUSTOM_RESERVATION_"


class _Node(Answer):
    uuid: str
    resource_class: str | None = None
    provision_state: str | None = None
    maintenance: bool
    instance_uuid: str | None = None
    conductor_group: str | None = None
    extra: dict[str, Any] | None = None
    properties: dict[str, Any] | None = None


class _Nodes(Answer):
    nodes: tuple[_Node, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One node. `resource_class` is Placement's name for it, such as CUSTOM_METAL_BM."""

    node_id: str
    resource_class: str | None
    hall: str | None
    provision_state: str
    in_maintenance: bool
    is_taken: bool

    @property
    def counts(self) -> bool:
        """Whether the node runs an instance or could."""
        return not self.in_maintenance and self.provision_state not in FAILED_STATES | APART_STATES

    @property
    def is_free(self) -> bool:
        return self.counts and self.provision_state == AVAILABLE and not self.is_taken


@dataclass(frozen=True, slots=True)
class NodeCount:
    """Nodes of one class in one hall."""

    total: int
    free: int


class IronicNodes:
    """The bare-metal nodes of every region. Safe to share between threads."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def read(self, region: str) -> list[Node] | None:
        """Every node by id, all pages or none. None where the cloud offers no bare metal."""
        with self._connections.calling(region, "list the bare-metal nodes") as client:
            if not _is_offered(client):
                return None
            nodes = {each.uuid: _node(each) for page in _pages(client) for each in page}
        return [nodes[node_id] for node_id in sorted(nodes)]


def count_nodes(nodes: Iterable[Node]) -> dict[tuple[str, str], NodeCount]:
    """Nodes that count, and those of them that are free, by (hall, resource class)."""
    total: dict[tuple[str, str], int] = {}
    free: dict[tuple[str, str], int] = {}
    for node in nodes:
        if node.hall is not None and node.resource_class is not None and node.counts:
            place = (node.hall, node.resource_class)
            total[place] = total.get(place, 0) + 1
            free[place] = free.get(place, 0) + node.is_free
    return {place: NodeCount(total[place], free[place]) for place in total}


def metal_class(extra_specs: Mapping[str, str]) -> str | None:
    """The resource class whose nodes a flavor runs on, None for a flavor of virtual machines."""
    classes = [
        name.removeprefix("resources:")
        for name, value in sorted(extra_specs.items())
        if name.startswith(CLASS_SPEC) and value == "1"
    ]
    own = [each for each in classes if not each.startswith(RESERVATION_CLASS)]
    return own[0] if len(own) == 1 and extra_specs.get(NO_VCPU_SPEC) == "0" else None


def _is_offered(client: RegionClient) -> bool:
    """Whether the catalog that came with our token has bare metal in this region; asks nothing."""
    try:
        found = client.session.get_endpoint(
            service_type=SERVICE, interface="public", region_name=client.region
        )
    except EndpointNotFound:
        return False
    return found is not None


def _pages(client: RegionClient) -> Iterator[tuple[_Node, ...]]:
    """Every page of the list. Details are not asked for: they hold how each node is reached."""
    query = {"fields": ",".join(FIELDS + PLACE_FIELDS)}
    for _ in range(MAX_PAGES):
        # The SDK's own retries for bare metal are turned off: the caller decides when to ask again.
        response = client.connection.baremetal.get(
            "/nodes", params=query, microversion=MICROVERSION, status_code_retries=0, connect_retries=0
        )
        raise_from_response(response)
        answer = _Nodes.model_validate(response.json())
        yield answer.nodes
        if answer.next is None or not answer.nodes:
            return
        # The link itself is not followed: its host is what the provider believes to be called.
        query = {**query, "marker": answer.nodes[-1].uuid}
    raise ValueError(f"the list did not end within {MAX_PAGES} pages")


def _node(listed: _Node) -> Node:
    return Node(
        node_id=listed.uuid,
        resource_class=_placement_name(listed.resource_class),
        hall=_hall(listed),
        provision_state=listed.provision_state or AVAILABLE,
        in_maintenance=listed.maintenance,
        is_taken=listed.instance_uuid is not None,
    )


def _placement_name(resource_class: str | None) -> str | None:
    """The name under which Nova tells Placement of a node's class: `metal.bm` is CUSTOM_METAL_BM."""
    return CUSTOM + re.sub("[^0-9A-Z]+", "_", resource_class.upper()) if resource_class else None


def _hall(listed: _Node) -> str | None:
    for noted in (listed.extra or {}, listed.properties or {}):
        hall = noted.get("availability_zone")
        if isinstance(hall, str) and hall:
            return hall
    return listed.conductor_group or None

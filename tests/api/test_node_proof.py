"""The door takes any proof of which node asks, and treats one that fails the same whatever the proof."""

from __future__ import annotations

from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry
from starlette.requests import Request

from api.node_plane import NodePlane
from api.problems import Problem
from api.sign_in.needs import Caller
from api.sign_in.node_door import NodeDoor, NodeDoorMetrics
from api.sign_in.node_proof import NodeRefusedAs, NotProven
from store.nodes import Node

NODE = Node("acme", "server-1", "key")


class VerifiedByProxy:
    """Believes the name that a proxy has verified and put into a header, as with certificates of SPIFFE."""

    async def node(self, instance_id: str, request: Request) -> tuple[Node, bytes]:
        if request.headers.get("x-verified") != f"spiffe://cloud/node/{instance_id}":
            raise NotProven(NodeRefusedAs.FOREIGN, f"not {instance_id}")
        return NODE, await request.body()


def request(verified: str) -> Request:
    sent = [{"type": "http.request", "body": b"said", "more_body": False}]

    async def receive() -> Any:
        return sent.pop()

    headers = [(b"x-verified", verified.encode())]
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": headers}
    return Request(scope, receive)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def door(registry: CollectorRegistry) -> NodeDoor:
    return NodeDoor(cast(NodePlane, object()), NodeDoorMetrics(registry), VerifiedByProxy())


async def test_another_proof_admits_its_node_with_the_body(door: NodeDoor) -> None:
    asked = request("spiffe://cloud/node/server-1")
    receive = await door.admit(Caller.NODE, "server-1", asked)
    assert asked.state.node == NODE
    assert await receive() == {"type": "http.request", "body": b"said", "more_body": False}


async def test_who_proves_nothing_is_told_nothing_and_counted(
    door: NodeDoor, registry: CollectorRegistry
) -> None:
    with pytest.raises(Problem) as refused:
        await door.admit(Caller.NODE, "server-1", request("spiffe://cloud/node/server-2"))
    assert refused.value.kind.status == 401
    assert "server" not in str(refused.value)
    counted = registry.get_sample_value("sco_node_requests_refused_total", {"reason": "foreign"})
    assert counted == 1

"""How a node proves which one it is: a port, and the proof by a signature under each request.

Whoever brings identities of another kind, such as SPIFFE's, fills the port: it says which node a connection
or a proxy in front of us, has verified. The door, the routes and what a node may ask stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from starlette.requests import Request

from store import nodes
from store.engine import Engine, of_tenant
from store.nodes import Node, Seen
from wire.node_requests import (
    MAX_SKEW,
    Asked,
    Head,
    RequestRefusal,
    RequestRefusedAs,
    read_head,
    stale,
    verify_request,
)
from wire.signing import public_key


class NodeRefusedAs(StrEnum):
    """The label of `sco_node_requests_refused_total`."""

    MISSING = RequestRefusedAs.MISSING.value
    MALFORMED = RequestRefusedAs.MALFORMED.value
    FOREIGN = RequestRefusedAs.FOREIGN.value
    STALE = RequestRefusedAs.STALE.value
    BAD_SIGNATURE = RequestRefusedAs.BAD_SIGNATURE.value
    UNKNOWN_NODE = "unknown_node"
    REPLAYED = "replayed"
    TOO_MANY = "too_many"
    NOT_ENROLLED = "not_enrolled"
    NOT_THE_PROVIDER = "not_the_provider"


class NotProven(Exception):
    """The request does not prove that the node sent it. `detail` is for the log, never for the sender."""

    def __init__(self, reason: NodeRefusedAs, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


class NodeProof(Protocol):
    """One way to prove which node sends a request."""

    async def node(self, instance_id: str, request: Request) -> tuple[Node, bytes]:
        """The node of this instance, which is known and lives, and the body, if the node sent the request.

        NotProven otherwise; errors of the store come through.
        """
        ...


class SignedRequests:
    """A signature under each request, by the key that the node registered; it is worth one request."""

    def __init__(self, engine: Engine, now: Callable[[], datetime]) -> None:
        self._engine, self._now = engine, now

    async def node(self, instance_id: str, request: Request) -> tuple[Node, bytes]:
        head = self._head(instance_id, request)
        async with self._engine.connect() as connection:
            node = await nodes.find_node(connection, instance_id)
        if node is None:
            raise NotProven(NodeRefusedAs.UNKNOWN_NODE, instance_id)
        body = await request.body()
        key = public_key(instance_id, node.public_key)
        asked = Asked(request.method, _target(request), body)
        refused = verify_request(head, asked, key=key, instance_id=instance_id, now=self._now())
        if refused is not None:
            raise NotProven(NodeRefusedAs(refused.reason.value), f"{instance_id}: {refused.detail}")
        await self._require_first(node, head)
        return node, body

    def _head(self, instance_id: str, request: Request) -> Head:
        head = read_head(request.headers.items())
        if isinstance(head, RequestRefusal):
            raise NotProven(NodeRefusedAs(head.reason.value), head.detail)
        refused = stale(head, self._now())
        if refused is not None:
            raise NotProven(NodeRefusedAs(refused.reason.value), refused.detail)
        if head.instance_id != instance_id:
            raise NotProven(NodeRefusedAs.FOREIGN, f"{head.instance_id} asks for {instance_id}")
        return head

    async def _require_first(self, node: Node, head: Head) -> None:
        """It is remembered for as long as its time would be believed."""
        now = self._now()
        async with of_tenant(self._engine, node.tenant_id).begin() as connection:
            seen = await nodes.remember_request(
                connection, node, nonce=head.nonce, now=now, until=now + 2 * MAX_SKEW
            )
        if seen is Seen.TOO_MANY:
            told = f"more than {nodes.REQUESTS_PER_WINDOW} requests in {2 * MAX_SKEW.total_seconds():.0f} s"
            raise NotProven(NodeRefusedAs.TOO_MANY, told)
        if seen is Seen.REPLAYED:
            raise NotProven(NodeRefusedAs.REPLAYED, node.instance_id)


def _target(request: Request) -> str:
    """Path and query as they stand in the request line."""
    path: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    query: bytes = request.scope["query_string"]
    return (path + b"?" + query if query else path).decode("latin-1")

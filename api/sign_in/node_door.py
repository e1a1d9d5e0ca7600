"""The door for nodes: who signed a request, and whether it is answered for the first time.

Whatever is wrong, the answer is the same; why is counted and logged. A body is read once the head of its
request is believable and its instance is known, so that nobody unknown makes us read.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum

import structlog
from prometheus_client import CollectorRegistry, Counter
from starlette.requests import Request
from starlette.types import Message, Receive

from api import problems
from api.node_plane import NodePlane
from api.problems import Problem
from api.sign_in.needs import Caller
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

CHALLENGE = {"WWW-Authenticate": "SCO-Node"}
PROVIDER_CHALLENGE = {"WWW-Authenticate": 'Basic realm="vendordata"'}
log = structlog.get_logger("api")


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


class NodeDoorMetrics:
    """Counts refusals by reason."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._refused = Counter(
            "sco_node_requests_refused_total",
            "Requests of nodes and of the provider refused for who asked",
            ["reason"],
            registry=registry,
        )
        for reason in NodeRefusedAs:
            self._refused.labels(reason.value)

    def refused(self, reason: NodeRefusedAs) -> None:
        self._refused.labels(reason.value).inc()


class NodeDoor:
    """Admits nodes and the provider. Without a node plane nobody comes in here."""

    def __init__(
        self,
        plane: NodePlane | None,
        engine: Engine,
        metrics: NodeDoorMetrics,
        now: Callable[[], datetime],
    ) -> None:
        self._plane = plane
        self._engine = engine
        self._metrics = metrics
        self._now = now

    async def admit(self, caller: Caller, instance_id: str | None, request: Request) -> Receive:
        """Where the body of an admitted request is read from. Raises `Problem`, and errors of the store.

        A node is in the request's state afterwards; of a newcomer the route judges the token.
        """
        if self._plane is None:
            raise Problem(problems.NO_NODES, "this server was started without a node file")
        if caller is Caller.PROVIDER:
            self._require_secret(request, self._plane.secret.get_secret_value())
        if caller is not Caller.NODE:
            request.state.node_door = self
            return request.receive
        assert instance_id is not None, "a route of a node names its instance"
        request.state.node, body = await self._node(instance_id, request)
        return _again(body)

    def refusal(self, reason: NodeRefusedAs, detail: str) -> Problem:
        """What a node is told: that it is not believed, never why."""
        self._metrics.refused(reason)
        log.info("node_refused", reason=reason.value, detail=detail)
        if reason is NodeRefusedAs.NOT_THE_PROVIDER:
            told = "the request brings no secret, or another one"
            return Problem(problems.PROVIDER_REFUSED, told, headers=PROVIDER_CHALLENGE)
        told = "what came with the request does not prove which node sent it"
        return Problem(problems.NODE_REFUSED, told, headers=CHALLENGE)

    def _require_secret(self, request: Request, secret: str) -> None:
        given = _secret_of(request.headers.getlist("authorization"))
        if given is None or not hmac.compare_digest(given, secret.encode()):
            raise self.refusal(NodeRefusedAs.NOT_THE_PROVIDER, "vendordata")

    async def _node(self, instance_id: str, request: Request) -> tuple[Node, bytes]:
        head = self._head(instance_id, request)
        async with self._engine.connect() as connection:
            node = await nodes.find_node(connection, instance_id)
        if node is None:
            raise self.refusal(NodeRefusedAs.UNKNOWN_NODE, instance_id)
        body = await request.body()
        key = public_key(instance_id, node.public_key)
        asked = Asked(request.method, _target(request), body)
        refused = verify_request(head, asked, key=key, instance_id=instance_id, now=self._now())
        if refused is not None:
            raise self.refusal(NodeRefusedAs(refused.reason.value), f"{instance_id}: {refused.detail}")
        await self._require_first(node, head)
        return node, body

    def _head(self, instance_id: str, request: Request) -> Head:
        head = read_head(request.headers.items())
        refused = head if isinstance(head, RequestRefusal) else stale(head, self._now())
        if isinstance(head, Head) and refused is None and head.instance_id != instance_id:
            refused = RequestRefusal(RequestRefusedAs.FOREIGN, f"{head.instance_id} asks for {instance_id}")
        if isinstance(head, RequestRefusal) or refused is not None:
            assert refused is not None, "a head that is refused is a refusal"
            raise self.refusal(NodeRefusedAs(refused.reason.value), refused.detail)
        return head

    async def _require_first(self, node: Node, head: Head) -> None:
        """A signature is worth one request: it is remembered for as long as its time would be believed."""
        now = self._now()
        async with of_tenant(self._engine, node.tenant_id).begin() as connection:
            seen = await nodes.remember_request(
                connection, node, nonce=head.nonce, now=now, until=now + 2 * MAX_SKEW
            )
        if seen is Seen.TOO_MANY:
            self._metrics.refused(NodeRefusedAs.TOO_MANY)
            told = f"more than {nodes.REQUESTS_PER_WINDOW} requests in {2 * MAX_SKEW.total_seconds():.0f} s"
            raise Problem(problems.TOO_MANY, told, headers={"Retry-After": "60"})
        if seen is Seen.REPLAYED:
            raise self.refusal(NodeRefusedAs.REPLAYED, node.instance_id)


def _target(request: Request) -> str:
    """Path and query as they stand in the request line."""
    path: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    query: bytes = request.scope["query_string"]
    return (path + b"?" + query if query else path).decode("latin-1")


def _secret_of(given: list[str]) -> bytes | None:
    """The secret of `Bearer SECRET`, or the password of `Basic`, which an address with one becomes."""
    scheme, _, value = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    if scheme.lower() == "bearer":
        return value.strip().encode()
    if scheme.lower() != "basic":
        return None
    try:
        return base64.b64decode(value.strip(), validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return None


def _again(body: bytes) -> Receive:
    """The body that was read to be verified, for the route."""
    told: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return told.pop() if told else {"type": "http.disconnect"}

    return receive

"""The door for nodes: a node comes in by its proof, the provider by its secret, a newcomer by its token.

Whatever is wrong, the answer is the same; why is counted and logged. A body is read once the head of its
request is believable and its instance is known, so that nobody unknown makes us read.
"""

from __future__ import annotations

import base64
import binascii
import hmac

import structlog
from prometheus_client import CollectorRegistry, Counter
from starlette.requests import Request
from starlette.types import Message, Receive

from api import problems
from api.node_plane import NodePlane
from api.problems import Problem
from api.sign_in.needs import Caller
from api.sign_in.node_proof import NodeProof, NodeRefusedAs, NotProven

CHALLENGE = {"WWW-Authenticate": "SCO-Node"}
PROVIDER_CHALLENGE = {"WWW-Authenticate": 'Basic realm="vendordata"'}
log = structlog.get_logger("api")


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

    def __init__(self, plane: NodePlane | None, metrics: NodeDoorMetrics, proof: NodeProof) -> None:
        self._plane, self._metrics, self._proof = plane, metrics, proof

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
        try:
            request.state.node, body = await self._proof.node(instance_id, request)
        except NotProven as refused:
            raise self.refusal(refused.reason, refused.detail) from None
        return _again(body)

    def refusal(self, reason: NodeRefusedAs, detail: str) -> Problem:
        """What a node is told: that it is not believed, never why."""
        self._metrics.refused(reason)
        if reason is NodeRefusedAs.TOO_MANY:
            return Problem(problems.TOO_MANY, detail, headers={"Retry-After": "60"})
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

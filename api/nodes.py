"""Nodes: how an instance becomes known, gets its bundle and enters the node bus."""

from __future__ import annotations

import re
from typing import Annotated, Any, cast

from fastapi import APIRouter, Header, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from activities.enrolling import NotEnrolled
from api import problems
from api.deps import Deps
from api.node_plane import NodePlane
from api.problems import Problem
from api.shapes import View
from api.sign_in.node_door import NodeDoor
from api.sign_in.node_proof import NodeRefusedAs
from api.versions import etag
from store.nodes import Node
from wire.node import InstanceId
from wire.node_requests import BusAdmission, Registered, Registration

router = APIRouter(prefix="/nodes", tags=["nodes"])
InstancePath = Annotated[InstanceId, Path(alias="instanceId", description="The id of an instance")]
# Versions are counted from 1.
HELD = re.compile(r'\s*"([1-9][0-9]{0,14})"\s*')
NO_STORE = {"Cache-Control": "no-store"}
LETTER: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The bundle as a signed letter; its version is the ETag",
        "content": {"application/json": {"schema": {"type": "object"}}},
    },
    304: {"description": "The node holds the newest bundle"},
}


class VendordataBody(BaseModel):
    """What the provider says of an instance that reads its metadata; only its id is used."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    instance_id: Annotated[str, Field(alias="instance-id", min_length=1, max_length=255)]


class VendordataView(View):
    """What the instance finds in its vendordata; empty for one that is not ours or is known already."""

    token: str | None = None
    api_url: str | None = None


class BusKeyBody(BaseModel):
    """The public half of the key that the agent will show to the bus."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    bus_key: Annotated[str, Field(alias="busKey", pattern=r"^U[A-Z2-7]{55}$")]


@router.post("/vendordata", response_model_exclude_none=True)
async def post_vendordata(request: Request, body: VendordataBody, response: Response) -> VendordataView:
    """Give the provider a one-time token for an instance that this service launched and nobody registered.

    The provider passes it on to that instance alone. Every call gives another one, of which the first that
    is used ends all.
    """
    response.headers.update(NO_STORE)
    plane = _plane(request)
    token = await plane.enrolling.token(body.instance_id)
    return VendordataView() if token is None else VendordataView(token=token, api_url=plane.api_url)


@router.post("/identity")
async def post_identity(request: Request, body: Registration, response: Response) -> Registered:
    """Trade a one-time token for an identity: from now on requests signed with the key are the instance's.

    The same request again is answered the same, in case the first answer was lost.
    """
    response.headers.update(NO_STORE)
    try:
        return await _plane(request).enrolling.register(body)
    except NotEnrolled as refused:
        door = cast(NodeDoor, request.state.node_door)
        raise door.refusal(NodeRefusedAs.NOT_ENROLLED, f"{body.instance_id}: {refused.why}") from None


@router.get("/{instanceId}/bundle", response_class=Response, responses=LETTER)
async def get_bundle(
    request: Request,
    instance_id: InstancePath,
    if_none_match: Annotated[
        str | None,
        Header(alias="If-None-Match", max_length=64, description="The ETag of the bundle that is held"),
    ] = None,
) -> Response:
    """Give a node its newest bundle, issued now if its contract or the keys have changed.

    The ETag that it sends is what it holds, and is kept for those who look at nodes.
    """
    node, plane = _node(request, instance_id), _plane(request)
    issued = await plane.bundling.bundle(node.tenant_id, node.instance_id)
    held = HELD.fullmatch(if_none_match or "")
    if held is not None:
        await plane.reports.held(node.tenant_id, node.instance_id, int(held[1]), issued)
    tag = {"ETag": etag(issued.version)}
    if if_none_match is not None and if_none_match.strip() == etag(issued.version):
        return Response(status_code=304, headers=tag)
    return Response(issued.letter, media_type="application/json", headers=tag)


@router.post("/{instanceId}/bus-credentials")
async def post_bus_credentials(
    request: Request, instance_id: InstancePath, body: BusKeyBody, response: Response
) -> BusAdmission:
    """Admit a node's key to the node bus for some hours. What was given before stays good until it ends."""
    response.headers.update(NO_STORE)
    node = _node(request, instance_id)
    admission = await _plane(request).enrolling.admission(node.tenant_id, node.instance_id, body.bus_key)
    if admission is None:
        raise Problem(problems.NO_NODE_BUS, "this server admits agents to no bus")
    return admission


def _plane(request: Request) -> NodePlane:
    plane = cast(Deps, request.app.state.deps).nodes
    assert plane is not None, "nobody is admitted without a node plane"
    return plane


def _node(request: Request, instance_id: str) -> Node:
    """The node that signed the request, which is the one that the path names."""
    node: Node = request.state.node
    assert node.instance_id == instance_id, "the door admits a node to its own paths alone"
    return node

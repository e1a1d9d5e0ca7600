"""Taking a node's identity away: from then on nothing that it signs is believed."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from api.deps import Deps, Tenant, Uses, actor_of
from api.idempotency import IdempotencyKey, keyed, once
from api.shapes import View, json_text
from store import nodes
from store.engine import Connection
from store.idempotency import Answer
from wire.node import InstanceId

router = APIRouter(prefix="/nodes", tags=["nodes"])
InstancePath = Annotated[InstanceId, Path(alias="instanceId", description="The id of an instance")]


class RevokedView(View):
    """A node that is believed nothing any more.

    The node bus checks credentials by itself: what the node was given before lets it in there until it ends,
    at `busCredentialsEndBy` at the latest; null where agents are admitted to no bus.
    """

    instance_id: str
    revoked_at: datetime
    revoked_by: str | None
    bus_credentials_end_by: datetime | None


@router.post("/{instanceId}/revoke", response_model=RevokedView)
async def revoke_node(
    instance_id: InstancePath,
    request: Request,
    deps: Uses,
    tenant_id: Tenant,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Revoke the identity of a node. There is no way back: the instance gets no other.

    Who revokes it again is told when it was revoked, and by whom. The instance itself goes on running.
    """

    async def work(connection: Connection) -> Answer:
        by = actor_of(request)
        revoked = await nodes.revoke(connection, tenant_id, instance_id, by=by, at=deps.now())
        return Answer(HTTPStatus.OK, json_text(_view(deps, instance_id, revoked)), {})

    return await once(deps, keyed(request, tenant_id, idempotency_key, b""), work)


def _view(deps: Deps, instance_id: str, revoked: nodes.Revocation) -> RevokedView:
    life = None if deps.nodes is None else deps.nodes.enrolling.bus_life
    return RevokedView(
        instance_id=instance_id,
        revoked_at=revoked.at,
        revoked_by=revoked.by,
        bus_credentials_end_by=None if life is None else revoked.at + life,
    )

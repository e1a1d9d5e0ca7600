"""The screens of nodes and drains: who lives, who went, and one drain second by second."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse

from api.deps import Tenant, Uses
from api.nodes_history import DrainsQuery, InstancePath, NodesQuery, list_drains, list_nodes, story_view
from api.web.forms import ROWS, DrainForm, Form, NodeForm
from api.web.render import page
from domain.cause import Cause
from domain.lifecycle import Outcome
from store import node_drains
from store.node_drains import DrainFilter

router = APIRouter()
OTHERS_SHOWN = 20


class StoryForm(Form):
    """Which drain of the node; the newest unless one is named."""

    drain: UUID | None = None


@router.get("/ui/nodes")
async def show_nodes(
    request: Request, form: Annotated[NodeForm, Query()], deps: Uses, tenant_id: Tenant
) -> HTMLResponse:
    """Live nodes: what each holds, what it told last, and whether it drains."""
    asked = form.model_dump(exclude={"page", "after", "draining"}, by_alias=True, exclude_none=True)
    if form.draining is not None:
        asked["draining"] = form.draining == "yes"
    query = NodesQuery.model_validate(asked | {"pageSize": ROWS, "pageToken": form.after})
    found = await list_nodes(query, deps, tenant_id)
    return page(
        request,
        "nodes.html",
        form=form,
        rows=found.items,
        following=found.next_page_token,
        filtered=bool(asked),
        now=deps.now(),
    )


@router.get("/ui/drains")
async def show_drains(
    request: Request, form: Annotated[DrainForm, Query()], deps: Uses, tenant_id: Tenant
) -> HTMLResponse:
    """Drains of nodes, newest first."""
    asked = form.model_dump(exclude={"page", "after"}, by_alias=True)
    query = DrainsQuery.model_validate(asked | {"pageSize": ROWS, "pageToken": form.after})
    found = await list_drains(query, deps, tenant_id)
    return page(
        request,
        "drains.html",
        form=form,
        rows=found.items,
        older=found.next_page_token,
        filtered=any(asked.values()),
        outcomes=list(Outcome),
        causes=list(Cause),
        now=deps.now(),
    )


@router.get("/ui/drains/{instanceId}")
async def show_drain(
    request: Request,
    instance_id: InstancePath,
    form: Annotated[StoryForm, Query()],
    deps: Uses,
    tenant_id: Tenant,
) -> HTMLResponse:
    """One drain explained, and links to the others of its node."""
    wanted = DrainFilter(instance_id=instance_id)
    async with deps.snapshot() as connection:
        view = await story_view(connection, tenant_id, instance_id, form.drain)
        every = await node_drains.drains_before(connection, tenant_id, wanted, limit=OTHERS_SHOWN)
    others = [row for row in every if row["drain_id"] != view.drain_id]
    return page(request, "drain.html", drain=view, others=others, now=deps.now())

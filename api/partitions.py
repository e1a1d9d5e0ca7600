"""Partitions: one scheduler cluster in one region each."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response, status

from api.deps import PartitionPath, Tenant, Uses
from api.paging import PageQuery, after_of, cut, listing_key
from api.problems import require_same_id
from api.shapes import Body, View
from domain.pool import Name
from store import overview, partitions

router = APIRouter(prefix="/partitions", tags=["partitions"])


class PartitionBody(Body):
    """A partition; its id stands in the path. Region and scheduler are fixed once it is created."""

    partition_id: Name | None = None
    region: Name
    scheduler: Literal["kubernetes", "slurm"]


class PartitionView(View):
    """One scheduler cluster in one region."""

    partition_id: str
    region: str
    scheduler: str


class PartitionPage(View):
    items: list[PartitionView]
    next_page_token: str | None


@router.put("/{partitionId}", responses={201: {"model": PartitionView, "description": "Created"}})
async def put_partition(
    partition_id: PartitionPath, body: PartitionBody, response: Response, deps: Uses, tenant_id: Tenant
) -> PartitionView:
    """Create a partition in a region that has pools. Sending the same again changes nothing.

    Workloads can be registered in it at once; they are placed when a worker serves it.
    """
    require_same_id("partitionId", body.partition_id, partition_id)
    async with deps.engine.begin() as connection:
        new = await partitions.put_partition(
            connection,
            tenant_id=tenant_id,
            partition_id=partition_id,
            region=body.region,
            scheduler=body.scheduler,
        )
    response.status_code = status.HTTP_201_CREATED if new else status.HTTP_200_OK
    return PartitionView(partition_id=partition_id, region=body.region, scheduler=body.scheduler)


@router.get("")
async def list_partitions(
    query: Annotated[PageQuery, Query()], deps: Uses, tenant_id: Tenant
) -> PartitionPage:
    """Partitions in the order of the ids, a page at a time."""
    listing = listing_key("partitions")
    after = after_of(query.page_token, listing)
    async with deps.engine.connect() as connection:
        found = await overview.partition_rankings(connection, tenant_id)
    rest = [one for one in found if one.partition_id > after]
    page, token = cut(rest, query, listing, lambda one: one.partition_id)
    return PartitionPage(items=[PartitionView.model_validate(one) for one in page], next_page_token=token)

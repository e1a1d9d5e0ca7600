"""What a forwarder beside slurmctld has to know: which instance is which node, and whose key signs for it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api import problems
from api.deps import Tenant, Uses
from api.problems import Problem
from api.shapes import View
from domain.forwarder_nodes import LeftOutAs, forwarder_nodes
from domain.pool import Name
from store.bundles import find_scheduler
from store.server_names import live_servers
from store.workloads import UnknownPartition

router = APIRouter(prefix="/nodes", tags=["nodes"])
SLURM = "slurm"
# Twice what a region has. All come in one answer: of pages, one could name a node that another gave up.
MOST = 10_000
PartitionQuery = Annotated[Name, Query(alias="partitionId", description="The partition that Slurm is")]


class ForwarderNodeView(View):
    """A registered node: its name in Slurm is its server's name at the provider."""

    instance_id: str
    node: str
    public_key: str


class LeftOutView(View):
    """A registered instance that no node of Slurm can be told from yet, and why."""

    instance_id: str
    server_name: str | None
    reason: LeftOutAs


class ForwarderNodesView(View):
    """Every node of one partition that is registered, live and not revoked, in the order of the instances."""

    partition_id: str
    nodes: list[ForwarderNodeView]
    left_out: list[LeftOutView]


@router.get("/forwarder")
async def get_forwarder_nodes(
    partition_id: PartitionQuery, deps: Uses, tenant_id: Tenant
) -> ForwarderNodesView:
    """List the nodes whose signed requests a Slurm forwarder may carry out, all in one answer.

    Only partitions of Slurm have any. Keys are public halves; who may read pools may read this.
    """
    async with deps.snapshot() as connection:
        scheduler = await find_scheduler(connection, tenant_id, partition_id)
        if scheduler is None:
            raise UnknownPartition(f"no partition {partition_id!r}")
        if scheduler != SLURM:
            raise Problem(problems.NOT_SLURM, f"partition {partition_id!r} is of {scheduler}, not of {SLURM}")
        servers = await live_servers(connection, tenant_id, partition_id, limit=MOST + 1)
    if len(servers) > MOST:
        raise Problem(
            problems.TOO_MANY_NODES, f"partition {partition_id!r} has more than {MOST:,} live servers"
        )
    found = forwarder_nodes(servers)
    return ForwarderNodesView(
        partition_id=partition_id,
        nodes=[ForwarderNodeView(**one._asdict()) for one in found.nodes],
        left_out=[LeftOutView(**one._asdict()) for one in found.left_out],
    )

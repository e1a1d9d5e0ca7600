"""Whether the service and what it needs are well, and how much it holds."""

from __future__ import annotations

import asyncio
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa
import structlog
from fastapi import APIRouter

from api import problems
from api.deps import Deps, Tenant, Uses
from api.partitions import PartitionView
from api.problems import Problem
from api.shapes import View
from domain.pool import PoolState, PurchaseModel
from store import outbox, overview

router = APIRouter(tags=["status"])
CHECK_SECONDS = 3.0
log = structlog.get_logger("api")


class Health(View):
    """The process answers."""

    ok: bool


class Readiness(View):
    """Whether requests can be answered, and which of what the service works with can be reached."""

    ready: bool
    checks: dict[str, str]


class PoolCountView(View):
    state: PoolState
    purchase_model: PurchaseModel
    pools: int


class RankedPartition(PartitionView):
    """A partition with its newest ranking; None where it was never ranked."""

    ranking_id: UUID | None
    ranking_version: int | None
    ranking_age_seconds: int | None


class StatusView(View):
    """Everything in counts."""

    at: datetime
    pools: list[PoolCountView]
    partitions: list[RankedPartition]
    workloads_by_phase: dict[str, int]
    outbox_waiting: int
    temporal_reachable: bool


@router.get("/healthz")
async def healthz() -> Health:
    """The process is up."""
    return Health(ok=True)


@router.get("/readyz")
async def readyz(deps: Uses) -> Readiness:
    """Requests can be answered; 503 without the database. Temporal may be away: what it is to start waits."""
    database, temporal = await asyncio.gather(_database_reachable(deps), deps.temporal_reachable())
    checks = {"database": _word(database), "temporal": _word(temporal)}
    if not database:
        raise Problem(
            problems.NOT_READY,
            "database cannot be reached",
            headers={"Retry-After": "2"},
            extra={"ready": False, "checks": checks},
        )
    return Readiness(ready=True, checks=checks)


def _word(reached: bool) -> str:
    return "reachable" if reached else "unreachable"


async def _database_reachable(deps: Deps) -> bool:
    try:
        async with asyncio.timeout(CHECK_SECONDS), deps.engine.connect() as connection:
            await connection.execute(sa.text("SELECT 1"))
    except (sa.exc.SQLAlchemyError, OSError, TimeoutError) as error:
        log.warning("database_unreachable", error=type(error).__name__)
        return False
    return True


@router.get("/status")
async def get_status(deps: Uses, tenant_id: Tenant) -> StatusView:
    """Pools, partitions, workloads and waiting events in counts."""
    return await status_view(deps, tenant_id)


async def status_view(deps: Deps, tenant_id: str) -> StatusView:
    async with deps.snapshot() as connection:
        pools = await overview.count_pools(connection, tenant_id)
        partitions = await overview.partition_rankings(connection, tenant_id)
        phases = await overview.count_workloads(connection, tenant_id)
        waiting = await outbox.waiting(connection)
    now = deps.now()
    return StatusView(
        at=now,
        pools=[
            PoolCountView(state=PoolState(one.state), purchase_model=one.purchase_model, pools=one.pools)
            for one in pools
        ],
        partitions=[_ranked(one, now) for one in partitions],
        workloads_by_phase=phases,
        outbox_waiting=waiting,
        temporal_reachable=await deps.temporal_reachable(),
    )


def _ranked(one: overview.PartitionRanking, now: datetime) -> RankedPartition:
    age = None if one.ranked_at is None else max(0, int((now - one.ranked_at).total_seconds()))
    return RankedPartition(
        partition_id=one.partition_id,
        region=one.region,
        scheduler=one.scheduler,
        ranking_id=one.ranking_id,
        ranking_version=one.version,
        ranking_age_seconds=age,
    )

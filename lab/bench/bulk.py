"""A database with a history: every pool with ample capacity, thousands of live claims, a large fleet."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice
from uuid import uuid4

import sqlalchemy as sa

from activities.ranking import RankingActivities
from activities.scoring_calls import ScoreRequest
from domain.claim import Demand
from domain.contract import Contract, Tier
from domain.policy import ScoringPolicy
from domain.pool import PoolState
from lab.bench.estate import CAPACITY_INSTANCES, FLOOR_SHARE, TENANT, demands, facts
from store import partitions, registry, workloads
from store.engine import Connection, Engine

PARTITION = "bench"
CONTRACT = "bench"
FILL_CAPACITY = sa.text(
    """
    UPDATE pool_capacity SET capacity_instances = :capacity, free_24h_instances = :capacity,
      reported_at = now() + interval '1 day'
    """
)
FLEET = sa.text(
    """
    INSERT INTO instances (tenant_id, slot_key, workload_id, partition_id, pool_id, region, shape_key,
                           generation, batch_key, state, server_id, active_at)
    SELECT :tenant, w.workload_id || '-' || n, w.workload_id, :partition, p.pool_id, p.region, 'bench',
           1, w.workload_id || '-' || n, 'active', w.workload_id || '-' || n, now()
    FROM unnest(CAST(:names AS text[])) WITH ORDINALITY AS w (workload_id, position)
    CROSS JOIN generate_series(1, :each) AS n
    JOIN LATERAL (
      SELECT pool_id, region FROM pools WHERE purchase_model = 'reclaimable'
      ORDER BY pool_id OFFSET (w.position * 7 + n * 13) % 432 LIMIT 1
    ) p ON true
    """
)
SETTLE = sa.text(
    """
    UPDATE reservations SET units = instances, target_instances = instances, generation = 1
    WHERE workload_id = ANY(:names)
    """
)
DONE = sa.text(
    "UPDATE workloads SET planned_version = claim_version, phase = 'placed' WHERE workload_id = ANY(:names)"
)


async def prepare(engine: Engine) -> None:
    """Register and score all pools, with more capacity than any bench takes."""
    async with engine.begin() as connection:
        await partitions.put_partition(
            connection, tenant_id=TENANT, partition_id=PARTITION, region="eu-north", scheduler="kubernetes"
        )
        await registry.register_pools(connection, facts(), PoolState.ACTIVE)
        await connection.execute(FILL_CAPACITY, {"capacity": CAPACITY_INSTANCES})
    await put_contract(engine)
    ranking = RankingActivities(engine, policy=ScoringPolicy(), now=lambda: datetime.now(UTC))
    await ranking.score_partition(ScoreRequest(tenant_id=TENANT, partition_id=PARTITION, ranking_id=uuid4()))


async def put_contract(engine: Engine) -> None:
    """The contract of every benched workload: a floor of 30 %, the usual caps."""
    async with engine.begin() as connection:
        contract = Contract(contract_id=CONTRACT, tier=Tier.T1, floor_share=FLOOR_SHARE)
        await workloads.put_contract(connection, TENANT, contract)


async def register_workloads(engine: Engine, names: Sequence[str], partition_id: str = PARTITION) -> None:
    """Workloads without a claim."""
    async with engine.begin() as connection:
        for name in names:
            await workloads.put_workload(
                connection,
                tenant_id=TENANT,
                workload_id=name,
                partition_id=partition_id,
                contract_id=CONTRACT,
                owner_team="bench",
            )


async def live_claims(engine: Engine, names: Sequence[str], instances_each: int, seed: int) -> None:
    """Workloads whose claims are placed and running, with `instances_each` instances over many pools."""
    await register_workloads(engine, names)
    chosen = list(islice(demands(random.Random(seed)), len(names)))
    async with engine.begin() as connection:
        for name, demand in zip(names, chosen, strict=True):
            await add_claim(connection, name, demand)
        named = {"names": list(names), "each": instances_each, "tenant": TENANT, "partition": PARTITION}
        await connection.execute(FLEET, named)
        await connection.execute(SETTLE, {"names": list(names)})
        await connection.execute(DONE, {"names": list(names)})


async def add_claim(connection: Connection, name: str, demand: Demand) -> int:
    version, _ = await workloads.add_claim(
        connection, tenant_id=TENANT, workload_id=name, demand=demand, source="sco", intake={}
    )
    return version

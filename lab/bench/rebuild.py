"""Rebuilding lost records: a region full of servers, a database that remembers none of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import sqlalchemy as sa
from prometheus_client import CollectorRegistry
from temporalio.testing import ActivityEnvironment

from activities.adopting import Adoptions
from activities.ports import Compute
from activities.provider_acts import ProviderActs
from activities.reconcile_calls import Reconciled, ReconcileRequest
from activities.reconciling import ReconcilingActivities
from activities.repairing import Repairs
from domain.audit import AuditTerms, ServerFact, audit
from domain.claim import Demand, Requirements, ShapeCount
from domain.ids import shape_key
from domain.policy import Policy
from domain.reconcile import FleetPhase
from domain.tags import server_tags
from lab.bench import bulk
from lab.bench.estate import SHAPES, TENANT, facts
from lab.bench.report import Figure
from lab.cloud.admin_client import AdminClient
from store.audit_facts import Scope, read_facts
from store.budget import BudgetStore
from store.engine import Engine
from store.licences import Place
from workers.assemble import Provider, open_provider, read_cloud_settings

REGION = "eu-north"
SERVERS, BATCH = 20_000, 50
BATCHES_OF_A_WORKLOAD = 2
MAX_CYCLES = 20
# The worker's defaults.
BURST, CALLS_PER_SECOND = 40, Decimal(20)
UNIT = SHAPES[0]
LEFT = sa.text("SELECT count(*) FROM instances WHERE state = 'active'")


class Rebuilt(NamedTuple):
    """What it took: seconds in all, how much of them was waiting for the next cycle, and cycles."""

    seconds: float
    waited: float
    cycles: int
    adopted: int


async def measure(engine: Engine, dsn: str, cloud: AdminClient, provider_file: Path) -> list[Figure]:
    """From the first cycle to a licence with every record written anew, at the worker's default pace."""
    await bulk.prepare(engine)
    await _fill(engine, cloud, SERVERS)
    budgets = BudgetStore(dsn, tenant_id=TENANT)
    budgets.set_budget(REGION, burst=BURST, refill_per_second=CALLS_PER_SECOND)
    provider = open_provider(read_cloud_settings(provider_file), budgets, CollectorRegistry())
    try:
        rebuilt = await _rebuild(engine, provider.compute)
        await _is_clean(engine, provider)
    finally:
        provider.close()
        budgets.close()
    method = (
        f"{SERVERS:,} ACTIVE servers listed over HTTP in pages of 1,000 and {rebuilt.adopted:,} records"
        f" written; first cycle to licence in {rebuilt.cycles} cycles at the default pace, of which"
        f" {rebuilt.waited:.0f} s waiting for the next; the audit afterwards is clean"
    )
    return [
        Figure(
            name="rebuild_20k_instances_s", value=rebuilt.seconds, unit="s", method=method, target="<= 60 s"
        )
    ]


async def _rebuild(engine: Engine, compute: Compute) -> Rebuilt:
    policy = Policy()
    hand = _hand(engine, compute, policy)
    request = ReconcileRequest(tenant_id=TENANT, partition_id=bulk.PARTITION, region=REGION)
    began, waited, adopted = time.perf_counter(), 0.0, 0
    for number in range(1, MAX_CYCLES + 1):
        done: Reconciled = await ActivityEnvironment().run(hand.reconcile_region, request)
        adopted += done.adopted
        if done.phase is not FleetPhase.READ_ONLY:
            return Rebuilt(time.perf_counter() - began, waited, number, adopted)
        waited += done.pause_seconds
        await asyncio.sleep(done.pause_seconds)
    raise RuntimeError(f"no licence after {MAX_CYCLES} cycles")


def _hand(engine: Engine, compute: Compute, policy: Policy) -> ReconcilingActivities:
    def now() -> datetime:
        return datetime.now(UTC)

    async def poke(place: Place, workload_id: str) -> None:
        raise RuntimeError(f"{workload_id} lost instances in {place.region}: none were taken away")

    acts = ProviderActs(
        engine,
        compute,
        identity="bench",
        terms=policy.reconcile,
        settle_seconds=policy.acquisition.settle_seconds,
        now=now,
    )
    repairs = Repairs(
        engine,
        compute,
        acts,
        poke,
        identity="bench",
        terms=policy.reconcile,
        backoff=policy.placement,
        now=now,
    )
    adoptions = Adoptions(engine, identity="bench", now=now)
    return ReconcilingActivities(engine, compute, adoptions, repairs, terms=policy.reconcile, now=now)


async def _fill(engine: Engine, cloud: AdminClient, servers: int) -> None:
    """Servers with all that a launch writes on them; of workloads and claims that are remembered."""
    per_workload = BATCH * BATCHES_OF_A_WORKLOAD
    names = [f"fleet-{number}" for number in range(servers // per_workload)]
    await bulk.register_workloads(engine, names)
    demand = Demand(
        shapes=(ShapeCount(shape=UNIT, units=per_workload),), requirements=Requirements(regions=(REGION,))
    )
    async with engine.begin() as connection:
        for name in names:
            await bulk.add_claim(connection, name, demand)
    await asyncio.to_thread(_load, cloud, names)


def _load(cloud: AdminClient, names: Sequence[str]) -> None:
    cloud.set_quota(REGION, instances=-1, cores=-1, ram=-1)
    pools = [one.pool_id for one in facts() if one.region == REGION and one.purchase_model == "reclaimable"]
    # Whole batches only, or a batch would lie in two pools.
    whole = -(-len(names) * BATCHES_OF_A_WORKLOAD // len(pools)) * BATCH
    for pool_id in pools:
        cloud.set_capacity(pool_id, whole)
    for name in names:
        for batch in range(BATCHES_OF_A_WORKLOAD):
            metadata = {
                "sco_batch": f"b-{name}-{batch}",
                "sco_tenant": TENANT,
                "sco_partition": bulk.PARTITION,
                "sco_workload": name,
                "sco_generation": "1",
                "sco_purchase_model": "reclaimable",
                "sco_shape": shape_key(UNIT),
                "sco_units": "1",
            }
            tags = server_tags(bulk.PARTITION, name, "reclaimable")
            loaded = cloud.load(REGION, BATCH, tags=tags, metadata=metadata)
            if loaded != BATCH:
                raise RuntimeError(f"the cloud took {loaded} of {BATCH} servers of {name}")


async def _is_clean(engine: Engine, provider: Provider) -> None:
    """Every record is there, and the auditor has nothing to say."""
    servers = await asyncio.to_thread(provider.compute.list_managed, REGION)
    seen = [
        ServerFact(
            server_id=one.server_id,
            region=REGION,
            status=one.status,
            tags=frozenset(one.tags),
            batch_key=one.batch_key,
            pool_id=one.pool_id,
            workload_id=one.workload_id,
            partition_id=one.metadata.get("sco_partition"),
        )
        for one in servers
    ]
    read = await read_facts(engine, Scope(TENANT), seen, datetime.now(UTC))
    findings, _ = audit(read, AuditTerms())
    async with engine.connect() as connection:
        active = (await connection.execute(LEFT)).scalar_one()
    if findings or active != len(servers):
        raise RuntimeError(f"{active} records of {len(servers)} servers, and {len(findings)} findings")

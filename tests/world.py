"""A whole world in one process: stack, simulated cloud, workers of the product, and an oracle.

Slower than fakes and quicker than processes. One world at a time may use a Temporal server, because
its partitions and regions have the names of the laboratory; workloads have names of their own.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from prometheus_client import CollectorRegistry
from pydantic import SecretStr
from temporalio.client import Client, WorkflowHandle

from activities.placement_calls import ClaimChanged, Finished, PlacementInput
from activities.placement_start import start_placement
from domain.acquisition import AcquisitionTerms
from domain.claim import Demand, Shape, ShapeCount
from domain.contract import Contract, Tier
from domain.ids import placement_workflow_id
from domain.policy import Policy
from domain.pool import Arch
from domain.pool_life import DrainTerms
from domain.reconcile import ReconcileTerms
from lab.cloud.server import CloudHandle
from lab.cloud.settings import CloudSettings
from lab.control_plane import IMAGE
from lab.logins import WORKER_LOGIN, dsn_of, ensure_logins
from lab.oracle import check
from lab.seed import TENANT, seed
from lab.stack import Stack
from store import workloads
from store.budget import BudgetStore
from store.engine import Engine, create_engine
from workers.assemble import connect, open_provider, read_cloud_settings
from workers.main import run
from workers.schedules import wanted
from workers.settings import WorkerSettings

PARTITION = "k8s-eu-north"
UNIT = Shape(vcpu_milli=4_000, ram_mib=16_384)
SPEED = 40.0
PATIENCE_SECONDS = 60.0
CALLS_PER_SECOND = 60
# A world that is opened anew finds what was placed in the one before on the same Temporal.
_numbers = itertools.count(1)
POLICY = Policy(
    acquisition=AcquisitionTerms(settle_seconds=1.5, build_patience_seconds=10),
    reconcile=ReconcileTerms(
        cycle_seconds=5, recovery_cycle_seconds=0.3, lapse_seconds=30, pace_window_seconds=5
    ),
    drain=DrainTerms(model_patience_seconds=20, model_quiet_seconds=3, look_seconds=0.5),
)


@dataclass
class World:
    """Workloads of one partition, placed by real workers in a simulated cloud."""

    dsn: str
    engine: Engine
    client: Client
    cloud: CloudHandle
    settings: WorkerSettings

    async def workload(self, *, floor: str = "0.3") -> str:
        """A new workload under a contract with this floor; its id."""
        workload_id = f"world-{next(_numbers)}"
        contract = Contract(contract_id=f"floor-{floor}", tier=Tier.BESPOKE, floor_share=Decimal(floor))
        async with self.engine.begin() as connection:
            await workloads.put_contract(connection, TENANT, contract)
            await workloads.put_workload(
                connection,
                tenant_id=TENANT,
                workload_id=workload_id,
                partition_id=PARTITION,
                contract_id=contract.contract_id,
                owner_team="orders",
            )
        return workload_id

    async def claim(self, workload_id: str, units: int) -> int:
        """Commit a newer claim without telling anybody; its version."""
        async with self.engine.begin() as connection:
            version, _ = await workloads.add_claim(
                connection,
                tenant_id=TENANT,
                workload_id=workload_id,
                demand=Demand(shapes=(ShapeCount(shape=UNIT, units=units),)),
                source="test",
                intake={},
            )
        return version

    async def place(self, workload_id: str, units: int) -> Finished:
        """Claim so many units and wait for the outcome."""
        version = await self.claim(workload_id, units)
        request = PlacementInput(tenant_id=TENANT, partition_id=PARTITION, workload_id=workload_id)
        await start_placement(self.client, request, ClaimChanged(claim_version=version))
        finished: Finished = await asyncio.wait_for(self.placement(workload_id).result(), PATIENCE_SECONDS)
        return finished

    def placement(self, workload_id: str) -> WorkflowHandle[Any, Any]:
        workflow_id = placement_workflow_id(TENANT, PARTITION, workload_id)
        return self.client.get_workflow_handle(workflow_id, result_type=Finished)

    async def rows(self, query: str, **named: Any) -> list[tuple[Any, ...]]:
        async with self.engine.connect() as connection:
            return [tuple(row) for row in await connection.execute(sa.text(query), named)]

    async def problems(self) -> list[str]:
        """What the oracle has to say."""
        return await asyncio.to_thread(check, self.dsn, self.cloud.admin)

    async def until_ranked(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        query = "SELECT count(*) FROM rankings WHERE partition_id = :partition"
        while (await self.rows(query, partition=PARTITION))[0][0] == 0:
            assert time.monotonic() < deadline, "the partition was not ranked"
            await asyncio.sleep(0.05)


@asynccontextmanager
async def open_world(stack: Stack, dsn: str, folder: Path) -> AsyncIterator[World]:
    """Seed a migrated database from a new cloud and run the workers; `folder` keeps the credential."""
    cloud = CloudHandle.start_in_thread(CloudSettings(speed=SPEED))
    ensure_logins(dsn, stack.data_dir)
    settings = _settings(stack, dsn, cloud, folder)
    engine = create_engine(dsn)
    await _seed(settings, engine)
    client = await connect(settings)
    stop = asyncio.Event()
    working = asyncio.create_task(run(settings, POLICY, stop, CollectorRegistry()))
    try:
        world = World(dsn, engine, client, cloud, settings)
        await world.until_ranked()
        yield world
    finally:
        stop.set()
        try:
            await working
            for schedule_id, _ in wanted(settings):
                await client.get_schedule_handle(schedule_id).delete()
        finally:
            await engine.dispose()
            cloud.stop()


def _settings(stack: Stack, dsn: str, cloud: CloudHandle, folder: Path) -> WorkerSettings:
    known = cloud.credentials
    provider = folder / "provider.json"
    provider.write_text(
        json.dumps(
            {
                "auth_url": known.auth_url,
                "regions": list(known.regions),
                "images": {arch.value: IMAGE for arch in Arch},
                "username": known.username,
                "password": known.password,
                "project": known.project_name,
            }
        )
    )
    return WorkerSettings(
        database_url=SecretStr(dsn_of(WORKER_LOGIN, dsn, stack.data_dir)),
        temporal_address=stack.temporal_address,
        nats_url=stack.nats_url,
        partitions=(PARTITION,),
        regions=known.regions,
        sandbox=True,
        cloud_file=provider,
        poll_seconds=0.1,
        provider_burst=2 * CALLS_PER_SECOND,
        provider_calls_per_second=Decimal(CALLS_PER_SECOND),
    )


async def _seed(settings: WorkerSettings, engine: Engine) -> None:
    assert settings.cloud_file is not None
    budgets = BudgetStore(settings.database_url.get_secret_value(), tenant_id=TENANT)
    for region in settings.regions:
        budgets.set_budget(
            region, burst=settings.provider_burst, refill_per_second=settings.provider_calls_per_second
        )
    provider = open_provider(read_cloud_settings(settings.cloud_file), budgets, CollectorRegistry())
    try:
        await seed(engine, provider.catalog, settings.regions, today=datetime.now(UTC).date(), number=1)
    finally:
        provider.close()
        budgets.close()

"""A whole control plane of real processes, to be broken while it works."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import psycopg
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from activities.placement_calls import ClaimChanged, PlacementInput
from activities.placement_start import start_placement
from domain.claim import Demand, Requirements, Shape, ShapeCount
from domain.contract import Contract, Tier
from lab.cloud.admin_client import AdminClient
from lab.cloud.faults import FaultKind, FaultRule
from lab.control_plane import WORKER, ControlPlane
from lab.oracle import check
from lab.seed import TENANT
from store import workloads
from store.engine import create_engine

PARTITION = "k8s-eu-north"
REGION = "eu-north"
LIST = "/servers/detail$"
CREATE = "/servers$"
UNIT = Shape(vcpu_milli=4_000, ram_mib=16_384)
PATIENCE_SECONDS = 90.0
POLL_SECONDS = 0.05

OUTCOME = """
    SELECT workload_id, phase, shortfall_units, shortfall_reason FROM workloads
    WHERE workload_id = ANY(%s) AND planned_version = claim_version AND phase IN ('placed', 'shortfall')
"""
_numbers = itertools.count(1)


class Plant:
    """Workloads of one partition, the cloud's own view, and ways to wait."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.dsn = plane.stack.postgres_dsn
        admin = json.loads(plane.cloud_file.read_text())
        self.cloud = AdminClient(admin["base_url"], admin["admin"]["token"])

    def close(self) -> None:
        self.cloud.close()

    def new(self, units: int, *, start: bool = True, region: str = REGION) -> str:
        """A workload of its own with a claim of so many units; its id."""
        workload_id = self.register()
        self.claim(workload_id, units, start=start, region=region)
        return workload_id

    def register(self) -> str:
        """A workload of its own without a claim; its id."""
        workload_id = f"orders-{next(_numbers)}"
        asyncio.run(self._register(workload_id))
        return workload_id

    def claim(self, workload_id: str, units: int, *, start: bool = True, region: str = REGION) -> None:
        """Commit a newer claim; with `start` the placement is told, as the API does it."""
        demand = Demand(
            shapes=(ShapeCount(shape=UNIT, units=units),), requirements=Requirements(regions=(region,))
        )
        asyncio.run(self._claim(workload_id, demand, start))

    async def _register(self, workload_id: str) -> None:
        contract = Contract(contract_id="orders", tier=Tier.BESPOKE, floor_share=Decimal("0.3"))
        engine = create_engine(self.dsn)
        async with engine.begin() as connection:
            await workloads.put_contract(connection, TENANT, contract)
            await workloads.put_workload(
                connection,
                tenant_id=TENANT,
                workload_id=workload_id,
                partition_id=PARTITION,
                contract_id=contract.contract_id,
                owner_team="orders",
            )
        await engine.dispose()

    async def _claim(self, workload_id: str, demand: Demand, start: bool) -> None:
        engine = create_engine(self.dsn)
        async with engine.begin() as connection:
            version, _ = await workloads.add_claim(
                connection,
                tenant_id=TENANT,
                workload_id=workload_id,
                demand=demand,
                source="test",
                intake={},
            )
        await engine.dispose()
        if start:
            request = PlacementInput(tenant_id=TENANT, partition_id=PARTITION, workload_id=workload_id)
            await start_placement(await self._client(), request, ClaimChanged(claim_version=version))

    async def _client(self) -> Client:
        address = self.plane.stack.temporal_address
        return await Client.connect(address, data_converter=pydantic_data_converter)

    def trigger(self, schedule_id: str) -> None:
        """Let a schedule run now instead of within a minute."""

        async def run() -> None:
            await (await self._client()).get_schedule_handle(schedule_id).trigger()

        asyncio.run(run())

    def fault(self, kind: FaultKind, region: str = REGION, **matching: Any) -> None:
        self.cloud.add_fault(FaultRule(kind=kind, region=region, **matching))

    def fired(self) -> list[int]:
        return [armed.fired for armed in self.cloud.faults()]

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, connect_timeout=5) as connection:
            return connection.execute(query, values).fetchall()

    def write(self, statement: str, *values: Any) -> None:
        with psycopg.connect(self.dsn, connect_timeout=5) as connection:
            connection.execute(statement, values)

    def forgive(self) -> None:
        """No region is held, paused or left alone any more."""
        self.write(
            "UPDATE provider_budgets SET circuit = 'closed', failures = 0, trips = 0, circuit_until = NULL,"
            " paused_until = NULL, quota_refusals = 0, quota_problem = NULL, quota_until = NULL"
        )

    def states(self, workload_id: str) -> dict[str, int]:
        query = "SELECT state, count(*) FROM instances WHERE workload_id = %s GROUP BY 1"
        return dict(self.rows(query, workload_id))

    def servers(self, workload_id: str) -> list[Any]:
        """Its servers at the cloud that are not deleted."""
        found = self.cloud.servers(metadata={"sco_workload": workload_id})
        return [one for one in found if one["status"] != "DELETED"]

    def outcomes(self, workload_ids: Iterable[str]) -> dict[str, tuple[str, int, str | None]]:
        """Phase, missing units and reason of those whose newest claim has been carried out."""
        return {name: (phase, units, why) for name, phase, units, why in self.rows(OUTCOME, [*workload_ids])}

    def settle(
        self, *workload_ids: str, seconds: float = PATIENCE_SECONDS
    ) -> dict[str, tuple[str, int, str | None]]:
        """Wait until the placements have ended and the oracle has nothing to say; their outcomes."""
        deadline = time.monotonic() + seconds
        while True:
            outcomes = self.outcomes(workload_ids)
            problems = check(self.dsn, self.cloud)
            if len(outcomes) == len(set(workload_ids)) and not problems:
                return outcomes
            if time.monotonic() > deadline:
                late = sorted(set(workload_ids) - set(outcomes))
                raise AssertionError(f"after {seconds:g} s: not ended: {late}; {problems or 'one world'}")
            time.sleep(4 * POLL_SECONDS)

    def until(self, holds: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
            time.sleep(POLL_SECONDS)

    def restart_worker(self) -> None:
        self.plane.kill(WORKER)
        self.plane.start(WORKER)

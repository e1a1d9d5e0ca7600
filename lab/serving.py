"""Pools that serve models in a laboratory: one process runs their model servers and their agents.

`python -m lab.serving --plan FILE`; the file says which pools, on which ports, and where to report.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import nats
from nats.aio.client import Client as NatsClient
from pydantic import SecretStr

from domain.model import Frozen
from domain.pool import PoolFacts, PoolKind, PurchaseModel, SecurityBoundary
from lab.models.memory import ModelSettings
from lab.models.server import RunningModels
from lab.seed import TENANT
from wire.reports import ModelLetter, letter, report_subject

REPORT_EVERY_SECONDS = 5.0


@dataclass(frozen=True)
class ServedPool:
    """One serving pool of the laboratory, and how quickly its endpoint loads."""

    pool_id: str
    kind: PoolKind
    region: str
    boundary: SecurityBoundary
    gpu_type: str
    gpu_count: int
    vram_gb: int
    price: str
    seconds_per_gb: float

    def facts(self) -> PoolFacts:
        return PoolFacts(
            pool_id=self.pool_id,
            tenant_id=TENANT,
            kind=self.kind,
            region=self.region,
            hall=self.region,
            security_boundary=self.boundary,
            sku_family=self.gpu_type,
            size="standalone",
            gpu_type=self.gpu_type,
            gpu_count=self.gpu_count,
            vram_gb=self.vram_gb,
            cpu_cores=32,
            ram_gb=256,
            purchase_model=PurchaseModel.GUARANTEED,
            group_id=self.pool_id,
            price_per_hour_usd=Decimal(self.price),
            guaranteed_price_per_hour_usd=Decimal(self.price),
            flavor="standalone",
        )


# A private task of 70 GB: the local server is too small, cloud-a fits, cloud-b is cheaper and elsewhere.
SERVED = (
    ServedPool(
        "gpu-local",
        PoolKind.LOCAL_GPU_SERVER,
        "eu-north",
        SecurityBoundary.PRIVATE,
        *("l4", 1, 24, "0.40", 0.10),
    ),
    ServedPool(
        "cloud-a", PoolKind.CLOUD_GPU, "eu-north", SecurityBoundary.REGIONAL, "a100", 2, 160, "6.40", 0.05
    ),
    ServedPool(
        "cloud-b", PoolKind.CLOUD_GPU, "eu-west", SecurityBoundary.REGIONAL, "a100", 2, 160, "4.10", 0.05
    ),
)


class PlannedPool(Frozen):
    """What the process needs to know of one pool."""

    pool_id: str
    port: int
    vram_gb: int
    seconds_per_gb: float
    token_file: Path


class Plan(Frozen):
    """Every pool of the process, and the NATS server that their agents report to."""

    nats_url: str
    pools: tuple[PlannedPool, ...]


class Agent:
    """What reports for one pool: its memory in use as utilization, and the models that it has loaded."""

    def __init__(self, pool: PlannedPool, running: RunningModels) -> None:
        self._pool = pool
        self._running = running
        self._since: dict[str, datetime] = {}

    async def report(self, client: NatsClient) -> None:
        """Nobody asks these models anything, so each counts as used when it came."""
        now = datetime.now(UTC)
        loaded = self._running.memory.loaded()
        self._since = {model: self._since.get(model, now) for model in loaded}
        used = Decimal(sum(loaded.values())) / self._pool.vram_gb
        body = letter(
            utilization=min(Decimal(1), used).quantize(Decimal("0.0001")),
            queue_depth=0,
            reported_at=now,
            models=tuple(
                ModelLetter(model=model, vramGb=size, lastUsedAt=self._since[model])
                for model, size in loaded.items()
            ),
        )
        await client.publish(report_subject(TENANT, self._pool.pool_id), body)


async def serve(plan: Plan) -> None:
    """Serve and report until a signal. An agent that cannot report tries again with the next report."""
    running = {
        pool.pool_id: RunningModels(
            ModelSettings(
                port=pool.port,
                vram_gb=pool.vram_gb,
                seconds_per_gb=pool.seconds_per_gb,
                token=SecretStr(pool.token_file.read_text().strip()),
            )
        )
        for pool in plan.pools
    }
    agents = [Agent(pool, running[pool.pool_id]) for pool in plan.pools]
    servers = [asyncio.create_task(one.serve()) for one in running.values()]
    client = await nats.connect(plan.nats_url, name="lab-agents", max_reconnect_attempts=-1)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    while not stop.is_set():
        for agent in agents:
            await agent.report(client)
        try:
            await asyncio.wait_for(stop.wait(), REPORT_EVERY_SECONDS)
        except TimeoutError:
            continue
    for one in running.values():
        one.server.should_exit = True
    await asyncio.gather(*servers)
    await client.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.serving", description="Serving pools, on loopback.")
    parser.add_argument("--plan", type=Path, required=True, help="JSON file with pools, ports and NATS")
    plan = Plan.model_validate_json(parser.parse_args().plan.read_text())
    asyncio.run(serve(plan))
    return 0


if __name__ == "__main__":
    sys.exit(main())

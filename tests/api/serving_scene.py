"""Serving pools with a past, and placements on them: what the screens of model serving are looked at with."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

from domain.pool import PoolKind, SecurityBoundary
from tests.activities.model_placing import ACME, MODEL, PLATFORM, ServingEstate
from tests.api.door import Door
from tests.api.test_pools import FACTS, POOLS

PLACE = "/factory/compute-pools/placements"
BUSY = "gpu-busy"
ASKED: dict[str, Any] = {
    "deploymentId": "assistant",
    "model": MODEL,
    "vramGb": 70,
    "boundary": "regional",
    "regions": ["eu-north"],
}
GPU_FACTS = FACTS | {
    "poolId": "gpu-new",
    "kind": "dgx_class",
    "skuFamily": "g2",
    "gpuType": "a100",
    "gpuCount": 8,
    "vramGb": 640,
    "groupId": "eu-north-h1-a3",
    "flavor": "g2.xl",
    "endpointRef": "https://gpu-new.example.net",
}


class Scene:
    """A front door with serving pools behind it."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self.estate = ServingEstate(door.estate.engine, door.estate.engine, door.estate.clock)

    async def open(self) -> None:
        """Own pools that are busy, stale and degraded; one that is shared; one that another tenant owns."""
        pool = self.estate.pool
        await pool(BUSY, PLATFORM, kind=PoolKind.DGX_CLASS, loaded=MODEL)
        await pool("gpu-stale", PLATFORM, reported=False)
        await pool("gpu-down", PLATFORM, vram_gb=80)
        await pool("gpu-small", PLATFORM, vram_gb=24, price_per_hour_usd=Decimal("0.40"))
        await pool("gpu-shared", PLATFORM, security_boundary=SecurityBoundary.SHARED)
        await pool("gpu-south", PLATFORM, region="eu-south", price_per_hour_usd=Decimal(1))
        await pool("gpu-theirs", ACME)
        await self.report(BUSY, "0.62", queue_depth=3, seconds_ago=14)
        await self.judge("gpu-stale", stale_since=self.estate.later(-180))
        await self.judge("gpu-down", health="degraded", health_problem="it did not answer within 5 s")
        await self.judge(BUSY, health="healthy")

    async def report(self, pool_id: str, utilization: str, *, queue_depth: int, seconds_ago: float) -> None:
        await self.estate.run(
            "UPDATE pool_capacity SET utilization = :use, queue_depth = :queue, reported_at = :at"
            " WHERE tenant_id = :t AND pool_id = :p",
            use=Decimal(utilization),
            queue=queue_depth,
            at=self.estate.later(-seconds_ago),
            t=PLATFORM,
            p=pool_id,
        )

    async def judge(self, pool_id: str, **values: Any) -> None:
        """What probes and the collector say of a pool."""
        named = {"changed": self.estate.later(-600), "t": PLATFORM, "p": pool_id}
        sets = ", ".join(f"{name} = :{name}" for name in values)
        await self.estate.run(
            f"UPDATE pool_serving SET {sets}, probed_at = :changed, health_changed_at = :changed"
            " WHERE tenant_id = :t AND pool_id = :p",
            **values | named,
        )

    async def live(self, pool_id: str = "gpu-new") -> None:
        """A pool that was registered, changed and activated over the API, with loads and days of service."""
        door = self.door
        assert (await door.post(POOLS, GPU_FACTS | {"poolId": pool_id})).status_code == 201
        any_version = {"If-Match": "*"}
        where = f"{POOLS}/{pool_id}"
        await door.patch(where, {"pricePerHourUsd": "2.50"}, headers=any_version)
        await door.post(f"{where}/activate", headers=any_version)
        await self.load(pool_id, "loaded", seconds="38.250")
        await self.load(pool_id, "failed", problem="the endpoint answered 500")
        await self.estate.run(
            "INSERT INTO usage_records (tenant_id, pool_id, hour, seconds, price_per_hour_usd, amount_usd)"
            " VALUES (:t, :p, :hour, 3600, 2.5, 2.5), (:t, :p, :hour - interval '20 hours', 1800, 2.5, 1.25)",
            t=PLATFORM,
            p=pool_id,
            hour=self.estate.clock().replace(minute=0) - timedelta(hours=1),
        )

    async def load(self, pool_id: str, outcome: str, **values: Any) -> None:
        started = self.estate.later(-300)
        await self.estate.run(
            "INSERT INTO model_loads (tenant_id, load_id, pool_id, model, vram_gb, cause, started_at,"
            " finished_at, seconds, outcome, problem)"
            " VALUES (:t, :id, :p, :m, 70, 'placement', :at, :at, :seconds, :outcome, :problem)",
            **{"t": PLATFORM, "id": uuid4(), "p": pool_id, "m": MODEL, "at": started, "outcome": outcome},
            seconds=values.get("seconds"),
            problem=values.get("problem"),
        )

    async def place(self, **other: Any) -> dict[str, Any]:
        answer = await self.door.post(PLACE, ASKED | other)
        assert answer.status_code == 201, answer.text
        told: dict[str, Any] = answer.json()
        return told

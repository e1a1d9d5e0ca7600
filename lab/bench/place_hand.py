"""The hand that places models, asked directly: what a placement costs without the door in front of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from uuid import uuid4

import sqlalchemy as sa

from activities.model_placing import ModelPlacing, Placed
from domain.policy import Policy
from domain.pool import SecurityBoundary
from domain.serving.requirements import ModelRequirements
from lab.bench.grpc_calls import MODEL_GB, POOLS, models
from lab.bench.report import Figure, percentile
from store.engine import Engine, create_engine
from store.roles import TENANT_ROLE

TENANT = "bench"
WARM_UP = 50
ALONE = 500
CROWD = 2_000
IN_FLIGHT = 16


def _now() -> datetime:
    return datetime.now(UTC)


def _wanted() -> Iterator[ModelRequirements]:
    """Endless requests of another tenant for models that every pool has in its memory."""
    for number in count():
        yield ModelRequirements(
            deployment_id=f"deployment-{number % 20}",
            model=models()[number % len(models())],
            vram_gb=MODEL_GB,
            boundary=SecurityBoundary.SHARED,
        )


async def measure(owner: Engine, dsn: str) -> list[Figure]:
    """Latencies of one caller, then the rate of many, over pools that `grpc_calls.prepare` made."""
    async with owner.begin() as connection:
        await connection.execute(sa.text("UPDATE pool_capacity SET reported_at = now() + interval '1 day'"))
    engine = create_engine(dsn, pool_size=IN_FLIGHT, role=TENANT_ROLE)
    try:
        hand, wanted = ModelPlacing(engine, policy=Policy, now=_now), _wanted()
        await _place(hand, wanted, WARM_UP)
        alone = await _place(hand, wanted, ALONE)
        began = time.perf_counter()
        await asyncio.gather(*(_place(hand, wanted, CROWD // IN_FLIGHT) for _ in range(IN_FLIGHT)))
        seconds = time.perf_counter() - began
    finally:
        await engine.dispose()
    return [_latency(alone), _rate(CROWD // IN_FLIGHT * IN_FLIGHT / seconds)]


async def _place(hand: ModelPlacing, wanted: Iterator[ModelRequirements], times: int) -> list[float]:
    """The seconds of each placement, one after the other; every one must find a pool."""
    latencies = []
    for _ in range(times):
        began = time.perf_counter()
        answer = await hand.place(TENANT, next(wanted), placement_id=uuid4())
        latencies.append(time.perf_counter() - began)
        if not isinstance(answer, Placed) or not answer.record.held:
            raise RuntimeError("a benched model was not placed: the figure would be meaningless")
    return latencies


def _latency(latencies: list[float]) -> Figure:
    return Figure(
        name="place_hand_p95_ms",
        value=percentile(latencies, 0.95) * 1000,
        unit="ms",
        target="<= 20",
        method=f"{ALONE:,} placements one after the other, {POOLS} candidates each, credentials left out",
    )


def _rate(per_second: float) -> Figure:
    return Figure(
        name="place_hand_per_s",
        value=per_second,
        unit="1/s",
        target=">= 50",
        method=f"{CROWD:,} placements, {IN_FLIGHT} in flight, {POOLS} candidates each",
    )

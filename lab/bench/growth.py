"""Whether a decision costs more when the fleet is larger: it must not grow with what did not change."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime
from itertools import islice
from uuid import uuid4

import sqlalchemy as sa

from activities.placement_calls import DecideRequest
from activities.placing import PlacingActivities
from domain.policy import PlacementPolicy
from lab.bench.bulk import add_claim, live_claims, register_workloads
from lab.bench.estate import TENANT, demands
from lab.bench.report import Figure, percentile
from store.engine import Engine

SMALL, LARGE, EACH = 1_000, 100_000, 10
DECISIONS = 150


async def measure(engine: Engine) -> list[Figure]:
    """Median time of a whole decision (one transaction) with 1,000 and with 100,000 live instances."""
    await live_claims(engine, [f"small-{n}" for n in range(SMALL // EACH)], EACH, seed=2)
    small = await _median_seconds(engine, "on-small")
    more = (LARGE - SMALL) // EACH
    await live_claims(engine, [f"large-{n}" for n in range(more)], EACH, seed=3)
    async with engine.connect() as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        await connection.execute(sa.text("VACUUM ANALYZE"))
    large = await _median_seconds(engine, "on-large")
    return [
        Figure(
            name="planner_cost_ratio_100k_over_1k",
            value=large / small,
            unit="ratio",
            target="about 1",
            method=(
                f"median of {DECISIONS} decisions for first claims, planning and transaction, with {LARGE:,}"
                f" live instances ({large * 1000:.1f} ms) over {SMALL:,} ({small * 1000:.1f} ms)"
            ),
        )
    ]


async def _median_seconds(engine: Engine, prefix: str) -> float:
    placing = PlacingActivities(engine, policy=PlacementPolicy(), now=lambda: datetime.now(UTC))
    names = [f"{prefix}-{n}" for n in range(DECISIONS)]
    await register_workloads(engine, names)
    times = []
    for name, demand in zip(names, islice(demands(random.Random(4)), DECISIONS), strict=False):
        async with engine.begin() as connection:
            await add_claim(connection, name, demand)
        request = DecideRequest(tenant_id=TENANT, workload_id=name, decision_id=uuid4())
        began = time.perf_counter()
        await placing.decide_placement(request)
        times.append(time.perf_counter() - began)
    return percentile(times, 0.5)

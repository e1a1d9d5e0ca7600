"""Durable placements: from a request to the plan generation that the workflow committed.

The request is what the API does for a claim: one transaction that stores it, then signal-with-start.
No provider worker runs, so the placement stops where launching begins; `active` measures the rest.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import count, islice

from temporalio.client import Client

from activities.placement_calls import ClaimChanged, PlacementInput
from activities.placement_start import start_placement
from lab.bench.bulk import PARTITION, add_claim, register_workloads
from lab.bench.estate import TENANT, demands
from lab.bench.load import Timing, Watch, closed_loop, open_loop, watching
from lab.bench.report import Figure, percentile
from lab.bench.yardstick import QUEUE, TABLE, Mark
from store.engine import Engine

IN_FLIGHT = 20
PER_ROUND = 150
ROUNDS = 5
WARM_UP = 60
OPEN_RATES = (10, 20, 40)
OPEN_SECONDS = 15

COMMITTED = """
    SELECT workload_id FROM workloads
    WHERE tenant_id = 'platform' AND workload_id = ANY(:names) AND planned_version > 0
"""
MARKED = f"SELECT name FROM {TABLE} WHERE name = ANY(:names) AND step = 2"  # noqa: S608 - a constant


class Bench:
    """Sends placements and yardsticks through one client, never a name twice."""

    def __init__(self, engine: Engine, client: Client, partition_id: str = PARTITION) -> None:
        self._engine = engine
        self._client = client
        self._partition_id = partition_id
        self._numbers = count()
        self._demands = demands(random.Random(5))

    async def new_names(self, prefix: str, number: int) -> list[str]:
        names = [f"{prefix}-{n}" for n in islice(self._numbers, number)]
        await register_workloads(self._engine, names, self._partition_id)
        return names

    async def place(self, name: str) -> None:
        async with self._engine.begin() as connection:
            version = await add_claim(connection, name, next(self._demands))
        await start_placement(
            self._client,
            PlacementInput(tenant_id=TENANT, partition_id=self._partition_id, workload_id=name),
            ClaimChanged(claim_version=version),
        )

    async def mark(self, name: str) -> None:
        await self._client.start_workflow("Yardstick", Mark(name=name), id=f"yard/{name}", task_queue=QUEUE)


async def measure(engine: Engine, client: Client, live_claims: int) -> list[Figure]:
    """Rates in turn with the yardstick, then latencies at fixed rates."""
    bench = Bench(engine, client)
    committed, marked = Watch(engine, COMMITTED), Watch(engine, MARKED)
    async with watching(committed, marked):
        await closed_loop(committed, bench.place, await bench.new_names("warm", WARM_UP), IN_FLIGHT)
        await closed_loop(marked, bench.mark, [f"warm-{n}" for n in range(WARM_UP)], IN_FLIGHT)
        placed, bare = await _rates(bench, committed, marked)
        figures = [_rate("bare_workflow_per_s", bare, "workflows with two local activities, one commit each")]
        figures.append(
            _rate("placement_durable_per_s", placed, f"distinct first claims, {live_claims:,} claims live")
        )
        figures.append(
            Figure(
                name="placement_over_bare_ratio",
                value=percentile(placed, 0.5) / percentile(bare, 0.5),
                unit="ratio",
                target=">= 0.8",
                method="placement_durable_per_s over bare_workflow_per_s, rounds taken in turn",
            )
        )
        for rate in OPEN_RATES:
            names = await bench.new_names(f"open{rate}", rate * OPEN_SECONDS)
            figures += _latency(rate, await open_loop(committed, bench.place, names, rate), live_claims)
    return figures


async def _rates(bench: Bench, committed: Watch, marked: Watch) -> tuple[list[float], list[float]]:
    placed, bare = [], []
    for number in range(ROUNDS):
        yards = [f"round{number}-{n}" for n in range(PER_ROUND)]
        bare.append((await closed_loop(marked, bench.mark, yards, IN_FLIGHT)).per_second)
        names = await bench.new_names(f"round{number}", PER_ROUND)
        placed.append((await closed_loop(committed, bench.place, names, IN_FLIGHT)).per_second)
    return placed, bare


def _rate(name: str, rates: Sequence[float], what: str) -> Figure:
    return Figure(
        name=name,
        value=percentile(rates, 0.5),
        unit="1/s",
        method=f"median of {ROUNDS} rounds of {PER_ROUND} {what}, {IN_FLIGHT} in flight, until committed",
    )


def _latency(rate: int, timing: Timing, live_claims: int) -> list[Figure]:
    targets = {(50, rate): "", (95, 20): "<= 2,000", (99, 20): "<= 10,000"}
    return [
        Figure(
            name=f"placement_durable_p{share}_ms_at_{rate}",
            value=percentile(timing.latencies, share / 100) * 1000,
            unit="ms",
            target=targets.get((share, rate), ""),
            method=(
                f"open loop, {rate}/s for {OPEN_SECONDS} s, request to committed plan,"
                f" {live_claims:,} claims live ({timing.per_second:.1f}/s completed)"
            ),
        )
        for share in (50, 95, 99)
    ]

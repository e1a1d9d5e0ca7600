"""The whole way: from a request to every instance ACTIVE on the simulated cloud."""

from __future__ import annotations

from temporalio.client import Client

from lab.bench.durable import Bench
from lab.bench.load import Watch, open_loop, watching
from lab.bench.report import Figure, percentile
from store.engine import Engine

PER_SECOND = 2
SECONDS = 20
PLACED = """
    SELECT workload_id FROM workloads
    WHERE tenant_id = 'platform' AND workload_id = ANY(:names) AND phase = 'placed'
"""


async def measure(engine: Engine, client: Client, partition_id: str, build_seconds: float) -> list[Figure]:
    """Latency at a fixed rate, with a cloud that builds a server in `build_seconds` of real time."""
    bench = Bench(engine, client, partition_id)
    watch = Watch(engine, PLACED)
    async with watching(watch):
        names = await bench.new_names("active", PER_SECOND * SECONDS)
        timing = await open_loop(watch, bench.place, names, PER_SECOND)
    method = (
        f"open loop, {PER_SECOND}/s for {SECONDS} s, request to all instances ACTIVE and outcome recorded,"
        f" servers build in {build_seconds:g} s ({timing.per_second:.1f}/s completed)"
    )
    return [
        Figure(
            name=f"placement_active_p{share}_ms_at_{PER_SECOND}",
            value=percentile(timing.latencies, share / 100) * 1000,
            unit="ms",
            method=method,
        )
        for share in (50, 95)
    ]

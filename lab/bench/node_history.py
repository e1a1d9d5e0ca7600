"""The control plane comes back after a reclaim: how long until what the nodes told is in the history."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy as sa

from lab.bench import bulk
from lab.bench.report import Figure, percentile
from lab.relay.bus import NodeBus
from lab.stack.stack import Stack
from store.engine import Engine, create_engine
from store.migrate import upgrade
from workers.history_writer import HistoryWriter

PATIENCE_SECONDS = 120.0
POLL_SECONDS = 0.1
KEPT = sa.text("SELECT count(*) FROM lifecycle_events")
# An event that was told before the control plane was back could not have been kept any sooner.
DELAYS = sa.text(
    "SELECT extract(epoch FROM received_at - greatest(occurred_at, :back)) FROM lifecycle_events"
)


async def measure(bus: NodeBus, instances: Mapping[str, int], told: int) -> list[Figure]:
    """Keep `told` events of nodes that are named `<name>-1` and so on, by `instances`, on a fresh database.

    RuntimeError when they are not all kept in time.
    """
    stack = await asyncio.to_thread(_stack)
    try:
        engine = await _database(stack, instances)
        try:
            delays = await _kept(bus, engine, told)
        finally:
            await engine.dispose()
    finally:
        await asyncio.to_thread(_remove, stack)
    p50, p99, last = (percentile(delays, share) for share in (0.5, 0.99, 1.0))
    return [
        Figure(
            name="event_to_history_p99_s",
            value=p99,
            unit="s",
            target="<= 30",
            method=(
                f"{len(delays):,} events that {sum(instances.values())} nodes told while the control plane"
                " was away, from the start of one history writer to their commit;"
                f" p50 {p50:.1f} s, last {last:.1f} s"
            ),
        )
    ]


def _stack() -> Stack:
    folder = Path(tempfile.mkdtemp(prefix="sco-bench-history-"))
    folder.chmod(0o755)
    return Stack.start(folder)


def _remove(stack: Stack) -> None:
    stack.stop()
    shutil.rmtree(stack.data_dir, ignore_errors=True)


async def _database(stack: Stack, instances: Mapping[str, int]) -> Engine:
    """A database that knows the nodes as instances of live claims."""
    dsn = stack.dsn("postgres")
    await asyncio.to_thread(upgrade, dsn)
    engine = create_engine(dsn)
    await bulk.prepare(engine)
    for seed, (name, count) in enumerate(sorted(instances.items())):
        await bulk.live_claims(engine, [name], count, seed=seed)
    return engine


async def _kept(bus: NodeBus, engine: Engine, told: int) -> list[float]:
    """Seconds from when each event could be kept until it was."""
    stop = asyncio.Event()
    back = datetime.now(UTC)
    writer = HistoryWriter(
        engine, bus.url, now=lambda: datetime.now(UTC), credentials=bus.admission.history_file()
    )
    writing = asyncio.create_task(writer.run(stop))
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (kept := await _count(engine)) < told:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{kept} of {told} events are kept after {PATIENCE_SECONDS:.0f} s")
            await asyncio.sleep(POLL_SECONDS)
        async with engine.connect() as connection:
            rows = await connection.execute(DELAYS, {"back": back})
            return [float(row[0]) for row in rows]
    finally:
        stop.set()
        await writing


async def _count(engine: Engine) -> int:
    async with engine.connect() as connection:
        return int((await connection.execute(KEPT)).scalar_one())

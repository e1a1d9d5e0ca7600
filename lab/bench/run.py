"""All benches in turn, each on a fresh database of one embedded stack that is thrown away afterwards."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import psycopg
import structlog
from psycopg import sql
from rich.console import Console
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from lab.bench import (
    active,
    bulk,
    durable,
    faults,
    growth,
    grpc_calls,
    node_drains,
    place_hand,
    planner,
    pool_reads,
    rebuild,
    relay_fanout,
)
from lab.bench.report import Figure, show, write
from lab.bring_up import bring_up
from lab.cloud.admin_client import AdminClient
from lab.control_plane import CLOUD, ControlPlane, Pace
from lab.stack.stack import Stack
from store.engine import Engine, create_engine
from store.migrate import upgrade

LIVE_CLAIMS = 5_000
INSTANCES_EACH = 8
BUILD_SECONDS = 1.0
CLOUD_BUILD_SECONDS = 20.0
PARTITION = "k8s-eu-north"
Echo = Callable[[str], None]


def run(output: Path, console: Console) -> None:
    """Measure everything, print the table, write `output`."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    console.print("planner: decisions per second of the rule alone")
    figures = planner.measure()
    for measure in (_decisions, _way_to_active, _rebuilding, _faults, _placing_hand, _model_placements):
        with _fresh_stack() as stack:
            figures += asyncio.run(measure(stack, console.print))
    figures += _nodes(console.print)
    show(console, figures)
    write(output, figures)
    console.print(f"bench: {len(figures)} figures in {output}")


def _nodes(echo: Echo) -> list[Figure]:
    """The node plane, with nothing of the control plane running."""
    echo(f"relay: a notice to {relay_fanout.INSTANCES:,} instances")
    figures = relay_fanout.measure()
    echo(f"nodes: {node_drains.NODES} taken back at once")
    figures += node_drains.measure()
    _show(figures, echo)
    return figures


@contextmanager
def _fresh_stack() -> Iterator[Stack]:
    """A stack without any history, gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="sco-bench-"))
    folder.chmod(0o755)
    stack = Stack.start(folder)
    try:
        yield stack
    finally:
        stack.stop()
        shutil.rmtree(folder, ignore_errors=True)


async def _decisions(stack: Stack, echo: Echo) -> list[Figure]:
    echo("growth: cost of a decision in a small and in a large fleet")
    async with _database(stack, "growth") as (engine, _):
        await bulk.prepare(engine)
        figures = await growth.measure(engine)
    _show(figures, echo)
    client = await Client.connect(stack.temporal_address, data_converter=pydantic_data_converter)
    echo(f"durable: placements through the workflow, {LIVE_CLAIMS:,} claims live")
    async with _database(stack, "durable") as (engine, dsn):
        await bulk.prepare(engine)
        names = [f"live-{n}" for n in range(LIVE_CLAIMS)]
        await bulk.live_claims(engine, names, INSTANCES_EACH, seed=6)
        async with _worker(stack, dsn):
            durables = await durable.measure(engine, client, LIVE_CLAIMS)
    _show(durables, echo)
    return figures + durables


def _show(figures: list[Figure], echo: Echo) -> None:
    for one in figures:
        echo(f"  {one.name} = {one.value:,.2f} {one.unit}")


async def _way_to_active(stack: Stack, echo: Echo) -> list[Figure]:
    echo("active: the whole way to running instances on the simulated cloud")
    client = await Client.connect(stack.temporal_address, data_converter=pydantic_data_converter)
    pace = Pace(
        cloud_speed=CLOUD_BUILD_SECONDS / BUILD_SECONDS, poll_seconds=0.25, provider_calls_per_second=500
    )
    plane = ControlPlane(stack, pace)
    engine = create_engine(stack.postgres_dsn)
    try:
        await asyncio.to_thread(bring_up, plane, api=False)
        await bulk.put_contract(engine)
        figures = await active.measure(engine, client, PARTITION, BUILD_SECONDS)
    finally:
        await asyncio.to_thread(plane.stop_all)
        await engine.dispose()
    _show(figures, echo)
    return figures


async def _rebuilding(stack: Stack, echo: Echo) -> list[Figure]:
    echo(f"rebuild: {rebuild.SERVERS:,} servers, and a database that remembers none of them")
    plane = ControlPlane(stack)
    await asyncio.to_thread(plane.start, CLOUD)
    known = json.loads(plane.cloud_file.read_text())
    cloud = AdminClient(known["base_url"], known["admin"]["token"])
    try:
        async with _database(stack, "rebuild") as (engine, dsn):
            figures = await rebuild.measure(engine, dsn, cloud, plane.provider_file)
    finally:
        cloud.close()
        await asyncio.to_thread(plane.stop_all)
    _show(figures, echo)
    return figures


async def _faults(stack: Stack, echo: Echo) -> list[Figure]:
    echo(f"faults: {faults.CASES} cases of the fault matrix")
    figures = await asyncio.to_thread(faults.measure, stack, echo)
    _show(figures, echo)
    return figures


async def _placing_hand(stack: Stack, echo: Echo) -> list[Figure]:
    echo(f"hand: placements of models among {grpc_calls.POOLS} pools, without a door in front")
    async with _database(stack, "hand") as (engine, dsn):
        await grpc_calls.prepare(engine)
        figures = await place_hand.measure(engine, dsn)
    _show(figures, echo)
    return figures


async def _model_placements(stack: Stack, echo: Echo) -> list[Figure]:
    echo(f"grpc: placements of models while {grpc_calls.POOLS} pools report")
    async with _database(stack, "grpc") as (engine, dsn):
        await grpc_calls.prepare(engine)
        figures = await asyncio.to_thread(grpc_calls.measure, stack, dsn)
        _show(figures, echo)
        echo(f"reads: lists and single pools over REST, {pool_reads.PER_SECOND}/s")
        reads = await asyncio.to_thread(pool_reads.measure, stack, dsn)
    _show(reads, echo)
    return figures + reads


@asynccontextmanager
async def _database(stack: Stack, name: str) -> AsyncIterator[tuple[Engine, str]]:
    """A migrated database of its own."""
    with psycopg.connect(stack.postgres_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    dsn = stack.dsn(name)
    await asyncio.to_thread(upgrade, dsn)
    engine = create_engine(dsn)
    try:
        yield engine, dsn
    finally:
        await engine.dispose()


@asynccontextmanager
async def _worker(stack: Stack, dsn: str) -> AsyncIterator[None]:
    """The worker of the durable benches, as a process of its own."""
    environment = {
        "SCO_DATABASE_URL": dsn,
        "SCO_TEMPORAL_ADDRESS": stack.temporal_address,
        "SCO_PARTITIONS": bulk.PARTITION,
    }
    with (stack.data_dir / "logs" / "bench-worker.log").open("wb") as log:
        process = await asyncio.to_thread(
            subprocess.Popen,
            [sys.executable, "-m", "lab.bench.worker"],
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    try:
        assert process.stdout is not None
        if await asyncio.to_thread(process.stdout.readline) != b"ready\n":
            raise RuntimeError(f"the bench worker did not start: see {log.name}")
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)

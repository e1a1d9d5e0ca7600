"""Placements over gRPC while pools report: server, load and Postgres each a process of its own.

The models are loaded on every pool, as they are where routers are busy: a placement that must wait for its
model is answered as fast, and starts a workflow that nobody waits for.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import sqlalchemy as sa

from domain.pool import PoolFacts, PoolState, PurchaseModel, SecurityBoundary
from lab.bench.estate import TENANT
from lab.bench.grpc_client import Plan, Seen
from lab.bench.report import Figure, percentile
from lab.issuer import IssuerHandle
from lab.issuer.issuer import AUDIENCE
from lab.logins import API_LOGIN, dsn_of, ensure_logins
from lab.stack.stack import Stack
from store import registry
from store.engine import Engine

POOLS = 200
MODELS = 10
MODEL_GB = 20
POOL_GB = 640
REPORT_SECONDS = 10.0
OPEN_RATES = (50, 200, 400)
OPEN_SECONDS = 20.0
MOST_SECONDS = 15.0
IN_FLIGHT = 16
ROUTER, AGENT = "tenant-a-router", "pool-agent"
LOADED = sa.text(
    """
    INSERT INTO cached_models (tenant_id, pool_id, model, vram_gb, state, loaded_at, last_used_at)
    SELECT tenant_id, pool_id, unnest(CAST(:models AS text[])), :gb, 'loaded', :at, :at FROM pools
    """
)
TARGETS = {50: "<= 2,000 (aim 200)", 200: "<= 2,000 (aim 500)", 400: "<= 2,000 (aim 500)"}


def names() -> tuple[str, ...]:
    return tuple(f"gpu-{number:03d}" for number in range(POOLS))


def models() -> tuple[str, ...]:
    return tuple(f"model-{number}" for number in range(MODELS))


async def prepare(engine: Engine) -> None:
    """Shared pools of the platform, in service, each with every model in its memory."""
    at = datetime.now(UTC)
    async with engine.begin() as connection:
        await registry.register_pools(connection, [_facts(name) for name in names()], PoolState.ACTIVE)
        await connection.execute(sa.text("UPDATE pools SET endpoint_ref = 'https://127.0.0.1/' || pool_id"))
        await connection.execute(sa.text("UPDATE pool_capacity SET reported_at = :at"), {"at": at})
        await connection.execute(LOADED, {"models": list(models()), "gb": MODEL_GB, "at": at})
        await connection.execute(sa.text("ANALYZE"))


def _facts(pool_id: str) -> PoolFacts:
    return PoolFacts(
        pool_id=pool_id,
        tenant_id=TENANT,
        region="eu-north",
        hall="eu-north-h1",
        security_boundary=SecurityBoundary.SHARED,
        sku_family="g2",
        size="xl",
        gpu_type="a100",
        gpu_count=8,
        vram_gb=POOL_GB,
        cpu_cores=32,
        ram_gb=256,
        purchase_model=PurchaseModel.GUARANTEED,
        group_id="eu-north-h1-a3",
        price_per_hour_usd=Decimal(8),
        guaranteed_price_per_hour_usd=Decimal(16),
        flavor="g2.xl",
    )


def measure(stack: Stack, owner_dsn: str) -> list[Figure]:
    """The most that is answered, then latencies at fixed rates."""
    ensure_logins(owner_dsn, stack.data_dir)
    with (
        IssuerHandle.start_in_thread() as issuer,
        _server(stack, dsn_of(API_LOGIN, owner_dsn, stack.data_dir), issuer.url) as address,
    ):
        plan = Plan(
            address=address,
            router_token=issuer.issuer.token_for(ROUTER),
            agent_token=issuer.issuer.token_for(AGENT),
            pools=names(),
            models=models(),
            vram_gb=MODEL_GB,
            report_seconds=REPORT_SECONDS,
            seconds=MOST_SECONDS,
            in_flight=IN_FLIGHT,
        )
        figures = [_most(_load(plan))]
        for rate in OPEN_RATES:
            seen = _load(plan.model_copy(update={"per_second": rate, "seconds": OPEN_SECONDS}))
            figures.append(_latency(rate, seen))
        return figures


def _most(seen: Seen) -> Figure:
    return Figure(
        name="place_grpc_per_s",
        value=len(seen.latencies) / seen.seconds,
        unit="1/s",
        target=">= 50",
        method=f"{IN_FLIGHT} in flight for {MOST_SECONDS:g} s, {_meanwhile(seen)}",
    )


def _latency(rate: int, seen: Seen) -> Figure:
    """Over the calls that were answered; those that were refused are told beside it."""
    answered = len(seen.latencies) / seen.seconds
    return Figure(
        name=f"place_grpc_p95_ms_at_{rate}",
        value=percentile(seen.latencies, 0.95) * 1000,
        unit="ms",
        target=TARGETS.get(rate, ""),
        method=f"open loop, {rate}/s for {OPEN_SECONDS:g} s, {answered:.0f}/s answered, {_meanwhile(seen)}",
    )


def _meanwhile(seen: Seen) -> str:
    refused = ", ".join(f"{count} {code}" for code, count in sorted(seen.refused.items())) or "none"
    reports = f"{seen.reports_accepted} accepted, {seen.reports_refused} refused"
    every = f"{POOLS} pools report every {REPORT_SECONDS:g} s on a stream each"
    return f"{every} ({reports}); calls refused: {refused}"


def _load(plan: Plan) -> Seen:
    ended = subprocess.run(
        [sys.executable, "-m", "lab.bench.grpc_client"],
        input=plan.model_dump_json(),
        capture_output=True,
        text=True,
        timeout=plan.seconds + plan.report_seconds + 120,
        check=False,
    )
    if ended.returncode != 0:
        raise RuntimeError(f"the load ended with {ended.returncode}: {ended.stderr[-2000:]}")
    return Seen.model_validate_json(ended.stdout)


@contextmanager
def _server(stack: Stack, dsn: str, issuer_url: str) -> Iterator[str]:
    """The gRPC server as it is run, until the end of the block; yields its address."""
    environment = {
        "SCO_DATABASE_URL": dsn,
        "SCO_TEMPORAL_ADDRESS": stack.temporal_address,
        "SCO_OIDC_ISSUER": issuer_url,
        "SCO_OIDC_AUDIENCE": AUDIENCE,
        "SCO_GRPC_PORT": "0",
    }
    log = stack.data_dir / "logs" / "bench-grpc.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "api.grpc.main"], env=os.environ | environment, stderr=output
        )
    try:
        yield f"127.0.0.1:{_port(process, log)}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    """The port that the server says it serves on."""
    for _ in range(600):
        for line in log.read_text().splitlines():
            said = json.loads(line)
            if said["event"] == "serving":
                return int(said["port"])
        try:
            process.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            continue
        break
    raise RuntimeError(f"the gRPC server did not start: see {log}")

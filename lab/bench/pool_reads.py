"""Reads of the registry over REST: lists and single pools at a fixed rate, from a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import uvloop

from domain.model import Frozen
from lab.bench.grpc_calls import AGENT, POOLS, names
from lab.bench.report import Figure, percentile
from lab.issuer import IssuerHandle
from lab.issuer.issuer import AUDIENCE
from lab.logins import API_LOGIN, dsn_of, ensure_logins
from lab.stack.ports import any_free
from lab.stack.stack import Stack

PER_SECOND = 100
SECONDS = 20.0
WARM_UP_SECONDS = 3.0
PAGE = 50
READY_SECONDS = 60.0
GIVE_UP_SECONDS = 30.0
WHERE = "/factory/compute-pools"


class Plan(Frozen):
    """What the client process does: every second read is a list of `PAGE` pools, the others are one pool."""

    address: str
    token: str
    pools: tuple[str, ...]
    per_second: int
    seconds: float


class Seen(Frozen):
    """Seconds of each read that was answered 200, and how many were not."""

    latencies: tuple[float, ...]
    refused: int


def measure(stack: Stack, owner_dsn: str) -> list[Figure]:
    """The slow end of reads at a fixed rate, over the registry that `grpc_calls.prepare` filled."""
    ensure_logins(owner_dsn, stack.data_dir)
    with (
        IssuerHandle.start_in_thread() as issuer,
        _server(stack, dsn_of(API_LOGIN, owner_dsn, stack.data_dir), issuer.url) as address,
    ):
        plan = Plan(
            address=address,
            token=issuer.issuer.token_for(AGENT),
            pools=names(),
            per_second=PER_SECOND,
            seconds=WARM_UP_SECONDS,
        )
        _load(plan)
        seen = _load(plan.model_copy(update={"seconds": SECONDS}))
    method = (
        f"open loop, {PER_SECOND}/s for {SECONDS:g} s, half lists of {PAGE} and half single pools of {POOLS};"
        f" {seen.refused} refused"
    )
    value = percentile(seen.latencies, 0.99) * 1000
    return [Figure(name="pool_reads_p99_ms_at_100", value=value, unit="ms", target="<= 250", method=method)]


def _load(plan: Plan) -> Seen:
    ended = subprocess.run(
        [sys.executable, "-m", "lab.bench.pool_reads"],
        input=plan.model_dump_json(),
        capture_output=True,
        text=True,
        timeout=plan.seconds + GIVE_UP_SECONDS + 60,
        check=False,
    )
    if ended.returncode != 0:
        raise RuntimeError(f"the load ended with {ended.returncode}: {ended.stderr[-2000:]}")
    return Seen.model_validate_json(ended.stdout)


@contextmanager
def _server(stack: Stack, dsn: str, issuer_url: str) -> Iterator[str]:
    """The API as it is run, until the end of the block; yields its address."""
    port = any_free({})
    environment = {
        "SCO_DATABASE_URL": dsn,
        "SCO_TEMPORAL_ADDRESS": stack.temporal_address,
        "SCO_OIDC_ISSUER": issuer_url,
        "SCO_OIDC_AUDIENCE": AUDIENCE,
        "SCO_API_PORT": str(port),
    }
    address = f"http://127.0.0.1:{port}"
    with (stack.data_dir / "logs" / "bench-api.log").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "api.main"], env=os.environ | environment, stderr=output
        )
    try:
        _until_ready(process, address)
        yield address
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def _until_ready(process: subprocess.Popen[bytes], address: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    with httpx2.Client(trust_env=False) as http:
        while time.monotonic() < deadline and process.poll() is None:
            try:
                if http.get(f"{address}/readyz").status_code == httpx2.codes.OK:
                    return
            except httpx2.TransportError:
                time.sleep(0.05)
    raise RuntimeError("the API did not start: see bench-api.log")


class _Reader:
    """Reads, and remembers how long each answer took."""

    def __init__(self, http: httpx2.AsyncClient, plan: Plan) -> None:
        self._http = http
        self._plan = plan
        self.latencies: list[float] = []
        self.refused = 0

    async def read(self, number: int) -> None:
        began = time.perf_counter()
        if number % 2:
            path = f"{WHERE}/{self._plan.pools[number % len(self._plan.pools)]}"
        else:
            path = f"{WHERE}?pageSize={PAGE}"
        answer = await self._http.get(path)
        if answer.status_code == httpx2.codes.OK:
            self.latencies.append(time.perf_counter() - began)
        else:
            self.refused += 1


async def _act(plan: Plan) -> Seen:
    signed = {"Authorization": f"Bearer {plan.token}"}
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
    async with httpx2.AsyncClient(
        base_url=plan.address, headers=signed, timeout=GIVE_UP_SECONDS, trust_env=False, limits=limits
    ) as http:
        reader = _Reader(http, plan)
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(int(plan.per_second * plan.seconds)):
                await asyncio.sleep(max(0.0, began + number / plan.per_second - time.perf_counter()))
                group.create_task(reader.read(number))
    return Seen(latencies=tuple(reader.latencies), refused=reader.refused)


if __name__ == "__main__":
    told = Plan.model_validate_json(sys.stdin.read())
    sys.stdout.write(uvloop.run(_act(told)).model_dump_json())

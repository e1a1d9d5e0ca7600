"""The front door as a process: it says why it will not start, serves on loopback, and ends when asked."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from temporalio.client import Client

from lab.issuer import IssuerHandle
from lab.issuer.issuer import AUDIENCE
from lab.stack import Stack
from lab.stack.ports import any_free
from tests.activities.deciding import halls
from tests.api.door import pods
from tests.estates import PARTITION, Estate

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 90


def environment(**settings: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SCO_")}
    return clean | settings


def refused(**settings: str) -> str:
    """What the process says when it does not start."""
    ended = subprocess.run(
        [sys.executable, "-m", "api.main"],
        env=environment(**settings),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stderr


def test_it_names_every_setting_that_is_missing_or_wrong() -> None:
    told = refused(SCO_API_PORT="80800")
    assert "SCO_DATABASE_URL: is not set" in told
    assert "SCO_OIDC_ISSUER: is not set: give the address of the OpenID issuer" in told
    assert "SCO_OIDC_AUDIENCE: is not set" in told
    assert "SCO_API_PORT" in told


def test_it_repeats_no_secret_when_it_refuses_to_start() -> None:
    told = refused(
        SCO_DATABASE_URL="postgresql://u:hidden@127.0.0.1/x",
        SCO_OIDC_ISSUER="http://issuer.example",
        SCO_OIDC_AUDIENCE="sco-api",
        SCO_OIDC_CLIENT_SECRET="hidden",
        SCO_SESSION_KEY="hidden",
    )
    assert "SCO_OIDC_ISSUER: this is no address of an issuer: it would be asked in plain text" in told
    assert "SCO_SESSION_KEY: it is shorter than 32 bytes" in told
    assert "hidden" not in told


@pytest.fixture(scope="module")
def issuer() -> Iterator[IssuerHandle]:
    with IssuerHandle.start_in_thread() as running:
        yield running


@pytest.fixture
def address(stack: Stack, api_dsn: str, issuer: IssuerHandle) -> Iterator[str]:
    """A served front door over the test's own database and the real Temporal."""
    port = any_free({})
    settings = {
        "SCO_DATABASE_URL": api_dsn,
        "SCO_TEMPORAL_ADDRESS": stack.temporal_address,
        "SCO_TEMPORAL_NAMESPACE": stack.temporal_namespace,
        "SCO_API_PORT": str(port),
        "SCO_OIDC_ISSUER": issuer.url,
        "SCO_OIDC_AUDIENCE": AUDIENCE,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "api.main"],
        env=environment(**settings),
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, log
    lines = [json.loads(line) for line in log.splitlines()]
    assert "serving" in {line["event"] for line in lines}
    assert api_dsn not in log
    assert "eyJ" not in log


async def ready(http: httpx2.AsyncClient) -> httpx2.Response:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            answer = await http.get("/readyz")
        except httpx2.HTTPError:
            await asyncio.sleep(0.1)
            continue
        if answer.status_code == 200:
            return answer
        await asyncio.sleep(0.1)
    raise AssertionError("it did not become ready")


async def test_a_claim_over_the_wire_starts_its_placement(
    stack: Stack, address: str, issuer: IssuerHandle, estate: Estate
) -> None:
    await estate.open(halls(1))
    await estate.workload("orders")
    async with httpx2.AsyncClient(base_url=address, trust_env=False) as http:
        assert (await ready(http)).json()["checks"]["temporal"] == "reachable"
        assert (await http.post("/workloads/orders/claims", json=pods(3))).status_code == 401
        http.headers["Authorization"] = f"Bearer {issuer.issuer.token_for('sco-cli')}"
        told = (await http.post("/workloads/orders/claims", json=pods(3))).json()
    assert told["placement"] == {"workflowId": f"placement/{PARTITION}/orders", "started": True}
    client = await Client.connect(stack.temporal_address, namespace=stack.temporal_namespace)
    handle = client.get_workflow_handle(told["placement"]["workflowId"])
    description = await handle.describe()
    assert description.workflow_type == "Placement"
    await handle.terminate("the test is over")

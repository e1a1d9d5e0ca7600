"""The front door as a process: it says why it will not start, serves on loopback, and ends when asked."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from temporalio.client import Client

from api.settings import ApiSettings, is_loopback
from lab.stack import Stack
from tests.activities.deciding import halls
from tests.api.door import pods
from tests.estates import PARTITION, Estate

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 30


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


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.com", ""])
def test_it_listens_on_loopback_only_and_says_why(host: str) -> None:
    told = refused(SCO_DATABASE_URL="postgresql://u:hidden@127.0.0.1/x", SCO_API_HOST=host)
    assert "SCO_API_HOST" in told
    assert "no sign-in yet" in told
    assert "hidden" not in told


def test_it_names_every_setting_that_is_wrong() -> None:
    told = refused(SCO_API_PORT="80800")
    assert "SCO_DATABASE_URL: is not set" in told
    assert "SCO_API_PORT" in told


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_has_several_names(host: str) -> None:
    assert is_loopback(host)
    assert ApiSettings(database_url="postgresql://x", api_host=host).api_host == host


@pytest.fixture
def address(stack: Stack, dsn: str) -> Iterator[str]:
    """A served front door over the test's own database and the real Temporal."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {
        "SCO_DATABASE_URL": dsn,
        "SCO_TEMPORAL_ADDRESS": stack.temporal_address,
        "SCO_TEMPORAL_NAMESPACE": stack.temporal_namespace,
        "SCO_API_PORT": str(port),
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
    assert dsn not in log


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


async def test_a_claim_over_the_wire_starts_its_placement(stack: Stack, address: str, estate: Estate) -> None:
    await estate.open(halls(1))
    await estate.workload("orders")
    async with httpx2.AsyncClient(base_url=address, trust_env=False) as http:
        assert (await ready(http)).json()["checks"]["temporal"] == "reachable"
        told = (await http.post("/workloads/orders/claims", json=pods(3))).json()
    assert told["placement"] == {"workflowId": f"placement/{PARTITION}/orders", "started": True}
    client = await Client.connect(stack.temporal_address, namespace=stack.temporal_namespace)
    handle = client.get_workflow_handle(told["placement"]["workflowId"])
    description = await handle.describe()
    assert description.workflow_type == "Placement"
    await handle.terminate("the test is over")

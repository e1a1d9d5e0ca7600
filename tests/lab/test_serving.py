"""The process that serves models in a laboratory: endpoints with credentials, and agents that report."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import httpx2
import nats

from lab.serving import SERVED, Plan, PlannedPool
from lab.stack import Stack
from lab.stack.nats import taken_in
from lab.stack.ports import any_free
from wire.reports import REPORT_SUBJECTS, ReportLetter, read_report, sender_of

TOKEN = "a-token-of-this-test"
PATIENCE_SECONDS = 30


def planned(folder: Path) -> PlannedPool:
    token = folder / "token"
    token.write_text(TOKEN)
    return PlannedPool(
        pool_id="gpu-local", port=any_free({}), vram_gb=24, seconds_per_gb=0.01, token_file=token
    )


@contextmanager
def serving(stack: Stack, pool: PlannedPool, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    plan = folder / "plan.json"
    plan.write_text(Plan(nats_url=stack.nats_url, pools=(pool,)).model_dump_json())
    process = subprocess.Popen([sys.executable, "-m", "lab.serving", "--plan", str(plan)], env=os.environ)
    try:
        yield process
        process.terminate()
        assert process.wait(PATIENCE_SECONDS) == 0
    finally:
        process.kill()
        process.wait()


async def test_models_are_served_with_a_credential_and_reported(stack: Stack, tmp_path: Path) -> None:
    """An agent lists what its endpoint loaded, within its next report."""
    pool = planned(tmp_path)
    client = await nats.connect(stack.nats_url)
    heard = await client.subscribe(REPORT_SUBJECTS)
    await taken_in(client)
    with serving(stack, pool, tmp_path):
        first = await heard.next_msg(timeout=PATIENCE_SECONDS)
        assert sender_of(first.subject) == ("platform", "gpu-local")
        assert isinstance(read_report(first.data), ReportLetter)
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{pool.port}", trust_env=False) as http:
            body = {"model": "some:12gb"}
            assert (await http.post("/api/generate", json=body)).status_code == 401
            signed = {"Authorization": f"Bearer {TOKEN}"}
            assert (await http.post("/api/generate", json=body, headers=signed)).status_code == 200
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                letter = read_report((await heard.next_msg(timeout=PATIENCE_SECONDS)).data)
                assert isinstance(letter, ReportLetter)
                if letter.models:
                    break
    await client.close()
    assert [(one.model, one.vram_gb) for one in letter.models] == [("some:12gb", 12)]
    assert letter.utilization == Decimal("0.5")


def test_the_pools_of_a_laboratory_act_the_example_out() -> None:
    """70 GB: the local server is too small, one cloud pool fits, the other is cheaper and elsewhere."""
    local, near, far = SERVED
    assert local.vram_gb < 70 <= min(near.vram_gb, far.vram_gb)
    assert (near.region, far.region) == (local.region, "eu-west")
    assert Decimal(far.price) < Decimal(near.price)
    assert {one.facts().tenant_id for one in SERVED} == {"platform"}

"""Schemathesis over the whole description, against a real server with data: it finds nothing."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from api.sign_in.principal import Role
from tests.api.door import Bearer, Door
from tests.api.serving import served
from tests.api.serving_scene import BUSY, Scene
from tests.api.test_warm_profiles import BODY, CHAT
from tests.domain.drains import honest
from tests.store.histories import remember

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sys.executable).parent / "schemathesis"
# Cases of each operation, besides those that its description calls for; more for a longer search.
EXAMPLES = os.environ.get("SCHEMATHESIS_EXAMPLES", "10")
PATIENCE_SECONDS = 200 + 10 * int(EXAMPLES)


async def open_everything(door: Door) -> None:
    """One of each thing at least, so that reads and changes find something."""
    await door.open_estate()
    await door.placed()
    scene = Scene(door)
    await scene.open()
    await scene.live()
    await scene.place()
    assert (await door.put(CHAT, BODY)).status_code == 201
    warm = {"model": "mistral:7b", "vramGb": 8}
    assert (await door.post(f"/factory/compute-pools/{BUSY}/warm", warm)).status_code == 202
    assert (await door.post("/factory/audits", {})).status_code == 202
    await remember(door.estate.engine, "node-1", honest(), tenant="platform")


async def findings(door: Door, phases: str, **said: Any) -> str:
    """What it reports; empty where it finds nothing. The token of its requests says what is given."""
    async with served(door.app) as address:
        running = await asyncio.create_subprocess_exec(
            PROGRAM,
            "run",
            f"{address}/openapi.json",
            f"--header=Authorization: Bearer {Bearer(door.estate.clock, **said).token}",
            f"--phases={phases}",
            f"--max-examples={EXAMPLES}",
            "--generation-deterministic",
            "--continue-on-failure",
            # More would draw cases in another order each time, and stumble over each other in its caches.
            "--workers=1",
            "--no-color",
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                told, _ = await running.communicate()
        finally:
            if running.returncode is None:
                running.kill()
                await running.wait()
    print(told.decode())
    return told.decode() if running.returncode else ""


@pytest.mark.timeout(PATIENCE_SECONDS + 60)
async def test_nothing_is_found_as_an_administrator(door: Door) -> None:
    await open_everything(door)
    assert await findings(door, "examples,coverage,fuzzing,stateful") == ""


@pytest.mark.timeout(PATIENCE_SECONDS + 60)
async def test_nothing_is_found_as_an_observer(door: Door) -> None:
    await open_everything(door)
    scope = "factory.compute.read"
    assert await findings(door, "fuzzing", roles=[Role.OBSERVER], scope=scope) == ""

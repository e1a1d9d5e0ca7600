"""`sco` and models against the real API over a real database: placed, loaded, held, given back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from decimal import Decimal
from typing import Any

import pytest
import pytest_asyncio

from clients.cli.main import main
from domain.pool import PoolKind, SecurityBoundary
from tests.activities.model_placing import ACME, MODEL, PLATFORM, ServingEstate
from tests.api.door import Bearer, Door, door_on
from tests.api.serving import served
from tests.cli.conftest import Ran
from tests.cli.test_reading import row
from tests.estates import Estate

START_POLLS, POLL_SECONDS = 3000, 0.01
TASK = ("--deployment", "assistant", "--model", MODEL, "--vram-gb", "70")
PLACE = ("models", "place", *TASK, "--boundary", "regional", "--region", "eu-north")
RealSco = Callable[..., Awaitable[Ran]]


@pytest_asyncio.fixture
async def door(estate: Estate) -> AsyncIterator[Door]:
    async with door_on(estate) as opened:
        yield opened


@pytest_asyncio.fixture
async def serving(door: Door) -> ServingEstate:
    """The platform's pools of the example: too small, fitting, and cheaper where it is not allowed."""
    estate = ServingEstate(door.estate.engine, door.estate.engine, door.estate.clock)
    for pool_id, vram_gb, price, region, boundary in (
        ("gpu-local", 24, "0.40", "eu-north", SecurityBoundary.PRIVATE),
        ("cloud-a", 160, "6.40", "eu-north", SecurityBoundary.REGIONAL),
        ("cloud-b", 160, "4.10", "eu-west", SecurityBoundary.SHARED),
    ):
        facts: dict[str, Any] = {"region": region, "security_boundary": boundary, "kind": PoolKind.CLOUD_GPU}
        await estate.pool(pool_id, PLATFORM, vram_gb=vram_gb, price_per_hour_usd=Decimal(price), **facts)
    return estate


@pytest_asyncio.fixture
async def sco(
    door: Door,
    serving: ServingEstate,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[RealSco]:
    """`sco` as people of one tenant run it, beside a server that works with a tenant's rights."""
    async with served(door.app) as address:

        async def run(*arguments: str, code: int = 0, tenant: str = PLATFORM) -> Ran:
            capsys.readouterr()
            monkeypatch.setenv("SCO_TOKEN", Bearer(door.estate.clock, tenant_id=tenant).token)
            ended = await asyncio.to_thread(main, ["--server", address, *arguments])
            captured = capsys.readouterr()
            assert ended == code, captured.err
            return Ran(ended, captured.out, captured.err)

        yield run


async def load_when_asked(door: Door, serving: ServingEstate) -> None:
    """What the worker does: the model is loaded a moment after the placement was started."""
    for _ in range(START_POLLS):
        if door.starter.models:
            break
        await asyncio.sleep(POLL_SECONDS)
    await serving.load("cloud-a", PLATFORM)


async def test_a_model_goes_where_it_may_and_not_where_it_is_cheaper(
    sco: RealSco, door: Door, serving: ServingEstate
) -> None:
    ran, _ = await asyncio.gather(sco(*PLACE, "--wait"), load_when_asked(door, serving))
    assert f"{MODEL} is loaded, " in ran.out
    assert row(ran.out, "pool") == ["pool", "cloud-a", "of", "tenant", "platform"]
    assert "cold, about 40 s" in ran.out
    placement_id = ran.out.split()[1].rstrip(":")

    described = (await sco("describe", "model-placement", placement_id)).out
    assert row(described, "cloud-a")[1] == "chosen"
    assert row(described, "cloud-b")[1:3] == ["boundary", "4.1"]
    assert row(described, "gpu-local")[1] == "memory"
    assert "70 of 160 GB committed" in (await sco("describe", "pool", "cloud-a")).out
    assert row((await sco(*PLACE)).out, "start") == ["start", "warm"]


async def test_what_is_held_can_be_listed_renewed_and_given_back(sco: RealSco) -> None:
    answer = json.loads((await sco(*PLACE, "-o", "json", "--show-credential")).out)
    assert answer["credential"]["token"] == "secret-1-of-cloud-a"
    held = ("get", "model-placements", "--state", "held", "-o", "json")
    assert [one["placementId"] for one in json.loads((await sco(*held)).out)] == [answer["placementId"]]
    assert "held until" in (await sco("models", "renew", answer["placementId"])).out
    for _ in range(2):
        assert "released at" in (await sco("models", "release", answer["placementId"])).out
    assert json.loads((await sco(*held)).out) == []
    ended = await sco("models", "renew", answer["placementId"], code=1)
    assert "what to do: Place the model again." in ended.err


async def test_what_no_pool_may_run_ends_with_5(sco: RealSco) -> None:
    denied = await sco("models", "place", *TASK, "--region", "eu-west", code=5)
    assert "policy_denied" in denied.out
    assert row(denied.out, "2")[1] == "boundary"
    full = await sco("models", "place", *TASK, "--max-price", "1", "--boundary", "shared", code=5)
    assert "no_capacity" in full.err
    assert row(full.out, "2")[1] == "price"


async def test_a_refusal_names_what_is_allowed(sco: RealSco) -> None:
    wrong = ("--deployment", "a b", "--model", MODEL, "--vram-gb", "70")
    assert (
        "deploymentId is a b; allowed is text that matches"
        in (await sco("models", "place", *wrong, code=1)).err
    )
    nobody = "7b0e8a34-0000-4000-8000-000000000001"
    assert "no placement" in (await sco("models", "release", nobody, code=1)).err


async def test_a_tenant_sees_shared_pools_and_its_own_models_alone(
    sco: RealSco, serving: ServingEstate
) -> None:
    await serving.load("cloud-b", PLATFORM, "secret-model", 20)
    placed = await sco("models", "place", *TASK, "--boundary", "shared", tenant=ACME)
    assert "cloud-b of tenant platform" in placed.out
    assert "gpu-local" not in (await sco("get", "pools", tenant=ACME)).out
    assert "no pool 'cloud-b'" in (await sco("describe", "pool", "cloud-b", code=1, tenant=ACME)).err
    told = (await sco("describe", "pool", "cloud-b", "--tenant", PLATFORM, tenant=ACME)).out
    assert row(told, MODEL)[1:4] == ["promised", "70", "-"]
    assert "secret-model" not in told
    assert "secret-model" in (await sco("describe", "pool", "cloud-b")).out
    assert "no placement of a model" in (await sco("get", "model-placements")).err


async def test_pools_are_found_by_what_serves_there(sco: RealSco) -> None:
    listed = json.loads((await sco("get", "pools", "--kind", "cloud_gpu", "--gpu", "a100", "-o", "json")).out)
    assert [one["poolId"] for one in listed] == ["cloud-a", "cloud-b", "gpu-local"]
    assert row((await sco("get", "pools", "--health", "unknown")).out, "cloud-a")[3] == "unknown"
    assert "no pool found" in (await sco("get", "pools", "--health", "degraded")).err
    assert "no pool found" in (await sco("get", "pools", "--stale")).err

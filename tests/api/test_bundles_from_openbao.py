"""Nodes and bundles that a real OpenBao signs: through a rotation, and while it is away."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from activities.node_settings import TransitSettings
from activities.transit_keys import TransitKeys
from lab.secrets import SecretsServer
from tests.api.door import T1, Door, door_on, problem
from tests.api.node_ways import OTHER, launched, node_at, read, registered, token_of
from tests.api.nodes_scene import SERVER
from tests.estates import Estate
from wire.signing import KeyRing


@pytest.fixture
def bao(tmp_path: Path) -> Iterator[SecretsServer]:
    with SecretsServer(tmp_path / "bao") as own:
        own.make_key()
        yield own


class Steady:
    """Every look at the clock is a minute later: nothing is known from before, no failure is a moment ago."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        self.seconds += 60
        return self.seconds


class Wall:
    """The time, which versions in OpenBao bear too, and what a test adds to it."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def keys(bao: SecretsServer, wall: Wall) -> Iterator[TransitKeys]:
    settings = TransitSettings.model_validate(bao.transit_settings())
    own = TransitKeys(settings, now=wall, steady=Steady())
    yield own
    own.close()


@pytest_asyncio.fixture
async def door(estate: Estate, keys: TransitKeys) -> AsyncIterator[Door]:
    async with door_on(estate, signing=keys) as own:
        yield own


def not_issued(door: Door, served: str) -> float:
    return door.registry.get_sample_value("sco_bundles_not_issued_total", {"served": served}) or 0.0


async def test_a_node_follows_a_rotation(
    door: Door, bao: SecretsServer, keys: TransitKeys, wall: Wall
) -> None:
    await launched(door)
    ring = KeyRing((await keys.public()).announced)
    node = await registered(door)
    held = read((await node.bundle()).content, ring)
    bao.rotate_key()
    announced = read((await node.bundle()).content, KeyRing(held.trust.bundle_keys), held.version)
    assert set(announced.trust.bundle_keys) == {"bundles-v1", "bundles-v2"}
    wall.ahead = timedelta(hours=1)
    letter = (await node.bundle()).content
    assert json.loads(letter)["keyId"] == "bundles-v2"
    followed = read(letter, KeyRing(announced.trust.bundle_keys), announced.version)
    bao.limit_key(min_decryption_version=2)
    last = read((await node.bundle()).content, KeyRing(followed.trust.bundle_keys), followed.version)
    assert set(last.trust.bundle_keys) == {"bundles-v2"}


async def test_what_was_issued_is_served_while_openbao_is_away(door: Door, bao: SecretsServer) -> None:
    await launched(door, SERVER, OTHER)
    node = await registered(door)
    held = await node.bundle()
    stranger, token = node_at(door, OTHER), await token_of(door, OTHER)
    older, nothing = not_issued(door, "an_older_one"), not_issued(door, "nothing")
    bao.kill()
    assert (await node.bundle()).content == held.content
    assert (await node.bundle(held=2)).status_code == 304
    assert (await door.put("/contracts/orders-daily", T1 | {"drainBudgetSeconds": 60})).status_code == 200
    assert (await node.bundle()).content == held.content
    assert not_issued(door, "an_older_one") == older + 3
    refused = await stranger.register(token)
    assert "bao" not in problem(refused, 503, "keys_unavailable")["detail"].lower()
    assert refused.headers["retry-after"]
    assert not_issued(door, "nothing") == nothing + 1
    assert await door.estate.value("SELECT count(*) FROM bundles") == 1


async def test_a_token_is_good_until_its_bundle_could_be_signed(door: Door, bao: SecretsServer) -> None:
    await launched(door)
    node, token = node_at(door), await token_of(door)
    bao.pause()
    problem(await node.register(token), 503, "keys_unavailable")
    bao.pause(paused=False)
    assert (await node.register(token)).status_code == 200

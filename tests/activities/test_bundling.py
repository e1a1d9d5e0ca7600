"""Bundles as they are issued: by whoever asks first, signed with the key whose time has come."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from activities.boot_copies import BootCopies
from activities.bundle_keys import FileKeys, KeyEntry, KeysUnavailable, PublicKeys, seal_bundle, signing_now
from activities.bundling import Bundling, NoBundle, Told
from activities.node_settings import NodeFileRefused, read_node_settings
from activities.placement_calls import RegionRequest
from agent.boot import read_boot_copy
from domain.contract import Contract
from store.bundles import find_purpose
from store.nodes import UnknownNode
from tests.activities.deciding import Placer, halls
from tests.api.nodes_scene import NOTICE_KEY, SERVER, KeyFile, node_settings
from tests.estates import PARTITION, REGION, START, TENANT, Estate
from tests.estates import contract as even_contract
from wire.bundle import Bundle, read_bundle
from wire.signing import KeyRing, LetterKind, Opened, unseal

TOLD = Told({NOTICE_KEY.key_id: NOTICE_KEY.public_text}, {REGION: ("nats://bus.example.net:4222",)})
HOUR = timedelta(hours=1)


@pytest.fixture
def keys(tmp_path: Path) -> KeyFile:
    return KeyFile(tmp_path / "bundle-keys.json")


async def launched(estate: Estate) -> None:
    """One instance of the workload `orders`, which the provider has named."""
    await estate.open(halls())
    await estate.workload()
    await estate.claim(4)
    await Placer(estate).decide()
    await estate.rows(
        "UPDATE instances SET server_id = :server, state = 'active'"
        " WHERE slot_key = (SELECT min(slot_key) FROM instances)",
        server=SERVER,
    )


def bundling_on(estate: Estate, keys: KeyFile) -> Bundling:
    return Bundling(estate.engine, FileKeys(keys.path, now=estate.clock), TOLD, now=estate.clock)


async def test_readers_at_once_are_given_one_version(estate: Estate, keys: KeyFile) -> None:
    await launched(estate)
    several = [bundling_on(estate, keys) for _ in range(3)]
    given = await asyncio.gather(*(one.bundle(TENANT, SERVER) for one in several for _ in range(4)))
    assert {one.version for one in given} == {2}
    assert len({one.letter for one in given}) == 1
    assert await estate.value("SELECT count(*) FROM bundles") == 1


async def test_a_contract_that_changes_all_the_time_is_told_in_order(estate: Estate, keys: KeyFile) -> None:
    await launched(estate)
    bundling = bundling_on(estate, keys)
    versions = []
    for seconds in (110, 100, 90):
        await estate.rows("UPDATE contracts SET drain_budget_seconds = :s", s=seconds)
        issued = await bundling.bundle(TENANT, SERVER)
        ring = KeyRing((await FileKeys(keys.path, now=estate.clock).public()).announced)
        read = read_bundle(issued.letter, ring, SERVER)
        assert isinstance(read, Bundle)
        assert read.drain.budget_seconds == seconds
        versions.append(issued.version)
    assert versions == [2, 3, 4]


async def test_an_instance_of_nobody_or_of_another_tenant_has_no_bundle(
    estate: Estate, keys: KeyFile
) -> None:
    await launched(estate)
    for tenant, instance in ((TENANT, "unknown"), ("tenant-b", SERVER)):
        with pytest.raises(UnknownNode):
            await bundling_on(estate, keys).bundle(tenant, instance)


class Broken:
    """Keys that announce one thing and sign another, or nothing."""

    def __init__(self, public: PublicKeys, signature: bytes | None) -> None:
        self._public, self._signature = public, signature

    async def public(self) -> PublicKeys:
        return self._public

    async def sign(self, key_id: str, message: bytes) -> bytes:
        if self._signature is None:
            raise KeysUnavailable("the service is away")
        return self._signature


async def test_what_no_node_would_believe_is_not_issued(estate: Estate, keys: KeyFile) -> None:
    await launched(estate)
    public = await FileKeys(keys.path, now=estate.clock).public()
    wrong = Bundling(estate.engine, Broken(public, bytes(64)), TOLD, now=estate.clock)
    with pytest.raises(RuntimeError, match="would not be believed"):
        await wrong.bundle(TENANT, SERVER)
    away = Bundling(estate.engine, Broken(public, None), TOLD, now=estate.clock)
    with pytest.raises(KeysUnavailable):
        await away.bundle(TENANT, SERVER)
    assert await estate.value("SELECT count(*) FROM bundles") == 0
    assert (await bundling_on(estate, keys).bundle(TENANT, SERVER)).version == 2


async def test_what_cannot_be_said_is_named(estate: Estate, keys: KeyFile) -> None:
    await launched(estate)
    await estate.rows("UPDATE pools SET hall = 'eu.north.h1'")
    with pytest.raises(NoBundle, match="hall"):
        await bundling_on(estate, keys).bundle(TENANT, SERVER)


async def test_a_launch_takes_a_copy_along_that_every_instance_of_its_batch_believes(
    estate: Estate, keys: KeyFile
) -> None:
    await launched(estate)
    request = RegionRequest(tenant_id=TENANT, partition_id=PARTITION, workload_id="orders", region=REGION)
    async with estate.engine.connect() as connection:
        query = sa.text(
            "SELECT i.batch_key, i.pool_id, p.hall FROM instances i JOIN pools p USING (tenant_id, pool_id)"
        )
        slot = (await connection.execute(query)).mappings().first()
        contract: Contract = (await find_purpose(connection, TENANT, SERVER)).contract
    assert slot is not None
    copies = BootCopies(estate.engine, bundling_on(estate, keys), "https://sco.example.net")
    copy = await copies.of(request, slot, contract)
    assert copy is not None
    ring = KeyRing((await FileKeys(keys.path, now=estate.clock).public()).announced)
    for instance in ("server-1", "server-2"):
        read = read_boot_copy(copy.bundle.encode(), ring, instance)
        assert isinstance(read, Bundle)
        assert (read.instance_id, read.version, read.workload_id) == (instance, 1, "orders")
    public = await FileKeys(keys.path, now=estate.clock).public()
    away = Bundling(estate.engine, Broken(public, None), TOLD, now=estate.clock)
    assert (
        await BootCopies(estate.engine, away, "https://sco.example.net").of(request, slot, contract) is None
    )
    estate_is_odd = BootCopies(estate.engine, bundling_on(estate, keys), "https://sco.example.net")
    odd: Any = dict(slot) | {"hall": "eu.north"}
    assert await estate_is_odd.of(request, odd, even_contract()) is None


def test_the_newest_key_whose_time_has_come_signs() -> None:
    first, second, third = KeyEntry("a", START - HOUR), KeyEntry("b", START), KeyEntry("c", START + HOUR)
    assert signing_now([third, first, second], START) == "b"
    assert signing_now([third, first], START) == "a"
    assert signing_now([third], START) == "c"
    assert signing_now([third, second, first], START + HOUR) == "c"


async def test_a_sealed_letter_is_the_one_that_the_private_key_would_seal(keys: KeyFile) -> None:
    held = FileKeys(keys.path, now=lambda: START)
    public = await held.public()
    letter = await seal_bundle({"b": 1, "a": "ü"}, held, public.signs)
    assert unseal(LetterKind.BUNDLE, letter, KeyRing(public.announced)) == Opened("sco-1", {"b": 1, "a": "ü"})
    with pytest.raises(KeysUnavailable, match="no key 'other'"):
        await held.sign("other", b"x")


async def test_a_key_file_is_followed_and_a_wrong_one_left_aside(keys: KeyFile) -> None:
    held = FileKeys(keys.path, now=lambda: START)
    before = await held.public()
    keys.path.write_text("{")
    assert await held.public() == before
    keys.path.unlink()
    assert await held.public() == before
    keys.add("sco-2", START + HOUR)
    assert set((await held.public()).announced) == {"sco-1", "sco-2"}
    seeds = [one["seed"] for one in json.loads(keys.path.read_text())["keys"]]
    assert not any(seed in repr(held) for seed in seeds)


SEED = base64.b64encode(bytes(range(32))).decode()
FROM = "2030-01-01T00:00:00Z"
KEY: Mapping[str, object] = {"name": "k", "seed": SEED, "signs_from": FROM}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"keys": []}',
        json.dumps({"keys": [KEY, KEY]}),
        json.dumps({"keys": [dict(KEY) | {"seed": "AAAA"}]}),
        json.dumps({"keys": [dict(KEY) | {"seed": "not base64!" + SEED}]}),
        json.dumps({"keys": [dict(KEY) | {"signs_from": "2030-01-01T00:00:00"}]}),
        json.dumps({"keys": [dict(KEY) | {"name": ""}]}),
        json.dumps({"keys": [dict(KEY) | {"more": 1}]}),
        json.dumps({"keys": [dict(KEY) | {"name": str(number)} for number in range(9)]}),
    ],
)
def test_a_key_file_that_cannot_be_used_is_refused_without_its_seeds(content: str, tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(content)
    with pytest.raises(NodeFileRefused, match="refused") as caught:
        FileKeys(path, now=lambda: START)
    assert SEED not in str(caught.value)
    with pytest.raises(NodeFileRefused, match="cannot be read"):
        FileKeys(tmp_path / "missing", now=lambda: START)


def told(keys: Path) -> dict[str, Any]:
    settings = node_settings(keys)
    assert settings.bus is not None
    return settings.model_dump(mode="json") | {
        "vendordata_secret": settings.vendordata_secret.get_secret_value(),
        "bus": {
            "account": settings.bus.account,
            "signing_seed": settings.bus.signing_seed.get_secret_value(),
        },
    }


def test_a_node_file_is_read(tmp_path: Path, keys: KeyFile) -> None:
    path = tmp_path / "node.json"
    path.write_text(json.dumps(told(keys.path)))
    settings = read_node_settings(path)
    assert settings == node_settings(keys.path)
    assert (settings.token_minutes, settings.bus_hours) == (15, 12)
    for secret in (told(keys.path)["vendordata_secret"], told(keys.path)["bus"]["signing_seed"]):
        assert secret not in repr(settings)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"api_url": "http://sco.example.net"}, "api_url"),
        ({"api_url": "https://user:pw@sco.example.net"}, "api_url"),
        ({"vendordata_secret": "short"}, "vendordata_secret"),
        ({"vendordata_secret": "ä" * 40}, "vendordata_secret"),
        ({"notice_keys": {}}, "notice_keys"),
        ({"notice_keys": {"k": "AAAA"}}, "notice_keys"),
        ({"node_bus": {"r": ["http://x"]}}, "node_bus"),
        ({"node_bus": {"r": ["nats://u:p@x"]}}, "node_bus"),
        ({"bus": {"account": "X", "signing_seed": "SA"}}, "bus"),
        ({"bus": {"account": "A" * 56, "signing_seed": "SAAA-secret"}}, "bus"),
        ({"token_minutes": 0}, "token_minutes"),
        ({"more": 1}, "more"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_node_file_names_the_field_and_no_value(
    changed: dict[str, Any], field: str, tmp_path: Path, keys: KeyFile
) -> None:
    path = tmp_path / "node.json"
    path.write_text(json.dumps(told(keys.path) | changed))
    with pytest.raises(NodeFileRefused, match=field) as caught:
        read_node_settings(path)
    assert told(keys.path)["vendordata_secret"] not in str(caught.value)
    assert "SAAA-secret" not in str(caught.value)

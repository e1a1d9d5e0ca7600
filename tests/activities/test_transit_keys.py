"""Bundle keys in a real OpenBao: signatures that nodes believe, versions that follow, times without it."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from activities.bundle_key_choice import Announcing, bundle_keys_of
from activities.bundle_keys import FileKeys, KeysUnavailable, seal_bundle
from activities.node_settings import MAX_KEYS, NodeFileRefused, TransitSettings, read_node_settings
from activities.transit_keys import PAUSE_SECONDS, Key, TransitKeys, versions
from lab.secrets import SecretsServer
from tests.api.nodes_scene import KeyFile, node_settings
from wire.signing import KeyRing, LetterKind, Opened, unseal

PAYLOAD = {"b": 1, "a": "ü"}
HOUR = 3600


class Moving:
    """A wall clock and a steady one that move when told."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.seconds)

    def steady(self) -> float:
        return self.seconds

    def move(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
def clock() -> Moving:
    return Moving()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecretsServer]:
    """A server for tests that change nothing in it."""
    with SecretsServer(tmp_path_factory.mktemp("bao")) as own:
        own.make_key()
        yield own


@pytest.fixture
def bao(tmp_path: Path) -> Iterator[SecretsServer]:
    with SecretsServer(tmp_path / "bao") as own:
        yield own


Opens = Callable[..., TransitKeys]


@pytest.fixture
def opened(clock: Moving) -> Iterator[Opens]:
    made: list[TransitKeys] = []

    def open_at(server: SecretsServer, **changes: object) -> TransitKeys:
        settings = TransitSettings.model_validate(server.transit_settings() | changes)
        made.append(TransitKeys(settings, now=clock.now, steady=clock.steady))
        return made[-1]

    yield open_at
    for one in made:
        one.close()


async def test_a_bundle_is_believed_like_one_that_a_file_signed(shared: SecretsServer, opened: Opens) -> None:
    keys = opened(shared)
    public = await keys.public()
    assert (list(public.announced), public.signs) == (["bundles-v1"], "bundles-v1")
    letter = await seal_bundle(PAYLOAD, keys, public.signs)
    ring = KeyRing(public.announced)
    assert unseal(LetterKind.BUNDLE, letter, ring) == Opened("bundles-v1", PAYLOAD)
    forged = letter.replace(b'"b":1', b'"b":2')
    assert not isinstance(unseal(LetterKind.BUNDLE, forged, ring), Opened)
    assert json.loads(letter).keys() == {"kind", "keyId", "payload", "signature"}


async def test_a_new_version_is_announced_an_hour_before_it_signs(
    bao: SecretsServer, opened: Opens, clock: Moving
) -> None:
    bao.make_key()
    keys = opened(bao)
    first = await keys.public()
    bao.rotate_key()
    assert await keys.public() == first, "what was read a moment ago is used again"
    clock.move(16)
    rotated = await keys.public()
    assert (set(rotated.announced), rotated.signs) == ({"bundles-v1", "bundles-v2"}, "bundles-v1")
    clock.move(HOUR)
    followed = await keys.public()
    assert followed == (rotated.announced, "bundles-v2")
    for key_id in followed.announced:
        letter = await seal_bundle(PAYLOAD, keys, key_id)
        assert unseal(LetterKind.BUNDLE, letter, KeyRing(rotated.announced)) == Opened(key_id, PAYLOAD)
    bao.limit_key(min_decryption_version=2)
    clock.move(16)
    assert set((await keys.public()).announced) == {"bundles-v2"}
    with pytest.raises(KeysUnavailable, match="no key 'bundles-v1'"):
        await keys.sign("bundles-v1", b"x")


async def test_a_version_that_may_not_sign_any_more_signs_nothing(
    bao: SecretsServer, opened: Opens, clock: Moving
) -> None:
    bao.make_key()
    bao.rotate_key()
    keys = opened(bao)
    assert (await keys.public()).signs == "bundles-v1"
    bao.limit_key(min_encryption_version=2)
    with pytest.raises(KeysUnavailable):
        await keys.sign("bundles-v1", b"x")
    clock.move(16)
    public = await keys.public()
    assert (set(public.announced), public.signs) == ({"bundles-v1", "bundles-v2"}, "bundles-v2")
    await seal_bundle(PAYLOAD, keys, public.signs)


@pytest.mark.parametrize("least", ["min_decryption_version", "min_available_version"])
def test_a_version_that_is_listed_and_no_longer_believed_is_not_announced(least: str) -> None:
    """Another server of this API may list what it has put away."""
    text = base64.b64encode(bytes(32)).decode()
    one = {"creation_time": "2030-01-01T00:00:00.123456789Z", "public_key": text}
    said = {"type": "ed25519", "derived": False, "keys": {"1": one, "2": one, "10": one}}
    limits = {"min_decryption_version": 1, "min_encryption_version": 0} | {least: 2}
    known = versions(TransitSettings.model_validate(GOOD), Key.model_validate(said | limits))
    assert list(known.public) == ["sco-bundles-v2", "sco-bundles-v10"]


async def test_the_one_that_signs_is_announced_however_many_follow(bao: SecretsServer, opened: Opens) -> None:
    bao.make_key()
    for _ in range(MAX_KEYS + 1):
        bao.rotate_key()
    public = await opened(bao).public()
    assert public.signs == "bundles-v1"
    assert list(public.announced) == ["bundles-v1", *(f"bundles-v{n}" for n in range(4, MAX_KEYS + 3))]


async def test_the_role_may_sign_with_its_key_and_nothing_else(shared: SecretsServer, opened: Opens) -> None:
    other = opened(shared, key="other")
    with pytest.raises(KeysUnavailable, match=r"key transit/other: .*Forbidden"):
        await other.public()
    keys = opened(shared)
    await keys.public()
    for forbidden in (
        lambda client: client.secrets.transit.rotate_key("bundles"),
        lambda client: client.secrets.transit.export_key("bundles", "signing-key"),
        lambda client: client.secrets.transit.list_keys(),
        lambda client: client.secrets.kv.v2.read_secret_metadata("pools/platform/any"),
    ):
        with pytest.raises(Exception, match="Forbidden"):
            await keys._bao.ask(forbidden)


@pytest.mark.parametrize(("kind", "problem"), [(None, "no such key"), ("ecdsa-p256", "type")])
async def test_a_key_of_no_use_is_told(
    bao: SecretsServer, opened: Opens, kind: str | None, problem: str
) -> None:
    if kind is not None:
        bao.make_key(kind=kind)
    with capture_logs() as lines, pytest.raises(KeysUnavailable, match=problem):
        await opened(bao).public()
    assert [line["event"] for line in lines] == ["bundle_keys_away"]


async def test_a_service_that_hangs_is_told_within_two_seconds_and_then_at_once(
    bao: SecretsServer, opened: Opens, clock: Moving
) -> None:
    bao.make_key()
    keys = opened(bao)
    public = await keys.public()
    bao.pause()
    with capture_logs() as lines:
        for asked in (lambda: keys.sign(public.signs, b"x"), keys.public):
            clock.move(60)
            started = time.monotonic()
            answers = await asyncio.gather(*(asked() for _ in range(12)), return_exceptions=True)
            assert time.monotonic() - started < 2
            assert {type(one) for one in answers} == {KeysUnavailable}
        started = time.monotonic()
        with pytest.raises(KeysUnavailable, match="a moment ago"):
            await keys.public()
        assert time.monotonic() - started < 0.5
        bao.pause(paused=False)
        clock.move(PAUSE_SECONDS + 0.1)
        await keys.sign((await keys.public()).signs, b"x")
    told = [(line["event"], line["act"]) for line in lines]
    assert told == [
        ("bundle_keys_away", "sign"),
        ("bundle_keys_away", "read"),
        ("bundle_keys_back", "read"),
        ("bundle_keys_back", "sign"),
    ]


async def test_nothing_secret_is_in_logs_reprs_or_errors(bao: SecretsServer, opened: Opens) -> None:
    bao.make_key()
    keys = opened(bao)
    with capture_logs() as lines:
        await keys.public()
        token = keys._bao.client().token
        bao.kill()
        with pytest.raises(KeysUnavailable) as told:
            await keys.sign("bundles-v1", b"x")
    shown = f"{lines} {told.value!r} {keys!r} {keys._settings!r} {keys._bao!r}"
    for hidden in (bao.transit_settings()["secret_id"], token):
        assert hidden not in shown


async def test_answers_that_make_no_sense_are_no_signatures(
    shared: SecretsServer, opened: Opens, clock: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = base64.b64encode(bytes(64)).decode()
    keys = opened(shared)
    await keys.public()
    for answer in (f"vault:v1:{good}", f"vault:v2:{good}", "vault:v1:&", good, "", None):
        clock.move(PAUSE_SECONDS + 1)
        monkeypatch.setattr(keys, "_sign", lambda *_, answer=answer: answer)
        with pytest.raises(KeysUnavailable, match="of no use"):
            await keys.sign("bundles-v1", b"x")


async def test_keys_of_two_places_are_announced_while_one_follows_the_other(
    shared: SecretsServer, tmp_path: Path, clock: Moving
) -> None:
    """From a file to OpenBao: nodes hold both before the first bundle of the other place comes."""
    file = KeyFile(tmp_path / "keys.json")
    transit = shared.transit_settings()
    by_transit = bundle_keys_of(
        node_settings(file.path, bundle_keys_file=None, bundle_keys_transit=transit), now=clock.now
    )
    public = await by_transit.public()
    by_file = bundle_keys_of(
        node_settings(file.path, bundle_keys_announced=dict(public.announced)), now=clock.now
    )
    before = await by_file.public()
    assert (set(before.announced), before.signs) == ({"sco-1", "bundles-v1"}, "sco-1")
    letter = await seal_bundle(PAYLOAD, by_transit, public.signs)
    assert unseal(LetterKind.BUNDLE, letter, KeyRing(before.announced)) == Opened("bundles-v1", PAYLOAD)
    letter = await seal_bundle(PAYLOAD, by_file, before.signs)
    assert isinstance(unseal(LetterKind.BUNDLE, letter, KeyRing(before.announced)), Opened)
    many = {f"other-{number}": public.announced["bundles-v1"] for number in range(MAX_KEYS)}
    crowded = await Announcing(FileKeys(file.path, now=clock.now), many).public()
    assert len(crowded.announced) == MAX_KEYS
    assert "sco-1" in crowded.announced


GOOD: dict[str, Any] = {
    "url": "https://bao.example.net:8200",
    "token_file": "/run/sco/bao-token",
    "key": "sco-bundles",
}


def test_the_node_file_names_one_place_of_keys(tmp_path: Path) -> None:
    told = {
        "api_url": "https://sco.example.net",
        "vendordata_secret": "s" * 40,
        "notice_keys": {"n": base64.b64encode(bytes(32)).decode()},
    }
    path = tmp_path / "node.json"
    path.write_text(json.dumps(told | {"bundle_keys_transit": GOOD}))
    transit = read_node_settings(path).bundle_keys_transit
    assert transit is not None
    assert (transit.mount, transit.lead_seconds) == ("transit", HOUR)
    for wrong in ({}, {"bundle_keys_transit": GOOD, "bundle_keys_file": "/etc/sco/keys.json"}):
        path.write_text(json.dumps(told | wrong))
        with pytest.raises(NodeFileRefused, match="either bundle_keys_file or bundle_keys_transit"):
            read_node_settings(path)
    path.write_text(json.dumps(told | {"bundle_keys_transit": GOOD, "bundle_keys_announced": {"k": "AAAA"}}))
    with pytest.raises(NodeFileRefused, match="bundle_keys_announced"):
        read_node_settings(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"url": "http://bao.example.net"},
        {"token_file": None},
        {"role_id": "r", "secret_id": "v3ry-secret"},
        {"key": "../other"},
        {"mount": "a b"},
        {"lead_seconds": 10},
        {"answer_seconds": 5},
        {"colour": "red"},
    ],
)
def test_wrong_settings_are_refused_without_their_secrets(changes: dict[str, object]) -> None:
    TransitSettings.model_validate(GOOD)
    with pytest.raises(ValidationError) as told:
        TransitSettings.model_validate(GOOD | changes)
    assert "v3ry-secret" not in str(told.value)

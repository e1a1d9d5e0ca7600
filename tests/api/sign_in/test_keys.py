"""The issuer's keys: fetched when they are needed, kept, and never asked for more than allowed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from api.sign_in.discovery import IssuerProblem
from api.sign_in.keys import (
    EMPTY_SECONDS,
    MAX_KEYS,
    OLD_SECONDS,
    REFRESH_SECONDS,
    UNKNOWN_SECONDS,
    FixedKeys,
    IssuerKeys,
    KeyRing,
    KeysUnavailable,
    read_keys,
)
from tests.api.sign_in.minting import ISSUER, key_set, signing_keys


class FakeIssuer:
    """An issuer whose keys are `kids`, that counts how often it was asked, on a clock of its own."""

    def __init__(self, *kids: str) -> None:
        self.kids = kids
        self.asked = 0
        self.away = False
        self.now = 1000.0
        self.answering = asyncio.Event()
        self.answering.set()
        self.keys = IssuerKeys(ISSUER, fetch=self.fetch, monotonic=lambda: self.now)

    async def fetch(self, issuer: str) -> KeyRing:
        assert issuer == ISSUER
        self.asked += 1
        await self.answering.wait()
        if self.away:
            raise IssuerProblem("it is away")
        return read_keys(key_set(*self.kids))

    async def knows(self, kid: str) -> bool:
        return bool(await self.keys.named(kid))


async def settled() -> None:
    """Let tasks that were begun beside a request end."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_keys_are_fetched_once_for_many_tokens() -> None:
    issuer = FakeIssuer("rsa-1", "ec-1")
    for _ in range(100):
        assert await issuer.knows("rsa-1")
        assert await issuer.knows("ec-1")
    assert issuer.asked == 1


async def test_a_key_that_is_new_is_found_and_one_that_is_made_up_is_not() -> None:
    issuer = FakeIssuer("rsa-1")
    assert await issuer.knows("rsa-1")
    issuer.kids = ("rsa-1", "rsa-2")
    issuer.now += UNKNOWN_SECONDS
    assert await issuer.knows("rsa-2")
    assert not await issuer.knows("made-up")
    assert issuer.asked == 2


async def test_made_up_keys_do_not_hammer_the_issuer() -> None:
    issuer = FakeIssuer("rsa-1")
    began = issuer.now
    for number in range(1000):
        assert not await issuer.knows(f"made-up-{number}")
        issuer.now += 0.25
    assert issuer.asked <= 1 + (issuer.now - began) / UNKNOWN_SECONDS


async def test_made_up_keys_do_not_hammer_an_issuer_that_is_away() -> None:
    issuer = FakeIssuer("rsa-1")
    assert await issuer.knows("rsa-1")
    issuer.away = True
    issuer.now += UNKNOWN_SECONDS
    for number in range(100):
        assert not await issuer.knows(f"made-up-{number}")
    assert issuer.asked == 2
    assert await issuer.knows("rsa-1")


async def test_all_who_wait_share_one_fetch() -> None:
    issuer = FakeIssuer("rsa-1")
    issuer.answering.clear()
    waiting = [asyncio.create_task(issuer.knows(kid)) for kid in ("rsa-1", "made-up") for _ in range(50)]
    await settled()
    issuer.answering.set()
    found = await asyncio.gather(*waiting)
    assert found == [True] * 50 + [False] * 50
    assert issuer.asked == 1


async def test_a_caller_that_leaves_takes_nothing_from_the_others() -> None:
    issuer = FakeIssuer("rsa-1")
    issuer.answering.clear()
    first = asyncio.create_task(issuer.knows("rsa-1"))
    await settled()
    second = asyncio.create_task(issuer.knows("rsa-1"))
    await settled()
    first.cancel()
    issuer.answering.set()
    assert await second
    assert issuer.asked == 1


async def test_keys_are_read_again_beside_a_request_and_old_ones_before_it() -> None:
    issuer = FakeIssuer("rsa-1")
    assert await issuer.knows("rsa-1")
    issuer.kids = ("rsa-2",)
    issuer.now += REFRESH_SECONDS
    assert await issuer.knows("rsa-1")
    await settled()
    assert issuer.asked == 2
    assert not await issuer.knows("rsa-1")
    issuer.kids = ("ec-1",)
    issuer.now += OLD_SECONDS
    assert not await issuer.knows("rsa-2")
    assert issuer.asked == 3


async def test_the_last_good_keys_outlive_an_issuer_that_is_away() -> None:
    issuer = FakeIssuer("rsa-1")
    assert await issuer.knows("rsa-1")
    issuer.away = True
    with capture_logs() as lines:
        for _ in range(200):
            issuer.now += OLD_SECONDS
            assert await issuer.knows("rsa-1")
    assert {line["event"] for line in lines} == {"issuer_keys_not_read"}
    issuer.away, issuer.kids = False, ("rsa-2",)
    issuer.now += OLD_SECONDS
    assert not await issuer.knows("rsa-1")


async def test_without_any_key_it_says_so_and_tries_again_soon() -> None:
    issuer = FakeIssuer("rsa-1")
    issuer.away = True
    for _ in range(50):
        with pytest.raises(KeysUnavailable):
            await issuer.knows("rsa-1")
    assert issuer.asked == 1
    issuer.away = False
    issuer.now += EMPTY_SECONDS
    assert await issuer.knows("rsa-1")


def listed(**changed: Any) -> dict[str, Any]:
    return signing_keys()["rsa-1"].as_dict(private=False, kid="k", use="sig") | changed


@pytest.mark.parametrize(
    "key",
    [
        {"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0", "kid": "k"},
        listed(use="enc"),
        listed(kid=None),
        listed(kid=7),
        listed(alg=["RS256"]),
        listed(n="AQAB"),
        listed(n=7),
        listed(n="!" * 400),
        listed(e="AQ"),
        listed(kty="EC"),
        {"kty": "EC", "crv": "P-521", "x": "AA", "y": "AA", "kid": "k"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "k"},
        {"kty": "OKP", "crv": "X25519", "x": "AA", "kid": "k"},
        {"kty": "AKP", "alg": "ML-DSA-44", "pub": "AA", "kid": "k"},
        signing_keys()["rsa-1"].as_dict(private=True, kid="k"),
        {},
        "key",
        None,
    ],
)
def test_a_key_that_may_not_verify_is_left_out(key: object) -> None:
    good = signing_keys()["ec-1"].as_dict(private=False, kid="good")
    assert set(read_keys({"keys": [key, good]})) == {"good"}
    with pytest.raises(IssuerProblem):
        read_keys({"keys": [key]})


@pytest.mark.parametrize("document", [None, [], {}, {"keys": None}, {"keys": {}}, {"keys": []}, "keys", 7])
def test_what_is_no_key_set_is_a_problem(document: object) -> None:
    with pytest.raises(IssuerProblem):
        read_keys(document)


def test_only_so_many_keys_are_read() -> None:
    many = [signing_keys()["ec-1"].as_dict(private=False, kid=f"k{number}") for number in range(500)]
    assert len(read_keys({"keys": many})) == MAX_KEYS


async def test_a_token_may_leave_out_the_name_of_an_only_key() -> None:
    assert [one.key.key_type for one in await FakeIssuer("rsa-1").keys.named(None)] == ["RSA"]
    assert await FakeIssuer("rsa-1", "ec-1").keys.named(None) == ()
    alone = FixedKeys({"keys": [listed()]})
    assert [one.key.key_type for one in await alone.named(None)] == ["RSA"]
    assert await alone.named("other") == ()
    both = FixedKeys({"keys": [listed(), listed(kid="k2")]})
    assert await both.named(None) == ()


def test_two_keys_may_have_one_name() -> None:
    both = [signing_keys()[kid].as_dict(private=False, kid="same") for kid in ("rsa-1", "ec-1")]
    assert [one.key.key_type for one in read_keys({"keys": both})["same"]] == ["RSA", "EC"]

"""A token that was verified once is asked for everything else each time that it comes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from api.sign_in import tokens
from api.sign_in.keys import FixedKeys, PublicKey
from api.sign_in.refusal import Reason, TokenRefused
from api.sign_in.tokens import TokenVerifier
from tests.api.sign_in.minting import TRUST, claims, header, key_set, mint, signing_keys
from tests.estates import Clock


class ChangingKeys:
    """Keys of an issuer that withdraws and replaces them."""

    def __init__(self) -> None:
        self.now: FixedKeys = FixedKeys(key_set())

    async def named(self, kid: str | None) -> tuple[PublicKey, ...]:
        return await self.now.named(kid)


async def refusal(verifier: TokenVerifier, token: str) -> Reason:
    with pytest.raises(TokenRefused) as caught:
        await verifier.verify(token)
    return caught.value.reason


async def test_a_token_that_was_good_ends_with_its_time() -> None:
    clock = Clock()
    verifier = TokenVerifier(TRUST, ChangingKeys(), clock)
    token = mint(claims(clock()))
    assert (await verifier.verify(token)).subject == "ada"
    clock.move(timedelta(hours=2).total_seconds())
    assert await refusal(verifier, token) is Reason.EXPIRED


async def test_a_key_that_is_withdrawn_or_replaced_proves_nothing_any_more() -> None:
    clock, keys = Clock(), ChangingKeys()
    verifier = TokenVerifier(TRUST, keys, clock)
    token = mint(claims(clock()))
    await verifier.verify(token)
    keys.now = FixedKeys(key_set("ed-1"))
    assert await refusal(verifier, token) is Reason.UNKNOWN_KEY
    other: dict[str, Any] = signing_keys()["rsa-2"].as_dict(private=False, kid="rsa-1", use="sig")
    keys.now = FixedKeys({"keys": [other]})
    assert await refusal(verifier, token) is Reason.SIGNATURE
    keys.now = FixedKeys(key_set())
    assert (await verifier.verify(token)).subject == "ada"


async def test_one_changed_character_is_another_token() -> None:
    clock = Clock()
    verifier = TokenVerifier(TRUST, ChangingKeys(), clock)
    token = mint(claims(clock()), header("EdDSA"))
    await verifier.verify(token)
    forged = mint(claims(clock(), sub="eve"), header("EdDSA")).rpartition(".")[0]
    assert await refusal(verifier, f"{forged}.{token.rpartition('.')[2]}") is Reason.SIGNATURE


async def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MAX_PROVEN", 2)
    clock = Clock()
    verifier = TokenVerifier(TRUST, ChangingKeys(), clock)
    everybody = [mint(claims(clock(), sub=name), header("EdDSA")) for name in ("ada", "bo", "cy", "di")]
    for _ in range(2):
        told = [(await verifier.verify(token)).subject for token in everybody]
        assert told == ["ada", "bo", "cy", "di"]
    assert len(verifier._proven._known) == 2

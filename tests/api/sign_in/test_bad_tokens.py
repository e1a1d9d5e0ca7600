"""Bad tokens are refused with one answer that tells nothing, and good ones are let in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from joserfc.jwk import RSAKey
from structlog.testing import capture_logs

from api.sign_in.refusal import TokenRefused
from tests.api.sign_in.bare import PATH, Bare, bare
from tests.api.sign_in.forged import FORGED
from tests.api.sign_in.minting import AUDIENCE, KIDS, claims, header, mint, verifier
from tests.estates import Clock

SAME = {"X-Request-Id": "the-same"}
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.=+/ "


@pytest_asyncio.fixture(scope="module")
async def service() -> AsyncIterator[Bare]:
    async with bare(Clock()) as own:
        yield own


@pytest.fixture
def client(service: Bare) -> httpx2.AsyncClient:
    return service.http


async def asked(client: httpx2.AsyncClient, authorization: str | bytes) -> httpx2.Response:
    sent = authorization.encode("latin-1") if isinstance(authorization, str) else authorization
    headers = [(b"authorization", sent), *((name.encode(), value.encode()) for name, value in SAME.items())]
    return await client.get(PATH, headers=headers)


def test_there_are_enough_of_them() -> None:
    assert len(FORGED) >= 60


@pytest.mark.parametrize("name", FORGED)
async def test_a_bad_token_is_refused_with_the_one_answer(service: Bare, name: str) -> None:
    forge, reason = FORGED[name]
    token = forge(Clock()())
    expected = await asked(service.http, "Bearer of.bad.news")
    before = service.counted(reason)
    with capture_logs() as lines:
        answer = await asked(service.http, f"Bearer {token}")
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer error="invalid_token"')
    assert answer.content == expected.content
    assert answer.headers == expected.headers
    assert service.counted(reason) == before + 1
    told = [line for line in lines if line["event"] == "sign_in_refused"]
    assert told == [
        {"event": "sign_in_refused", "reason": reason.value, "request_id": "the-same", "log_level": "info"}
    ]


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer ",
        "Basic YWRhOmFkYQ==",
        "Token GOOD",
        "GOOD",
        "Bearer GOOD GOOD",
        "Bearer: GOOD",
        "Bearer\tGOOD",
        "Bearer GOOD, Bearer GOOD",
        b"Bearer \xff\xfe",
        'Bearer token="GOOD"',
    ],
)
async def test_no_other_form_of_the_header_will_do(
    client: httpx2.AsyncClient, authorization: str | bytes
) -> None:
    good = mint(claims(Clock()()))
    sent = authorization.replace("GOOD", good) if isinstance(authorization, str) else authorization
    answer = await asked(client, sent)
    expected = await asked(client, "Bearer of.bad.news")
    assert (answer.status_code, answer.content) == (401, expected.content)


async def test_two_headers_are_refused_even_where_one_is_good(client: httpx2.AsyncClient) -> None:
    good = f"Bearer {mint(claims(Clock()()))}".encode()
    for second in (good, b"Bearer x", b"Basic eA=="):
        answer = await client.get(PATH, headers=[(b"authorization", good), (b"authorization", second)])
        assert answer.status_code == 401


async def test_a_token_elsewhere_is_no_token(client: httpx2.AsyncClient) -> None:
    good = mint(claims(Clock()()))
    answer = await client.get(PATH, params={"access_token": good}, headers={"X-Access-Token": good})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["reason"] == "not_signed_in"


async def test_nothing_of_a_token_is_logged(client: httpx2.AsyncClient) -> None:
    token = mint(claims(Clock()(), sub="SECRET-SUBJECT"), header(kid="SECRET-KID"), RSAKey.generate_key(2048))
    with capture_logs() as lines:
        await asked(client, f"Bearer {token}")
    text = repr(lines)
    assert lines
    for part in (*token.split("."), "SECRET"):
        assert part not in text


@pytest.mark.parametrize("algorithm", KIDS)
async def test_each_allowed_algorithm_is_let_in(client: httpx2.AsyncClient, algorithm: str) -> None:
    token = mint(claims(Clock()()), header(algorithm))
    assert (await asked(client, f"Bearer {token}")).status_code == 200


@pytest.mark.parametrize(
    ("changed", "head"),
    [
        ({"aud": ["other", AUDIENCE]}, {}),
        ({"scope": None, "scp": ["factory.compute.read"]}, {}),
        ({"scope": "openid factory.compute.read something:else"}, {}),
        ({"roles": ["Observer", "SomethingElse"]}, {}),
        ({"sub": "Zoë of the north"}, {}),
        ({"extra": {"deep": [1, 2, {"three": None}]}}, {}),
        ({}, {"typ": None}),
        ({}, {"typ": "JWT"}),
        ({}, {"typ": "application/at+jwt"}),
        ({}, {"typ": "AT+JWT"}),
        ({}, {"x5t": "thumbprint"}),
        ({}, {"nonce": "of the issuer's own"}),
    ],
)
async def test_what_real_issuers_send_is_let_in(
    client: httpx2.AsyncClient, changed: dict[str, Any], head: dict[str, Any]
) -> None:
    token = mint(claims(Clock()(), **changed), header(**head))
    assert (await asked(client, f"Bearer {token}")).status_code == 200
    assert (await asked(client, f"bearer   {token}")).status_code == 200


@pytest.mark.parametrize("seconds", [("exp", -59.9), ("nbf", 60), ("iat", 60), ("nbf", -1000)])
async def test_a_clock_may_differ_by_a_minute(client: httpx2.AsyncClient, seconds: tuple[str, float]) -> None:
    name, value = seconds
    now = Clock()()
    token = mint(claims(now, **{name: (now + timedelta(seconds=value)).timestamp()}))
    assert (await asked(client, f"Bearer {token}")).status_code == 200


async def test_a_token_says_who_its_bearer_is() -> None:
    clock = Clock()
    said = claims(
        clock(), sub="omar", tenant_id="tenant-a", scope="x factory.compute.read", roles=["Operator", "y"]
    )
    principal = await verifier(clock).verify(mint(said))
    assert (principal.subject, principal.tenant_id) == ("omar", "tenant-a")
    assert (set(principal.scopes), set(principal.roles)) == ({"factory.compute.read"}, {"Operator"})
    assert principal.expires_at == clock() + timedelta(hours=1)


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(place=st.integers(0, 10_000), letter=st.sampled_from(ALPHABET), kind=st.sampled_from("rid"))
async def test_no_changed_token_is_let_in(place: int, letter: str, kind: str) -> None:
    """One letter of a good token replaced, inserted or deleted."""
    clock = Clock()
    token = GOOD
    at = place % len(token)
    changed = {
        "r": token[:at] + letter + token[at + 1 :],
        "i": token[:at] + letter + token[at:],
        "d": token[:at] + token[at + 1 :],
    }[kind]
    if changed == token:
        return
    with pytest.raises(TokenRefused):
        await verifier(clock).verify(changed)


GOOD = mint(claims(Clock()()), header("ES256"))


@settings(max_examples=300, deadline=None)
@given(text=st.one_of(st.text(max_size=200), st.text(alphabet=ALPHABET, max_size=400)))
async def test_no_text_at_all_breaks_the_verifier(text: str) -> None:
    with pytest.raises(TokenRefused):
        await verifier(Clock()).verify(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(
    changed=st.dictionaries(
        st.sampled_from(["iss", "sub", "aud", "exp", "iat", "nbf", "tenant_id", "scope", "scp", "roles"]),
        json_values,
        min_size=1,
        max_size=4,
    )
)
async def test_whatever_an_issuer_signs_is_a_principal_or_a_refusal(changed: dict[str, Any]) -> None:
    clock = Clock()
    try:
        principal = await verifier(clock).verify(mint(claims(clock()) | changed, header("EdDSA")))
    except TokenRefused:
        return
    assert principal.subject
    assert principal.tenant_id == (changed.get("tenant_id") or "platform")
    assert principal.expires_at > clock() - timedelta(seconds=60)

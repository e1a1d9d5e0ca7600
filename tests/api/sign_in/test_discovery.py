"""What an issuer may answer, over real sockets: never a redirect, a flood, another issuer or plain text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from api.sign_in import discovery
from api.sign_in.addresses import problem_of_address
from api.sign_in.discovery import MAX_BYTES, Discovery, IssuerProblem, client_for, read_provider
from api.sign_in.keys import fetch_keys
from tests.api.serving import served
from tests.api.sign_in.minting import key_set


class FakeIssuer:
    """Answers as a test says; counts how often it was asked for its discovery document."""

    def __init__(self) -> None:
        self.url = ""
        self.said: dict[str, Any] = {}
        self.discovery: Response | None = None
        self.keys: Response | None = None
        self.asked = 0
        self.app = Starlette(
            routes=[Route(discovery.WELL_KNOWN, self._discovery), Route("/jwks", self._keys)]
        )

    async def _discovery(self, _: Request) -> Response:
        self.asked += 1
        said = {"issuer": self.url, "jwks_uri": f"{self.url}/jwks"} | self.said
        return self.discovery or as_json(said)

    async def _keys(self, _: Request) -> Response:
        return self.keys or as_json(key_set("rsa-1"))


def as_json(document: object) -> Response:
    return Response(json.dumps(document), media_type="application/json")


@pytest_asyncio.fixture
async def issuer() -> AsyncIterator[FakeIssuer]:
    fake = FakeIssuer()
    async with served(fake.app) as address:
        fake.url = address
        yield fake


async def test_keys_are_found_through_the_discovery_document(issuer: FakeIssuer) -> None:
    assert set(await fetch_keys(issuer.url)) == {"rsa-1"}


@pytest.mark.parametrize(
    "said",
    [
        {"issuer": "https://evil.example"},
        {"issuer": None},
        {"jwks_uri": None},
        {"jwks_uri": 7},
        {"jwks_uri": "http://192.0.2.7/jwks"},
        {"jwks_uri": "file:///etc/passwd"},
        {"jwks_uri": "https://user:password@issuer.example/jwks"},
        {"jwks_uri": "jwks"},
        {"jwks_uri": "http://[::1"},
        {"token_endpoint": "http://issuer.example/token"},
        {"authorization_endpoint": "javascript:alert(1)"},
    ],
)
async def test_a_discovery_document_that_leads_elsewhere_is_refused(
    issuer: FakeIssuer, said: dict[str, Any]
) -> None:
    issuer.said = said
    with pytest.raises(IssuerProblem):
        await fetch_keys(issuer.url)


async def test_an_issuer_with_a_slash_is_another_issuer(issuer: FakeIssuer) -> None:
    with pytest.raises(IssuerProblem, match="another issuer"):
        await fetch_keys(f"{issuer.url}/")
    issuer.said = {"issuer": f"{issuer.url}/"}
    assert await fetch_keys(f"{issuer.url}/")


async def endless() -> AsyncIterator[bytes]:
    for _ in range(1000):
        yield b" " * 65_536


@pytest.mark.parametrize(
    "answer",
    [
        Response(status_code=500),
        Response(status_code=204),
        Response("<html>", media_type="text/html"),
        Response(b"[" * 100_000),
        Response(b"\xff"),
        as_json(["no", "object"]),
        RedirectResponse("/jwks"),
    ],
)
async def test_answers_that_are_no_document_are_refused(issuer: FakeIssuer, answer: Response) -> None:
    issuer.keys = answer
    with pytest.raises(IssuerProblem):
        await fetch_keys(issuer.url)
    issuer.keys, issuer.discovery = None, answer
    with pytest.raises(IssuerProblem):
        await fetch_keys(issuer.url)


async def test_an_answer_without_end_is_given_up(issuer: FakeIssuer) -> None:
    issuer.keys = StreamingResponse(endless())
    with pytest.raises(IssuerProblem, match=f"{MAX_BYTES:,}"):
        await fetch_keys(issuer.url)


async def test_nobody_there_is_a_problem_and_no_traceback() -> None:
    with pytest.raises(IssuerProblem, match="no answer"):
        await fetch_keys("http://127.0.0.1:1")


async def test_an_issuer_over_https_may_not_lead_to_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    async def document(*_: object) -> Any:
        return {"issuer": "https://issuer.example", "jwks_uri": "http://127.0.0.1/jwks"}

    monkeypatch.setattr(discovery, "read_document", document)
    async with client_for("https://issuer.example") as http:
        with pytest.raises(IssuerProblem, match="plain text"):
            await read_provider(http, "https://issuer.example")


async def test_endpoints_are_kept_and_asked_for_once_at_a_time(issuer: FakeIssuer) -> None:
    now = [0.0]
    known = Discovery(issuer.url, monotonic=lambda: now[0])
    found = await asyncio.gather(*(known.provider() for _ in range(20)))
    assert {one.jwks_uri for one in found} == {f"{issuer.url}/jwks"}
    assert issuer.asked == 1
    now[0] += discovery.KEEP_SECONDS
    issuer.discovery = Response(status_code=500)
    assert (await known.provider()).issuer == issuer.url
    assert issuer.asked == 2


async def test_an_issuer_that_is_away_is_asked_again_after_a_while(issuer: FakeIssuer) -> None:
    now = [0.0]
    known = Discovery(issuer.url, monotonic=lambda: now[0])
    issuer.discovery = Response(status_code=500)
    for _ in range(20):
        with pytest.raises(IssuerProblem):
            await known.provider()
    assert issuer.asked == 1
    issuer.discovery = None
    now[0] += discovery.AGAIN_SECONDS
    assert (await known.provider()).issuer == issuer.url


@pytest.mark.parametrize(
    ("url", "good"),
    [
        ("https://issuer.example", True),
        ("https://issuer.example:8443/realms/x", True),
        ("http://127.0.0.1:9000", True),
        ("http://[::1]:9000/x", True),
        ("http://localhost:9000", True),
        ("http://issuer.example", False),
        ("http://127.0.0.1.nip.io", False),
        ("http://localhost.evil.example", False),
        ("ftp://127.0.0.1", False),
        ("https://", False),
        ("https://user@issuer.example", False),
        ("https://issuer.example:99999", False),
        ("https://[::1", False),
        ("issuer.example", False),
        ("", False),
    ],
)
def test_issuers_are_asked_over_tls_or_on_loopback(url: str, good: bool) -> None:
    assert (problem_of_address(url) is None) is good

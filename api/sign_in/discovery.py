"""What an issuer says of itself: its endpoints, from the discovery document (OpenID Connect Discovery)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import httpx2
from pydantic import BaseModel, ConfigDict, ValidationError

from api.sign_in.addresses import is_plain, problem_of_address

WELL_KNOWN = "/.well-known/openid-configuration"
MAX_BYTES = 256 * 1024
TIMEOUT_SECONDS = 5.0
KEEP_SECONDS = 600.0
AGAIN_SECONDS = 5.0


class IssuerProblem(Exception):
    """The issuer cannot be reached, or what it says cannot be used."""


class IssuerRefused(IssuerProblem):
    """The issuer answered that it will not do what it was asked."""


class Provider(BaseModel):
    """The endpoints of an issuer; the two of the code flow where people sign in with it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    issuer: str
    jwks_uri: str
    authorization_endpoint: str | None = None
    token_endpoint: str | None = None


def client_for(issuer: str) -> httpx2.AsyncClient:
    """A client that follows nobody elsewhere. A proxy cannot reach this machine's own loopback."""
    return httpx2.AsyncClient(
        timeout=TIMEOUT_SECONDS,
        follow_redirects=False,
        trust_env=not is_plain(issuer),
        headers={"Accept": "application/json", "Accept-Encoding": "identity"},
    )


async def read_provider(http: httpx2.AsyncClient, issuer: str) -> Provider:
    """The discovery document of an issuer, which must name itself as it was asked."""
    document = await read_document(http, issuer.rstrip("/") + WELL_KNOWN)
    try:
        provider = Provider.model_validate(document)
    except ValidationError as error:
        raise IssuerProblem(f"its discovery document lacks {error.errors()[0]['loc']}") from None
    if provider.issuer != issuer:
        raise IssuerProblem("its discovery document names another issuer")
    for url in (provider.jwks_uri, provider.authorization_endpoint, provider.token_endpoint):
        if url is not None:
            _require_trusted(url, issuer)
    return provider


class Discovery:
    """The endpoints of one issuer, kept for ten minutes. Whoever asks, it is asked once in a while only."""

    def __init__(self, issuer: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.issuer = issuer
        self._monotonic = monotonic
        self._one_at_a_time = asyncio.Lock()
        self._provider: Provider | None = None
        self._next = 0.0

    async def provider(self) -> Provider:
        """The newest that is known; raises `IssuerProblem` where nothing is."""
        async with self._one_at_a_time:
            if self._monotonic() >= self._next:
                self._next = self._monotonic() + AGAIN_SECONDS
                await self._read()
        if self._provider is None:
            raise IssuerProblem("it could not be reached a moment ago")
        return self._provider

    async def _read(self) -> None:
        try:
            async with client_for(self.issuer) as http:
                self._provider = await read_provider(http, self.issuer)
            self._next = self._monotonic() + KEEP_SECONDS
        except IssuerProblem:
            if self._provider is None:
                raise


async def read_document(http: httpx2.AsyncClient, url: str) -> Any:
    """The JSON of a good answer of limited size; anything else is an `IssuerProblem`."""
    return parsed(await _answer(http, http.build_request("GET", url)))


async def post_form(
    http: httpx2.AsyncClient, url: str, form: dict[str, str], auth: httpx2.Auth | None
) -> Any:
    """The JSON that a form is answered with."""
    return parsed(await _answer(http, http.build_request("POST", url, data=form), auth))


async def _answer(
    http: httpx2.AsyncClient, request: httpx2.Request, auth: httpx2.Auth | None = None
) -> bytes:
    """The body of a good answer, of limited size."""
    content = bytearray()
    try:
        response = await http.send(request, auth=auth, stream=True)
        try:
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > MAX_BYTES:
                    raise IssuerProblem(f"its answer is longer than {MAX_BYTES:,} bytes")
        finally:
            await response.aclose()
    except httpx2.HTTPError as error:
        raise IssuerProblem(f"no answer: {type(error).__name__}") from None
    if response.is_client_error:
        raise IssuerRefused(f"it answered {response.status_code}")
    if response.status_code != httpx2.codes.OK:
        raise IssuerProblem(f"it answered {response.status_code}")
    return bytes(content)


def parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise IssuerProblem("its answer is not JSON") from None


def _require_trusted(url: str, issuer: str) -> None:
    problem = problem_of_address(url)
    if problem is None and is_plain(url) and not is_plain(issuer):
        problem = "it would be asked in plain text"
    if problem is not None:
        raise IssuerProblem(f"an endpoint in its discovery document is refused: {problem}")

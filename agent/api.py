"""The control plane's API as a node asks it: signed, bounded, and never needed for a drain."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agent.bounded import bounded
from agent.clock import Clock, ProviderClock
from wire.node_requests import Asked, sign_request

if TYPE_CHECKING:
    import httpx2

LIMIT_SECONDS = 8.0
MAX_BYTES = 256 * 1024
MAX_URL = 500
OK, NOT_MODIFIED, REFUSED = 200, 304, 401
JSON = {"Content-Type": "application/json"}


class ApiError(OSError):
    """The API did not answer usably. `status` is its answer, 0 where there was none."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Answer(NamedTuple):
    status: int
    body: bytes


class Signer(NamedTuple):
    """Who signs: an instance, with the key on its disk."""

    instance_id: str
    key: Ed25519PrivateKey


def is_api_url(text: object) -> bool:
    """Whether nodes may send requests there: an http or https address without a password in it."""
    if not isinstance(text, str) or len(text) > MAX_URL or not text.isascii() or not text.isprintable():
        return False
    try:
        parts = urlsplit(text)
        port_is_good = parts.port is None or parts.port > 0
    except ValueError:
        return False
    plain = "@" not in parts.netloc and not parts.query and not parts.fragment and " " not in text
    return parts.scheme in ("http", "https") and bool(parts.hostname) and plain and port_is_good


class Api:
    """Asks one API. A wrong clock of the node is set right by the date of the answers."""

    def __init__(self, clock: Clock, provider: ProviderClock) -> None:
        self._clock, self._provider = clock, provider
        self._told = ProviderClock(clock)
        self._client: httpx2.AsyncClient | None = None

    def now(self) -> datetime:
        """The time as the API has it, else as the provider has it, else as the node takes it to be."""
        return self._told.now() or self._provider.now() or self._clock.wall()

    async def ask(self, url: str, asked: Asked, signer: Signer | None, **headers: str) -> Answer:
        """One request. A signed one that is refused is asked again once, now that the time is known.

        Raises `ApiError`, and TimeoutError, which is an OSError too.
        """
        answer = await bounded(self._once(url, asked, signer, headers), LIMIT_SECONDS)
        if answer.status == REFUSED and signer is not None:
            answer = await bounded(self._once(url, asked, signer, headers), LIMIT_SECONDS)
        if answer.status not in (OK, NOT_MODIFIED):
            raise ApiError(f"{asked.method} {asked.target} answers {answer.status}", answer.status)
        return answer

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _once(
        self, url: str, asked: Asked, signer: Signer | None, headers: Mapping[str, str]
    ) -> Answer:
        import httpx2  # noqa: PLC0415 - loaded once something is asked, and not by those that only wire

        asked = asked._replace(target=urlsplit(url).path.rstrip("/") + asked.target)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if signer is not None:
            sent |= sign_request(
                asked,
                key=signer.key,
                instance_id=signer.instance_id,
                at=self.now(),
                nonce=secrets.token_urlsafe(16),
            )
        if asked.body:
            sent |= JSON
        host = urlsplit(url)
        address = f"{host.scheme}://{host.netloc}{asked.target}"
        try:
            return await self._exchange(self._opened(), asked, address, sent)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise ApiError(f"{asked.method} {asked.target}: {type(error).__name__}") from error

    async def _exchange(
        self, client: httpx2.AsyncClient, asked: Asked, address: str, headers: Mapping[str, str]
    ) -> Answer:
        body = bytearray()
        asked_at = self._clock.boot()
        async with client.stream(
            asked.method, address, content=asked.body or None, headers=dict(headers)
        ) as answer:
            self._take_date(answer.headers.get("date", ""), asked_at)
            async for part in answer.aiter_bytes():
                body += part
                if len(body) > MAX_BYTES:
                    raise ApiError(f"{asked.target} answers more than {MAX_BYTES} bytes")
        return Answer(answer.status_code, bytes(body))

    def _opened(self) -> httpx2.AsyncClient:
        import ssl  # noqa: PLC0415 - as httpx2

        import httpx2  # noqa: PLC0415

        if self._client is None:
            # The machine's own certificates: a private cloud has an authority of its own.
            self._client = httpx2.AsyncClient(
                trust_env=False,
                verify=ssl.create_default_context(),
                timeout=LIMIT_SECONDS,
                follow_redirects=False,
            )
        return self._client

    def _take_date(self, text: str, asked_at: float) -> None:
        try:
            date = parsedate_to_datetime(text)
        except (TypeError, ValueError):
            return
        if date.tzinfo is not None:
            self._told.measure(date, asked_at, self._clock.boot())

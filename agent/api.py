"""The control plane's API as a node asks it: signed, bounded, and never needed for a drain."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agent.bounded import bounded, describe
from agent.clock import Clock, ProviderClock
from agent.http import Http, Request
from wire.node_requests import Asked, sign_request

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


class Proof(Protocol):
    """How this node proves to the API which one it is."""

    def headers(self, asked: Asked, at: datetime) -> dict[str, str]:
        """What goes with a request to prove it. Never used for two."""
        ...


class Signer(NamedTuple):
    """The proof by a signature: of an instance, with the key on its disk."""

    instance_id: str
    key: Ed25519PrivateKey

    def headers(self, asked: Asked, at: datetime) -> dict[str, str]:
        nonce = secrets.token_urlsafe(16)
        return sign_request(asked, key=self.key, instance_id=self.instance_id, at=at, nonce=nonce)


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
        self._http = Http(clock.boot, LIMIT_SECONDS, MAX_BYTES)

    def now(self) -> datetime:
        """The time as the API has it, else as the provider has it, else as the node takes it to be."""
        return self._told.now() or self._provider.now() or self._clock.wall()

    async def ask(self, url: str, asked: Asked, proof: Proof | None, **headers: str) -> Answer:
        """One request. One with a proof that is refused is asked again once, now that the time is known.

        Raises `ApiError`, and TimeoutError, which is an OSError too.
        """
        answer = await bounded(self._once(url, asked, proof, headers), LIMIT_SECONDS)
        if answer.status == REFUSED and proof is not None:
            answer = await bounded(self._once(url, asked, proof, headers), LIMIT_SECONDS)
        if answer.status not in (OK, NOT_MODIFIED):
            raise ApiError(f"{asked.method} {asked.target} answers {answer.status}", answer.status)
        return answer

    async def _once(self, url: str, asked: Asked, proof: Proof | None, headers: Mapping[str, str]) -> Answer:
        asked = asked._replace(target=urlsplit(url).path.rstrip("/") + asked.target)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if proof is not None:
            sent |= proof.headers(asked, self.now())
        if asked.body:
            sent |= JSON
        try:
            reply = await self._http.ask(Request(asked.method, url, asked.target, asked.body, sent))
        except TimeoutError:
            raise
        except OSError as error:
            raise ApiError(f"{asked.method} {asked.target}: {describe(error)}") from error
        if reply.date is not None:
            self._told.measure(reply.date, reply.asked_at, reply.answered_at)
        if reply.body is None:
            raise ApiError(f"{asked.target} answers more than {MAX_BYTES} bytes")
        return Answer(reply.status, reply.body)

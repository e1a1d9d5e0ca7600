"""The REST API as the commands see it: a path in, a document out, or a `Failure`.

Writes carry an `Idempotency-Key`. A call that found no connection, or lost it, is made once more with
the same key, so that it cannot take effect twice. An answer that comes too slowly is given up.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx2

from clients.cli import problems
from clients.cli.credential import Credential, not_let_in
from clients.cli.failures import Failure, unreachable, usage
from clients.cli.settings import is_loopback

Query = Mapping[str, str | int | bool | None]

PAGE_SIZE = 200
MAX_PAGES = 10_000
MAX_ANSWER_BYTES = 256 * 1024 * 1024
RETRY_AFTER_SECONDS = 0.5
_LOST = (httpx2.NetworkError, httpx2.RemoteProtocolError, httpx2.ConnectTimeout)


@dataclass(frozen=True, slots=True)
class Clock:
    """Passed in, so that waiting can be tested without waiting."""

    monotonic: Callable[[], float]
    sleep: Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Listed:
    """The first items of a listing, and whether there are more."""

    items: list[Any]
    has_more: bool


@dataclass(frozen=True, slots=True)
class Body:
    """Bytes to send, with their media type."""

    content: bytes
    media_type: str = "application/json"


def json_body(document: object) -> Body:
    return Body(json.dumps(document, default=str).encode())


def path(*parts: str) -> str:
    """`/workloads/orders-daily/claims` from its parts; a part may hold any text."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


class Api:
    """One server. `close` it, or use it as a context."""

    def __init__(
        self,
        server: str,
        *,
        timeout_seconds: float,
        clock: Clock,
        new_key: Callable[[], str],
        version: str,
        credential: Credential | None = None,
    ) -> None:
        self.server = server
        self._credential = credential
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._new_key = new_key
        self._http = _client(server, timeout_seconds, version)

    def close(self) -> None:
        self._http.close()

    def get(self, where: str, query: Query | None = None) -> Any:
        return self._call("GET", where, query, None)

    def put(self, where: str, body: Body, *, if_match: str | None = None) -> Any:
        return self._call("PUT", where, None, body, if_match)

    def patch(self, where: str, body: Body, *, if_match: str) -> Any:
        return self._call("PATCH", where, None, body, if_match)

    def post(
        self,
        where: str,
        body: Body | None = None,
        query: Query | None = None,
        *,
        if_match: str | None = None,
    ) -> Any:
        return self._call("POST", where, query, body, if_match)

    def listing(self, where: str, query: Query, limit: int) -> Listed:
        """The first `limit` items of a paged listing."""
        items: list[Any] = []
        for page, token in self._pages(where, query, limit):
            items.extend(page)
            if len(items) >= limit:
                return Listed(items[:limit], has_more=token is not None or len(items) > limit)
        return Listed(items, has_more=False)

    def _pages(self, where: str, query: Query, limit: int) -> Iterator[tuple[list[Any], str | None]]:
        token: str | None = None
        for _ in range(MAX_PAGES):
            size = min(PAGE_SIZE, limit)
            answer = self.get(where, {**query, "pageSize": size, "pageToken": token})
            items, following = problems.page_of(answer, where)
            yield items, following
            if following is None:
                return
            if following == token:
                raise unreachable(f"{self.server} repeats a page of {where} without end")
            token = following
        raise unreachable(f"{self.server} lists more than {MAX_PAGES:,} pages at {where}")

    def _call(
        self, method: str, where: str, query: Query | None, body: Body | None, if_match: str | None = None
    ) -> Any:
        headers = {"Content-Type": body.media_type} if body else {}
        if self._credential is not None:
            headers["Authorization"] = f"Bearer {self._credential.token()}"
        if if_match is not None:
            headers["If-Match"] = if_match
        if method != "GET":
            headers["Idempotency-Key"] = self._new_key()
        request = self._http.build_request(
            method,
            where,
            params={name: _text(value) for name, value in (query or {}).items() if value is not None},
            headers=headers,
            content=body.content if body else None,
        )
        try:
            return self._answer(*self._sent(request))
        except _LOST:
            self._clock.sleep(RETRY_AFTER_SECONDS)
        except httpx2.HTTPError as error:
            raise self._no_answer(error) from None
        try:
            return self._answer(*self._sent(request))
        except httpx2.HTTPError as error:
            raise self._no_answer(error) from None

    def _sent(self, request: httpx2.Request) -> tuple[httpx2.Response, bytes]:
        """The answer with its whole body, within the time limit."""
        deadline = self._clock.monotonic() + self._timeout_seconds
        response = self._http.send(request, stream=True)
        content = bytearray()
        try:
            for chunk in response.iter_bytes():
                content += chunk
                if self._clock.monotonic() > deadline:
                    raise httpx2.ReadTimeout("the answer did not end in time", request=request)
                if len(content) > MAX_ANSWER_BYTES:
                    raise unreachable(
                        f"the answer of {self.server} is longer than {MAX_ANSWER_BYTES:,} bytes"
                    )
        finally:
            response.close()
        return response, bytes(content)

    def _answer(self, response: httpx2.Response, content: bytes) -> Any:
        if response.is_success:
            return problems.document_of(response, content, self.server)
        failure = problems.failure_of(response, content, self.server)
        if response.status_code == httpx2.codes.UNAUTHORIZED:
            failure = not_let_in(failure, self._credential)
        raise failure

    def _no_answer(self, error: httpx2.HTTPError) -> Failure:
        if isinstance(error, httpx2.TimeoutException):
            return unreachable(
                f"{self.server} did not answer within {self._timeout_seconds:g} seconds",
                "is it overloaded, or is something between here and there? try again,"
                " or allow more time with --request-timeout",
            )
        if isinstance(error, httpx2.ConnectError):
            return unreachable(
                f"no connection to {self.server}: {error or type(error).__name__}",
                "is the server running, and is the address right? name it with --server or SCO_SERVER",
            )
        return unreachable(
            f"{self.server} broke off: {error or type(error).__name__}",
            "try again; if it happens again, look at the server's log",
        )


def _text(value: str | int | bool | None) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _client(server: str, timeout_seconds: float, version: str) -> httpx2.Client:
    try:
        return httpx2.Client(
            base_url=server,
            timeout=httpx2.Timeout(timeout_seconds),
            # A proxy cannot reach this machine's own loopback.
            trust_env=not is_loopback(server),
            headers={"Accept": "application/json", "User-Agent": f"sco/{version}"},
        )
    except (OSError, ValueError, ImportError) as error:
        raise usage(
            f"the environment's proxy or certificates cannot be used: {error}",
            "look at HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR",
        ) from None

"""One request to an endpoint: to an address that was checked, bounded in time and in size.

The name is resolved here and nowhere else, every address it has is checked, and the connection is made to
one of those: a name that resolves differently a moment later changes nothing. Redirects are not followed
and the environment's proxies are not asked, since both would choose another address. Connections are not
kept: two names at one address must not share a certificate that was checked for one of them.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any, NamedTuple

import httpx2
import orjson

from activities.serving.ports import Endpoint, ServingError, ServingProblem
from domain.intake.words import clean
from domain.serving.endpoint import (
    Address,
    EndpointAddress,
    EndpointRefusal,
    EndpointTerms,
    address_problem,
    read_endpoint,
)

MAX_ANSWER_BYTES = 1024 * 1024
MAX_SHOWN = 300
MAX_TRIED = 3
UNREACHABLE_STATUS = {HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}
DENIED_STATUS = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class Reply(NamedTuple):
    """What an endpoint answered: a status below 500 and the JSON with it, {} where there was none."""

    status: int
    body: Any

    @property
    def error(self) -> str:
        """What the answer says is wrong, in the words of either dialect: of any length, and foreign."""
        said = self.body.get("error", "") if isinstance(self.body, dict) else ""
        said = said.get("message", "") if isinstance(said, dict) else said
        return str(said) or f"status {self.status}"


async def resolve_host(host: str, port: int) -> Sequence[str]:
    """Every address that the system's resolver knows for a host; OSError when it knows none."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


class Line:
    """The way to one endpoint. Every method raises `ServingError` whose text holds no credential."""

    def __init__(
        self, endpoint: Endpoint, terms: EndpointTerms, *, resolve: Resolve, tls: ssl.SSLContext
    ) -> None:
        read = read_endpoint(endpoint.url, terms)
        if isinstance(read, EndpointRefusal):
            raise ServingError(ServingProblem.REFUSED, f"the endpoint is refused: {read.why}")
        self.address: EndpointAddress = read
        self.terms = terms
        self._credential = endpoint.credential
        self._resolve = resolve
        self._tls = tls

    async def call(
        self, method: str, path: str, body: object = None, *, seconds: float | None = None
    ) -> Reply:
        """One request under the endpoint's path; the whole of it takes at most `seconds`."""
        limit = self.terms.answer_seconds if seconds is None else seconds
        try:
            async with asyncio.timeout(limit):
                return await self._call(method, path, body)
        except TimeoutError:
            raise ServingError(ServingProblem.TIMEOUT, f"{self._name} took over {limit:g} s") from None

    @property
    def _name(self) -> str:
        return f"{self.address.host}:{self.address.port}"

    async def _call(self, method: str, path: str, body: object) -> Reply:
        problem: Exception | None = None
        for one in (await self._addresses())[:MAX_TRIED]:
            try:
                async with self._sent(one, method, path, body) as answer:
                    return await self._reply(answer)
            except httpx2.ConnectError as error:
                problem = error
            except httpx2.ConnectTimeout as error:
                raise self._unreachable(error) from None
            except (httpx2.TransportError, httpx2.StreamError) as error:
                raise self._unreachable(error) from None
            except (httpx2.InvalidURL, httpx2.DecodingError) as error:
                raise self.problem(ServingProblem.PROTOCOL, str(error)) from None
        raise self._unreachable(problem) from None

    async def _addresses(self) -> Sequence[Address]:
        """Where the endpoint is now; all of its addresses must be allowed, or none is used."""
        host, port = self.address.host, self.address.port
        if (literal := self.address.literal) is not None:
            found = [literal]
        else:
            try:
                found = [ip_address(text) for text in await self._resolve(host, port)]
            except (OSError, UnicodeError, ValueError) as error:
                raise ServingError(
                    ServingProblem.UNREACHABLE, f"{host} has no address ({type(error).__name__})"
                ) from None
        if not found:
            raise ServingError(ServingProblem.UNREACHABLE, f"{host} has no address")
        for one in found:
            why = address_problem(one, self.address.scheme, self.terms)
            if why is not None:
                raise ServingError(ServingProblem.REFUSED, f"{host} is not connected to: {why}")
        return found

    @asynccontextmanager
    async def _sent(
        self, address: Address, method: str, path: str, body: object
    ) -> AsyncIterator[httpx2.Response]:
        host = f"[{address}]" if address.version == 6 else str(address)  # noqa: PLR2004 - IPv6
        where = self.address
        url = httpx2.URL(f"{where.scheme}://{host}:{where.port}{where.path}{path}")
        headers = {"Host": self._host_header(), "Accept": "application/json", "Accept-Encoding": "identity"}
        if self._credential is not None:
            headers["Authorization"] = f"Bearer {self._credential.get_secret_value()}"
        content = None if body is None else orjson.dumps(body)
        if content is not None:
            headers["Content-Type"] = "application/json"
        timeout = httpx2.Timeout(None, connect=self.terms.connect_seconds)
        async with (
            httpx2.AsyncClient(
                verify=self._tls,
                trust_env=False,
                follow_redirects=False,
                timeout=timeout,
                limits=httpx2.Limits(max_connections=1, max_keepalive_connections=0),
            ) as client,
            client.stream(
                method, url, headers=headers, content=content, extensions={"sni_hostname": where.host}
            ) as answer,
        ):
            yield answer

    def _host_header(self) -> str:
        host = f"[{self.address.host}]" if ":" in self.address.host else self.address.host
        return f"{host}:{self.address.port}"

    async def _reply(self, answer: httpx2.Response) -> Reply:
        content = bytearray()
        async for part in answer.aiter_bytes():
            content += part
            if len(content) > MAX_ANSWER_BYTES:
                raise ServingError(
                    ServingProblem.PROTOCOL, f"{self._name} answers with more than {MAX_ANSWER_BYTES:,} bytes"
                )
        if answer.is_redirect:
            raise ServingError(
                ServingProblem.PROTOCOL,
                f"{self._name} answers with a redirect, which is not followed: register where it leads to",
            )
        reply = Reply(answer.status_code, self._json(bytes(content), answer.status_code))
        self._raise_for(reply)
        return reply

    def _json(self, content: bytes, status: int) -> Any:
        try:
            return orjson.loads(content) if content else {}
        except orjson.JSONDecodeError:
            if status >= HTTPStatus.BAD_REQUEST:
                return {}
            raise ServingError(ServingProblem.PROTOCOL, f"{self._name} does not answer in JSON") from None

    def _raise_for(self, reply: Reply) -> None:
        said = f"it answers {reply.status}: {reply.error}"
        if reply.status in DENIED_STATUS:
            raise self.problem(ServingProblem.REFUSED, said)
        if reply.status in UNREACHABLE_STATUS:
            raise self.problem(ServingProblem.UNREACHABLE, said)

    def problem(self, kind: ServingProblem, text: str) -> ServingError:
        """An error of this endpoint. The text may be the endpoint's own, which may repeat the credential."""
        secret = self._credential.get_secret_value() if self._credential is not None else ""
        said = text.replace(secret, "***") if secret else text
        return ServingError(kind, clean(f"{self._name}: {said}", MAX_SHOWN))

    def _unreachable(self, error: Exception | None) -> ServingError:
        said = f"it cannot be reached: {str(error) or type(error).__name__}"
        return self.problem(ServingProblem.UNREACHABLE, said)

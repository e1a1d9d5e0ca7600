"""Somebody with a browser, on the way from the service to the issuer and back."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import httpx2

from lab.issuer import IssuerHandle
from tests.api.sign_in.bare import Bare, bare
from tests.api.sign_in.sessions import sign_in_at
from tests.estates import Clock

PAGE = {"Accept": "text/html"}
# A page that says who is signed in, and needs no database.
SOMEWHERE = "/ui/nothing"


@dataclass
class Person:
    """Somebody with a browser: what it keeps, and how it gets from the service to the issuer and back."""

    service: Bare
    issuer: IssuerHandle
    clock: Clock

    @property
    def http(self) -> httpx2.AsyncClient:
        return self.service.http

    async def begin(self, page: str = SOMEWHERE) -> httpx2.URL:
        """As far as the issuer's page; returns its address."""
        first = await self.http.get(page, headers=PAGE)
        assert first.status_code == 303, first.text
        second = await self.http.get(first.headers["location"], headers=PAGE)
        assert second.status_code == 303, second.text
        return httpx2.URL(second.headers["location"])

    async def pick(self, address: httpx2.URL, name: str) -> str:
        """Choose who to be; returns the address that the issuer sends the browser to."""
        async with httpx2.AsyncClient(trust_env=False) as browser:
            page = await browser.get(address)
            assert page.status_code == 200, page.text
            hidden = dict(re.findall(r'name="(\w+)" value="([^"]*)"', page.text))
            answer = await browser.post(f"{self.issuer.url}/authorize", data=hidden | {"person": name})
        assert answer.status_code == 303, answer.text
        return str(answer.headers["location"])

    async def sign_in(self, name: str, page: str = SOMEWHERE) -> httpx2.Response:
        return await self.http.get(await self.pick(await self.begin(page), name), headers=PAGE)


@asynccontextmanager
async def somebody(issuer: IssuerHandle, names: frozenset[str] | None = None) -> AsyncIterator[Person]:
    clock = Clock(datetime.now(UTC))
    sign_in = sign_in_at(issuer, clock)
    async with bare(clock, replace(sign_in, names=names) if names else sign_in) as service:
        yield Person(service, issuer, clock)

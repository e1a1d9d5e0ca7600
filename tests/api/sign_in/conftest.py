"""A person, and an issuer over real HTTP to sign in with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from lab.issuer import IssuerHandle
from tests.api.sign_in.person import Person, somebody


@pytest.fixture(scope="module")
def issuer() -> Iterator[IssuerHandle]:
    with capture_logs(), IssuerHandle.start_in_thread() as running:
        yield running


@pytest_asyncio.fixture
async def person(issuer: IssuerHandle) -> AsyncIterator[Person]:
    async with somebody(issuer) as own:
        yield own

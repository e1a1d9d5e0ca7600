"""Tokens of issuers that others wrote or that run as processes: rotation, and an issuer that is away."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from structlog.testing import capture_logs

from api.sign_in.keys import UNKNOWN_SECONDS, IssuerKeys
from api.sign_in.setup import SignIn
from api.sign_in.tokens import TokenVerifier, Trust
from lab.issuer.accounts import secret_file
from lab.issuer.issuer import AUDIENCE
from lab.stack.ports import any_free
from tests.api.sign_in.bare import PATH, Bare, bare
from tests.estates import Clock

START_SECONDS = 30.0
STOP_SECONDS = 20.0


class Ticking:
    """Monotonic seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def service_for(url: str, audience: str, ticking: Ticking) -> AsyncIterator[Bare]:
    clock = Clock(datetime.now(UTC))
    keys = IssuerKeys(url, monotonic=ticking)
    async with bare(clock, SignIn(TokenVerifier(Trust(url, audience), keys, clock))) as own:
        with capture_logs():
            yield own


async def let_in(service: Bare, token: str) -> int:
    """The status of a request with this token."""
    answer = await service.http.get(PATH, headers={"Authorization": f"Bearer {token}"})
    return int(answer.status_code)


pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:authlib", "ignore::DeprecationWarning:oidc_provider_mock"
)


class Process:
    """The development issuer as a process on a port that it keeps."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.port = any_free({})
        self.url = f"http://127.0.0.1:{self.port}"
        self._running: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self._running = subprocess.Popen(
            [sys.executable, "-m", "lab.issuer", "--port", str(self.port), "--data-dir", str(self.data_dir)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            assert self._running.poll() is None, "the issuer ended while it started"
            assert time.monotonic() < deadline, "the issuer does not answer"
            time.sleep(0.05)

    def stop(self) -> None:
        if self._running is not None:
            self._running.terminate()
            assert self._running.wait(STOP_SECONDS) in (0, -signal.SIGTERM)
            self._running = None

    def rotate(self) -> None:
        assert self._running is not None
        before = self.kids()
        os.kill(self._running.pid, signal.SIGHUP)
        deadline = time.monotonic() + START_SECONDS
        while self.kids() == before:
            assert time.monotonic() < deadline, "the keys do not change"
            time.sleep(0.05)

    def kids(self) -> list[str]:
        found = httpx2.get(f"{self.url}/jwks", trust_env=False).json()
        return [one["kid"] for one in found["keys"]]

    def token(self, client: str = "sco-cli", **form: str) -> str:
        answer = httpx2.post(
            f"{self.url}/token",
            data={"grant_type": "client_credentials", **form},
            auth=httpx2.BasicAuth(client, secret_file(self.data_dir, client).read_text()),
            trust_env=False,
        )
        assert answer.status_code == 200, answer.text
        return str(answer.json()["access_token"])

    def _answers(self) -> bool:
        try:
            return httpx2.get(f"{self.url}/jwks", trust_env=False).status_code == 200
        except httpx2.HTTPError:
            return False


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    running = Process(tmp_path / "issuer")
    running.start()
    yield running
    running.stop()


async def test_keys_rotate_while_tokens_go_on_to_be_good(process: Process) -> None:
    ticking = Ticking()
    async with service_for(process.url, AUDIENCE, ticking) as service:
        before = process.token()
        assert await let_in(service, before) == 200
        await asyncio.to_thread(process.rotate)
        after = process.token()
        assert await let_in(service, after) == 401
        ticking.now += UNKNOWN_SECONDS
        assert await let_in(service, after) == 200
        assert await let_in(service, before) == 200


async def test_a_key_that_the_issuer_has_forgotten_is_good_no_more(process: Process) -> None:
    ticking = Ticking()
    async with service_for(process.url, AUDIENCE, ticking) as service:
        old = process.token()
        for _ in range(3):
            await asyncio.to_thread(process.rotate)
        assert await let_in(service, old) == 401
        assert await let_in(service, process.token()) == 200


async def test_an_issuer_that_is_away_stops_nobody_who_has_a_token(process: Process) -> None:
    ticking = Ticking()
    async with service_for(process.url, AUDIENCE, ticking) as service:
        token = process.token()
        assert await let_in(service, token) == 200
        await asyncio.to_thread(process.stop)
        for _ in range(5):
            ticking.now += 3600
            assert await let_in(service, token) == 200
        await asyncio.to_thread(process.start)
        ticking.now += 3600
        assert await let_in(service, process.token("model-router")) == 200


async def test_an_issuer_that_comes_later_is_waited_for(tmp_path: Path) -> None:
    process = Process(tmp_path / "issuer")
    ticking = Ticking()
    try:
        process.start()
        token = process.token()
        process.stop()
        async with service_for(process.url, AUDIENCE, ticking) as service:
            assert await let_in(service, token) == 503
            process.start()
            ticking.now += 5
            assert await let_in(service, token) == 200
    finally:
        process.stop()


async def test_a_client_may_ask_for_less_than_it_may_have(process: Process) -> None:
    async with service_for(process.url, AUDIENCE, Ticking()) as service:
        less = process.token(scope="factory.compute.read")
        answer = await service.http.post("/factory/audits", headers={"Authorization": f"Bearer {less}"})
        assert answer.status_code == 403


@contextmanager
def independent() -> Iterator[str]:
    """An OpenID provider that others wrote; yields its address, which is its issuer."""
    # It warns of its own libraries while it is imported.
    import oidc_provider_mock  # type: ignore[import-untyped]

    with oidc_provider_mock.run_server_in_thread() as server:
        yield f"http://localhost:{server.server_port}"


def identity_token(url: str, subject: str, client_id: str, **said: Any) -> str:
    """An identity token by the code flow, as a person gets it; its access tokens are no JSON Web Tokens."""
    with httpx2.Client(trust_env=False) as browser:
        assert browser.put(f"{url}/users/{subject}", json=said).status_code == 204
        asked = {
            "client_id": client_id,
            "redirect_uri": "http://localhost/callback",
            "response_type": "code",
            "scope": "openid",
        }
        sent = browser.post(f"{url}/oauth2/authorize", params=asked, data={"sub": subject})
        found = re.search(r"[?&]code=([^&]+)", sent.headers["location"])
        assert found, sent.text
        form = {
            "grant_type": "authorization_code",
            "code": found[1],
            "redirect_uri": "http://localhost/callback",
            "client_id": client_id,
            "client_secret": "any",
        }
        answer = browser.post(f"{url}/oauth2/token", data=form)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id_token"])


async def test_tokens_of_an_independent_provider_are_verified() -> None:
    said = {"tenant_id": "tenant-a", "roles": ["Operator"], "scp": ["factory.compute.read"]}
    with independent() as url:
        token = identity_token(url, "omar", "sco", **said)
        async with service_for(url, "sco", Ticking()) as service:
            assert await let_in(service, token) == 200
        async with service_for(url, "another-service", Ticking()) as service:
            assert await let_in(service, token) == 401
        async with service_for(url, "sco", Ticking()) as service:
            assert (
                await let_in(service, identity_token(url, "eve", "sco", **(said | {"tenant_id": "E"}))) == 401
            )
        async with service_for(url.replace("localhost", "127.0.0.1"), "sco", Ticking()) as service:
            assert await let_in(service, token) == 401


async def test_a_token_of_another_provider_is_refused_whatever_it_says() -> None:
    said = {"tenant_id": "platform", "roles": ["PlatformAdmin"], "scp": ["factory.compute.read"]}
    with independent() as ours, independent() as theirs:
        token = identity_token(theirs, "eve", "sco", **said)
        async with service_for(ours, "sco", Ticking()) as service:
            assert await let_in(service, identity_token(ours, "ada", "sco", **said)) == 200
            assert await let_in(service, token) == 401

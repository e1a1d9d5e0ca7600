"""The application without a database behind it: enough to see who is let in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp

from api.app import create_app
from api.deps import Deps
from api.sign_in.refusal import Reason
from api.sign_in.setup import SignIn
from store.engine import create_engine
from tests.api.door import RecordingStarter, client_of
from tests.api.sign_in.minting import verifier
from tests.estates import Clock

# Needs a token, and nothing of the database.
PATH = "/openapi.json"
NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"


@dataclass(frozen=True)
class Bare:
    """The application, a client that brings nothing, and what was counted."""

    app: ASGIApp
    http: httpx2.AsyncClient
    registry: CollectorRegistry

    def counted(self, reason: Reason) -> int:
        """How often somebody was refused for this reason."""
        value = self.registry.get_sample_value("sco_sign_in_refused_total", {"reason": reason.value})
        assert value is not None
        return int(value)


@asynccontextmanager
async def bare(clock: Clock, sign_in: SignIn | None = None) -> AsyncIterator[Bare]:
    starter = RecordingStarter()
    engine = create_engine(NOWHERE)
    deps = Deps(engine=engine, starter=starter, temporal_reachable=starter.reachable, now=clock)
    registry = CollectorRegistry()
    app = create_app(deps, sign_in or SignIn(verifier(clock)), registry)
    try:
        async with client_of(app) as http:
            yield Bare(app, http, registry)
    finally:
        await engine.dispose()

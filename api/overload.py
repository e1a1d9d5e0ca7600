"""How many requests are worked on at once, and how many may wait: more than that is refused at once.

Each request needs a database connection for most of its time, so more at once would only wait elsewhere, and
fail there. What waits is bounded in number and in time, so that under overload an answer is either soon or
a 429 that says when to try again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from api import problems
from api.observe import QUIET_ROUTES
from api.problems import Problem
from api.refusals import answer

RETRY_SOON = {"Retry-After": "1"}


@dataclass(frozen=True, slots=True)
class Limits:
    """Requests at once, requests that wait for their turn, and how long one waits at most."""

    at_once: int = 19
    waiting: int = 200
    patience_seconds: float = 5.0


USUAL = Limits()


class Why(StrEnum):
    QUEUE_FULL = "queue_full"
    WAITED_TOO_LONG = "waited_too_long"


TOLD_AS = {
    Why.QUEUE_FULL: "{at_once} requests are in hand and {waiting} wait, which is as many as may",
    Why.WAITED_TOO_LONG: "it was not this request's turn within {patience_seconds:g} s",
}


class OverloadMetrics:
    """Counts what is refused."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._refused = Counter(
            "sco_http_overload_refused_total",
            "Requests answered 429 because too many were in hand",
            ["reason"],
            registry=registry,
        )
        for why in Why:
            self._refused.labels(why.value)

    def refused(self, why: Why) -> None:
        self._refused.labels(why.value).inc()


class Admission:
    """Gives out turns in one event loop, in the order of arrival. Who asks after our health needs none."""

    def __init__(self, app: ASGIApp, limits: Limits, metrics: OverloadMetrics) -> None:
        self._app = app
        self._limits = limits
        self._metrics = metrics
        self._turns = asyncio.Semaphore(limits.at_once)
        self._waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in QUIET_ROUTES:
            await self._app(scope, receive, send)
            return
        refused = await self._take_turn()
        if refused is not None:
            self._metrics.refused(refused)
            await answer(Request(scope), self._problem(refused))(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            self._turns.release()

    async def _take_turn(self) -> Why | None:
        """Wait for a turn, which is then to be given back; or why there is none."""
        if not self._turns.locked():
            await self._turns.acquire()
            return None
        if self._waiting >= self._limits.waiting:
            return Why.QUEUE_FULL
        try:
            with self._counted():
                async with asyncio.timeout(self._limits.patience_seconds):
                    await self._turns.acquire()
        except TimeoutError:
            return Why.WAITED_TOO_LONG
        return None

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    def _problem(self, why: Why) -> Problem:
        limits = self._limits
        told = TOLD_AS[why].format(
            at_once=limits.at_once, waiting=limits.waiting, patience_seconds=limits.patience_seconds
        )
        return Problem(problems.OVERLOADED, told, headers=RETRY_SOON)

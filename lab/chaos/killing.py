"""How a process ends: at any commit and any call, in a way that no hand can catch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from activities.ports import TokenBudget
from domain.circuit import Outcome
from store.engine import Connection, Engine


class Killed(BaseException):
    """The process ended here. Not an `Exception`: nothing of the product may live on."""


@dataclass
class Fuse:
    """Counts the moments at which a process may end, and ends it at one of them; then at every later one."""

    blows_at: int | None = None
    passed: int = 0
    dead: bool = False

    def __call__(self, moment: str) -> None:
        self.passed += 1
        if self.dead or self.passed == self.blows_at:
            self.dead = True
            raise Killed(moment)


class FusedEngine:
    """An engine of a process that may end before a transaction begins, before it commits or after it did."""

    def __init__(self, engine: Engine, fuse: Callable[[str], None]) -> None:
        self._engine = engine
        self._fuse = fuse

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Connection]:
        self._fuse("before a transaction")
        async with self._engine.begin() as connection:
            yield connection
            self._fuse("before a commit")
        self._fuse("after a commit")

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Connection]:
        self._fuse("before a read")
        async with self._engine.connect() as connection:
            yield connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


class FusedBudget:
    """The port `TokenBudget` of a process that may end before a call is sent, or when its answer is there."""

    def __init__(self, budget: TokenBudget, fuse: Fuse) -> None:
        self._budget = budget
        self._fuse = fuse

    def take(self, region: str) -> None:
        self._budget.take(region)
        self._fuse("before a call")

    def report(self, region: str, outcome: Outcome, retry_after_seconds: float | None) -> None:
        self._budget.report(region, outcome, retry_after_seconds)
        self._fuse("after a call")

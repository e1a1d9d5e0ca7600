"""A pool in a test's own database whose endpoint is a real model server, and the hand that loads there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import sqlalchemy as sa
from pydantic import SecretStr

from activities.model_loading import ModelLoading
from activities.secrets.ports import Credential, Secrets
from activities.serving.ports import ServingPort
from domain.pool import PoolState
from domain.serving.warm_keep import WarmKeepTerms
from lab.chaos.killing import FusedEngine
from store import cached_models, registry
from store.cached_models import CachedModel, Settled
from store.engine import Engine
from store.serving_pools import PoolName
from store.tables import LoadCause
from tests.activities.model_placing import BROKEN_MEMORY, serving_facts
from tests.activities.serving.model_servers import TOKEN, Served

NAME = PoolName("platform", "gpu-1")
# A lease outlasts every pause of a busy machine: it ends where a test lets the time pass, and nowhere else.
LEASE_SECONDS = 60.0
TERMS = WarmKeepTerms(lease_seconds=LEASE_SECONDS, look_seconds=0.2, promise_patience_seconds=0)


def utc_now() -> datetime:
    return datetime.now(UTC)


class Later:
    """The time of day, and as much later as a test has let pass."""

    def __init__(self) -> None:
        self._passed = timedelta()

    def __call__(self) -> datetime:
        return utc_now() + self._passed

    def lease_ends(self) -> None:
        """Every lease that is held by now has run out."""
        self._passed += timedelta(seconds=LEASE_SECONDS * 1.5)


class OneSecret:
    """A secrets port that has the one credential that model servers of tests take."""

    async def endpoint_credential(self, tenant_id: str, pool_id: str) -> Credential:
        return Credential(token=SecretStr(TOKEN), expires_at=utc_now() + timedelta(minutes=5))


class Loader:
    """The hand over one pool and its model server, and what the test reads of both."""

    def __init__(self, engine: Engine, served: Served, terms: WarmKeepTerms = TERMS) -> None:
        self.engine = engine
        self.served = served
        self.terms = terms
        self.clock = Later()
        self.hand = self.another()

    def another(
        self,
        *,
        engine: Engine | FusedEngine | None = None,
        serving: ServingPort | None = None,
        secrets: Secrets | None = None,
        now: Callable[[], datetime] | None = None,
    ) -> ModelLoading:
        """The hand of another process, which knows nothing of this one."""
        return ModelLoading(
            engine or self.engine,  # type: ignore[arg-type]  # the fused engine stands in for one
            serving or self.served.serving,
            secrets or OneSecret(),
            terms=self.terms,
            now=now or self.clock,
            new_key=uuid4,
        )

    async def open(self, *, vram_gb: int = 80, name: PoolName = NAME, url: str | None = None) -> Loader:
        facts = serving_facts(name.pool_id, name.tenant_id, vram_gb=vram_gb)
        async with self.engine.begin() as connection:
            await registry.register_pools(connection, [facts], PoolState.ACTIVE)
            await registry.set_endpoint(connection, *name, url or self.served.url)
        return self

    async def load(self, model: str = "m:20gb", vram_gb: int = 20, cause: str = "request") -> bool:
        return (await self.hand.load(NAME, model, vram_gb, LoadCause(cause))).caused

    async def hold(self, model: str = "m:20gb", vram_gb: int = 20) -> Any:
        """A placement of a model on the pool, as the place hand writes it."""
        placement_id = uuid4()
        await self.run(
            "INSERT INTO model_placements (tenant_id, placement_id, deployment_id, model, requirements,"
            " candidates, outcome, pool_tenant_id, pool_id, vram_gb, state, decided_at, expires_at)"
            " VALUES ('platform', :id, 'd', :model, '{}', '{}', 'placed', 'platform', 'gpu-1', :gb, 'held',"
            " now(), now() + interval '1 hour')",
            id=placement_id,
            model=model,
            gb=vram_gb,
        )
        return placement_id

    async def release(self, placement_id: Any) -> None:
        await self.run(
            "UPDATE model_placements SET state = 'released', ended_at = now() WHERE placement_id = :id",
            id=placement_id,
        )

    async def turn(self, state: str) -> None:
        """Let the pool be in this state."""
        await self.run(
            "UPDATE pools SET state = :state, draining_since = CASE WHEN :state = 'draining' THEN now() END",
            state=state,
        )

    async def settle(self, *, patience: float = 0) -> Settled:
        asked_at = self.clock()
        listed = await self.hand.list_models(NAME)
        async with self.engine.begin() as connection:
            return await cached_models.settle(
                connection,
                NAME,
                [one.model for one in listed],
                asked_at=asked_at,
                at=self.clock(),
                patience=timedelta(seconds=patience),
            )

    async def models(self) -> dict[str, CachedModel]:
        async with self.engine.connect() as connection:
            return {one.model: one for one in await cached_models.of_pool(connection, NAME)}

    async def states(self) -> dict[str, str]:
        return {name: one.state.value for name, one in (await self.models()).items()}

    async def events(self) -> list[tuple[str, str, str | None]]:
        """What was told of models, in order: the last word of the topic, the model, the reason."""
        rows = await self.rows(
            "SELECT topic, payload FROM outbox WHERE topic LIKE '%cache%' ORDER BY sequence"
        )
        return [(topic.rsplit(".", 1)[1], told["model"], told.get("reason")) for topic, told in rows]

    async def loads(self) -> list[tuple[Any, ...]]:
        rows = await self.rows("SELECT model, cause, outcome FROM model_loads ORDER BY started_at, load_id")
        return [tuple(row) for row in rows]

    async def rows(self, query: str, **values: Any) -> list[Any]:
        async with self.engine.connect() as connection:
            return list(await connection.execute(sa.text(query), values))

    async def run(self, statement: str, **values: Any) -> None:
        async with self.engine.begin() as connection:
            await connection.execute(sa.text(statement), values)

    async def all_is_well(self) -> None:
        """Counts are right, the server had never too much, no model was ever loaded twice at a time."""
        assert await self.rows(BROKEN_MEMORY) == []
        state = self.served.state
        assert state["most_used_gb"] <= state["vram_gb"]
        assert all(most == 1 for most in state["most_at_once"].values()), state

    async def agrees(self) -> None:
        """What the store calls loaded is what the server has, and nothing else takes memory there."""
        await self.all_is_well()
        known = {name for name, state in (await self.states()).items() if state == "loaded"}
        assert known == set(self.served.state["models"])

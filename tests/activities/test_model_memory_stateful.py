"""Placements that come, go and expire in any order: memory is never promised twice, and counts stay right."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar
from uuid import UUID

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from domain.pool import SecurityBoundary
from domain.serving.placing import PlacementOutcome
from store import model_placements
from store.engine import Engine, create_engine
from store.tables import PlacementState, metadata
from tests.activities.model_placing import ACME, PLATFORM, ServingEstate
from tests.domain.serving.pools import wanted
from tests.estates import Clock

T = TypeVar("T")
SIZES = {(ACME, "own"): 80, (PLATFORM, "small"): 40, (PLATFORM, "big"): 160}
MODELS = ("llama", "qwen", "gemma", "mistral")
TENANTS = (ACME, "others")
HOLD_SECONDS = 600


class Memory(RuleBasedStateMachine):
    """Does what callers, endpoints and sweeps do, and knows by itself what must be in memory then."""

    runner: asyncio.Runner
    owner: Engine
    tenants: Engine

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.held: dict[tuple[str, UUID], tuple[tuple[str, str], str]] = {}
        self.until: dict[tuple[str, UUID], float] = {}
        self.memory: dict[tuple[tuple[str, str], str], int] = {}
        self.loaded: set[tuple[tuple[str, str], str]] = set()
        self.seconds = 0.0
        self.serving = ServingEstate(self.owner, self.tenants, self.clock)
        self.do(self._open())

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    async def _open(self) -> None:
        for (tenant_id, pool_id), size in SIZES.items():
            boundary = SecurityBoundary.PRIVATE if tenant_id == ACME else SecurityBoundary.SHARED
            await self.serving.pool(pool_id, tenant_id, vram_gb=size, security_boundary=boundary)

    def used(self, pool: tuple[str, str]) -> int:
        return sum(gb for (at, _), gb in self.memory.items() if at == pool)

    def seen_by(self, tenant: str) -> list[tuple[str, str]]:
        return [name for name in SIZES if name[0] in (tenant, PLATFORM)]

    def fits(self, tenant: str, model: str, gb: int) -> bool:
        return any(
            self.used(name) + max(0, gb - self.memory.get((name, model), 0)) <= SIZES[name]
            for name in self.seen_by(tenant)
        )

    @rule(
        model=st.sampled_from(MODELS), gb=st.sampled_from([10, 30, 40, 80]), tenant=st.sampled_from(TENANTS)
    )
    def place(self, model: str, gb: int, tenant: str) -> None:
        asked = wanted(model=model, vram_gb=gb, boundary=SecurityBoundary.SHARED)
        fits = self.fits(tenant, model, gb)
        record = self.do(self.serving.place(asked, tenant=tenant)).record
        assert (record.outcome is PlacementOutcome.PLACED) == fits
        if not fits:
            return
        assert record.pool_tenant_id is not None
        assert record.pool_id is not None
        where = (record.pool_tenant_id, record.pool_id)
        assert where in self.seen_by(tenant)
        assert record.warm == ((where, model) in self.loaded)
        self.held[tenant, record.placement_id] = (where, model)
        self.until[tenant, record.placement_id] = self.seconds + HOLD_SECONDS
        self.memory[where, model] = max(gb, self.memory.get((where, model), 0))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        tenant, placement_id = data.draw(st.sampled_from(sorted(self.held)))
        ended = self.do(self.serving.hand.release(tenant, placement_id))
        assert ended is not None
        assert ended.state is PlacementState.RELEASED
        self._ended((tenant, placement_id))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.held)))
        self.do(self.serving.hand.renew(*name))
        if self.until[name] > self.seconds:
            self.until[name] = self.seconds + HOLD_SECONDS

    @precondition(lambda self: set(self.memory) - self.loaded)
    @rule(data=st.data())
    def load(self, data: st.DataObject) -> None:
        (pool, model) = data.draw(st.sampled_from(sorted(set(self.memory) - self.loaded)))
        self.do(self.serving.load(pool[1], pool[0], model, self.memory[pool, model]))
        self.loaded.add((pool, model))

    @precondition(lambda self: self.loaded - set(self.held.values()))
    @rule(data=st.data())
    def evict(self, data: st.DataObject) -> None:
        idle = data.draw(st.sampled_from(sorted(self.loaded - set(self.held.values()))))
        (tenant_id, pool_id), model = idle
        self.do(
            self.serving.run(
                "DELETE FROM cached_models WHERE tenant_id = :t AND pool_id = :p AND model = :m",
                t=tenant_id,
                p=pool_id,
                m=model,
            )
        )
        self.loaded.discard(idle)
        del self.memory[idle]

    @rule(seconds=st.sampled_from([60, 300, 601]))
    def wait(self, seconds: int) -> None:
        self.clock.move(seconds)
        self.seconds += seconds
        self.do(self.serving.report())

    @rule(limit=st.integers(1, 3))
    def sweep(self, limit: int) -> None:
        async def expire() -> list[model_placements.StoredPlacement]:
            async with self.owner.begin() as connection:
                return await model_placements.expire(connection, self.clock(), limit)

        due = sum(until <= self.seconds for until in self.until.values())
        ended = self.do(expire())
        assert len(ended) == min(due, limit)
        for one in ended:
            assert self.until[one.tenant_id, one.placement_id] <= self.seconds
            self._ended((one.tenant_id, one.placement_id))

    def _ended(self, name: tuple[str, UUID]) -> None:
        what = self.held.pop(name)
        del self.until[name]
        if what not in self.held.values() and what not in self.loaded:
            del self.memory[what]

    @invariant()
    def memory_is_what_it_must_be(self) -> None:
        self.do(self.serving.memory_is_right())
        counted = self.do(
            self.serving.run("SELECT tenant_id, pool_id, committed_vram_gb, vram_gb FROM pool_serving")
        )
        for tenant_id, pool_id, committed, size in counted:
            assert committed == self.used((tenant_id, pool_id)) <= size

    def teardown(self) -> None:
        self.do(self._forget())

    async def _forget(self) -> None:
        async with self.owner.begin() as connection:
            await connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
            for table in metadata.tables:
                await connection.exec_driver_sql(f"DELETE FROM {table}")


def test_memory_is_never_promised_twice(dsn: str) -> None:
    with asyncio.Runner() as runner:
        Memory.runner = runner
        Memory.owner = create_engine(dsn, pool_size=1)
        Memory.tenants = create_engine(dsn, pool_size=1, role="sco_tenant")
        try:
            run_state_machine_as_test(
                Memory,
                settings=settings(
                    max_examples=25,
                    stateful_step_count=30,
                    deadline=None,
                    derandomize=True,
                    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
                ),
            )
        finally:
            runner.run(Memory.owner.dispose())
            runner.run(Memory.tenants.dispose())

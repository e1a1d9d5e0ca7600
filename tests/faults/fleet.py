"""A fleet of several workloads on one lane of the matrix, and what is done for it at the cloud."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from activities.reconcile_calls import ReconcileRequest
from domain.contract import Tier
from domain.reconcile import FleetPhase, ReconcileTerms
from domain.tags import server_tags
from lab.bench.estate import TENANT
from lab.chaos import judge
from lab.chaos.judge import Kept, kept
from lab.chaos.lane import REGION, Lane, servers_of
from lab.chaos.promises import Promises
from lab.chaos.terms import CLOUD_SPEED, Terms
from lab.cloud.cloud import Cloud
from lab.cloud.records import Server, Status
from lab.cloud.wire import Act, ArmedFault, WireFault, WireKind

Scene = Callable[[Lane], Awaitable[list[str]]]
PATIENCE_SECONDS = 20.0
# Soon over, so that an outage is: a look is good for a second.
QUICK = ReconcileTerms(
    cycle_seconds=0.4,
    recovery_cycle_seconds=0.05,
    lapse_seconds=1,
    pace_window_seconds=0.4,
    finds_per_cycle=3,
)
FORGET = (
    "DELETE FROM instances",
    "DELETE FROM reservations",
    "DELETE FROM plan_generations",
    "DELETE FROM placement_decisions",
    "DELETE FROM reconciles",
    "DELETE FROM drifts",
    "UPDATE workloads SET planned_version = 0, generation = 0, phase = 'requested'",
)
FORGET_CLAIMS = ("UPDATE workloads SET claim_version = 0", "DELETE FROM claims")


class Deed(NamedTuple):
    """Something that was done at the cloud, at a real second of its clock."""

    at: float
    what: str
    server_id: str
    workload_id: str


class Fleet:
    """Workloads of one partition on one lane, and what is done for them at the cloud."""

    def __init__(self, lane: Lane, partition_id: str) -> None:
        self.lane = lane
        self.partition_id = partition_id
        self.of: dict[str, Promises] = {}
        self.foreign: dict[str, Kept] = {}
        self.wrong: list[str] = []
        self.pokes: set[str] = set()

    async def add(self, name: str, tier: Tier = Tier.BESPOKE) -> Promises:
        workload_id = f"{self.partition_id}-{name}"
        promises = Promises(self.lane, self.partition_id, workload_id, random.Random(name), watched_share=1)
        promises.pokes = self.pokes
        await promises.register(tier)
        self.of[name] = promises
        return promises

    @property
    def look(self) -> ReconcileRequest:
        return ReconcileRequest(tenant_id=TENANT, partition_id=self.partition_id, region=REGION)

    @property
    def first(self) -> Promises:
        return next(iter(self.of.values()))

    def must(self, holds: object, text: str) -> None:
        if not holds:
            self.wrong.append(text)

    async def within(self, seconds: float, act: Awaitable[object]) -> None:
        """Something that has to end in time."""
        try:
            async with asyncio.timeout(seconds):
                await act
        except TimeoutError:
            self.wrong.append(f"it did not end within {seconds:g} s")

    async def cycles_until(self, phase: FleetPhase, *, quiet: bool = True, pause: float = 0.02) -> int:
        """Cycles until the phase is reached and, with `quiet`, nothing differs; placements as asked for."""
        deadline, number = time.monotonic() + PATIENCE_SECONDS, 0
        while time.monotonic() < deadline:
            done = await self.first.cycle()
            number += 1
            await self.place_poked()
            still = done is not None and not done.drift and not done.backlog
            if done is not None and done.phase is phase and (still or not quiet):
                return number
            await asyncio.sleep(pause)
        self.wrong.append(f"not {phase} within {PATIENCE_SECONDS:g} s: {done}")
        return number

    async def place_poked(self) -> None:
        for promises in self.of.values():
            if promises.poked:
                await promises.place()

    async def lapse(self) -> None:
        await asyncio.sleep(self.lane.terms.reconcile.lapse_seconds + 0.1)

    async def rows(self, query: str, **named: Any) -> list[tuple[Any, ...]]:
        async with self.lane.engine.begin() as connection:
            answer = await connection.execute(sa.text(query), named)
            return [tuple(row) for row in answer] if answer.returns_rows else []

    async def forget(self, *more: str) -> None:
        for statement in (*FORGET, *more):
            await self.rows(statement)

    async def log(self, *actions: str) -> list[tuple[Any, ...]]:
        """When, what, whose and whether paced, in order."""
        return await self.rows(
            "SELECT at, action, workload_id, paced FROM audit_log"
            " WHERE partition_id = :p AND action = ANY(:a) ORDER BY sequence",
            p=self.partition_id,
            a=list(actions),
        )

    # The cloud

    async def at_cloud(self) -> list[Kept]:
        def look(cloud: Cloud) -> list[Kept]:
            return [kept(one) for one in servers_of(cloud, self.partition_id) if one.id not in self.foreign]

        return await asyncio.to_thread(self.lane.cloud.call, look)

    async def alive(self) -> list[Kept]:
        return [one for one in await self.at_cloud() if one.is_alive]

    async def deeds(self) -> list[Deed]:
        """Every create and every delete that was asked for, in the cloud's order and in real seconds."""

        def look(cloud: Cloud) -> list[Deed]:
            return [
                Deed(_real(act.started_at), act.action, one.id, one.metadata["sco_workload"])
                for one in servers_of(cloud, self.partition_id)
                if one.id not in self.foreign
                for act in one.actions
                if act.action in ("create", "delete")
            ]

        return sorted(await asyncio.to_thread(self.lane.cloud.call, look))

    async def take_away(self, count: int, workload_id: str | None = None) -> list[str]:
        """The provider takes running servers."""

        def take(cloud: Cloud) -> list[str]:
            region = cloud.regions[REGION]
            chosen = self._running(cloud, workload_id)[:count]
            for one in chosen:
                region.gone(one, region.now())
            return [one.id for one in chosen]

        return await asyncio.to_thread(self.lane.cloud.call, take)

    async def lose_tags(self, count: int) -> None:
        def strip(cloud: Cloud) -> None:
            for one in self._running(cloud, None)[:count]:
                one.tags = ()
                cloud.regions[REGION].touch(one)

        await asyncio.to_thread(self.lane.cloud.call, strip)

    def _running(self, cloud: Cloud, workload_id: str | None) -> list[Server]:
        return [
            one
            for one in servers_of(cloud, self.partition_id)
            if one.status is Status.ACTIVE
            and one.id not in self.foreign
            and workload_id in (None, one.metadata["sco_workload"])
        ]

    async def leave_over(self, count: int, workload_id: str | None = None) -> list[str]:
        """Servers of known batches beyond their slots, as a call that was carried out twice leaves them."""
        workload_id = workload_id or self.first.workload_id
        rows = await self.rows(
            "SELECT batch_key, pool_id FROM instances"
            " WHERE workload_id = :w AND state = 'active' ORDER BY slot_key LIMIT 1",
            w=workload_id,
        )
        batch, pool_id = rows[0]
        ours = {
            "sco_tenant": TENANT,
            "sco_partition": self.partition_id,
            "sco_workload": workload_id,
            "sco_batch": batch,
            "sco_pool": pool_id,
            "sco_shape": "unknown",
            "sco_units": "1",
            "sco_generation": "1",
        }
        tags = server_tags(self.partition_id, workload_id, "reclaimable")
        return [await asyncio.to_thread(self.lane.put_server, tags, ours) for _ in range(count)]

    async def arm(self, fault: WireFault) -> ArmedFault:
        wire = self.lane.cloud.wire
        return await asyncio.to_thread(self.lane.cloud.call, lambda _: wire.plan.arm(fault))

    async def release_late(self) -> None:
        wire = self.lane.cloud.wire
        await asyncio.to_thread(self.lane.cloud.call, lambda _: wire.release())

    async def disarm(self) -> None:
        wire = self.lane.cloud.wire
        await asyncio.to_thread(self.lane.cloud.call, lambda _: wire.plan.disarm())

    async def at_rest(self) -> None:
        self.wrong += [str(one) for one in await judge.at_rest(self.lane, self.partition_id, self.foreign)]


def _real(at: datetime) -> float:
    return at.timestamp() / CLOUD_SPEED


@asynccontextmanager
async def fleet(lane: Lane, terms: Terms | None = None, **tiers: Tier) -> AsyncIterator[Fleet]:
    """A fleet on an empty lane, with servers of others beside it; both are forgotten afterwards."""
    lane.terms = terms or Terms(reconcile=QUICK)
    await lane.reset()
    own = Fleet(lane, f"scene-{next(lane.numbers)}")
    await lane.open_partition(own.partition_id)
    for name, tier in (tiers or {"orders": Tier.BESPOKE}).items():
        await own.add(name, tier)
    placed = await asyncio.to_thread(lane.place_foreign, own.partition_id, own.first.workload_id)
    servers = await asyncio.to_thread(
        lane.cloud.call, lambda cloud: [cloud.regions[REGION].servers.get(one) for one in placed]
    )
    own.foreign = {one.id: kept(one) for one in servers if one is not None}
    try:
        yield own
        now = await asyncio.to_thread(
            lane.cloud.call,
            lambda cloud: {
                one.id: kept(one) for one in cloud.regions[REGION].servers.all() if one.id in own.foreign
            },
        )
        own.must(now == own.foreign, "servers of others were touched")
    finally:
        await own.disarm()
        for promises in own.of.values():
            promises.end()
            await asyncio.to_thread(promises.close)


async def placed(own: Fleet, units: int = 6) -> None:
    """Every workload placed and nothing to put right."""
    await own.first.license()
    for promises in own.of.values():
        await promises.place(units)
    await own.cycles_until(FleetPhase.NORMAL)


def fault(act: Act, kind: WireKind, *, times: int | None, delay_seconds: float = 1.0) -> WireFault:
    return WireFault(act=act, kind=kind, times=times, delay_seconds=delay_seconds, region=REGION)

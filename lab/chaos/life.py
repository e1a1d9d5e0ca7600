"""The life of one workload under one fault: placed, grown, shrunk and given back."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import psycopg

from domain.reconcile import FleetPhase
from lab.bench.estate import TENANT
from lab.chaos import judge
from lab.chaos.arming import Armed, Victims, arm
from lab.chaos.judge import Breach, Broken, Kept, Witness, kept
from lab.chaos.lane import REGION, Lane, servers_of
from lab.chaos.promises import WATCHED_SHARE, Promises
from lab.chaos.table import IN_BODY, Cell, Fault, costs_time_only, may_be_made_twice
from lab.chaos.terms import READ_TIMEOUT_SECONDS, SHORT_READ_TIMEOUT_SECONDS
from lab.cloud.cloud import Cloud
from lab.cloud.records import Status
from lab.cloud.wire import Act
from store import quota_holds, workloads
from store.tables import Phase

# After the fault is over, so much must be enough.
MAX_CYCLES, MAX_PLACEMENTS = 80, 12
CASE_SECONDS = 60.0
MAX_DEATHS = 3
# How long a fault may be waited for that the life has passed by.
MORE_ROUNDS = 3
LATE_SECONDS = 5.0


class Stage:
    """Where in a life a fault is armed."""

    LICENSE, PLACE, LOOK, LOSE, GROW, SHRINK = "license", "place", "look", "lose", "grow", "shrink"


_STAGES: dict[Act, tuple[str, ...]] = {
    Act.CREATE: (Stage.PLACE, Stage.GROW),
    Act.LIST: (Stage.PLACE, Stage.LOOK, Stage.GROW, Stage.SHRINK),
    Act.DELETE: (Stage.SHRINK,),
    Act.TOKEN: (Stage.LICENSE, Stage.PLACE, Stage.LOOK, Stage.SHRINK),
    Act.FIND: (Stage.LOSE,),
    Act.DELETED_SINCE: (Stage.LOSE,),
    Act.TAG: (Stage.LOSE,),
}
# Steps that nobody takes unless servers are missing.
LOSSES = (Act.FIND, Act.DELETED_SINCE, Act.TAG)
_NEED_SERVERS = (Fault.TAKEN_AWAY, Fault.TURNS_TO_ERROR, Fault.LOSES_TAGS)
_SILENT = (Fault.SILENT_BEFORE, Fault.SILENT_AFTER)


@dataclass
class Outcome:
    """How a case went."""

    cell: Cell
    seed: int
    broken: list[Broken] = field(default_factory=list)
    fired: int = 0
    deaths: int = 0
    cycles: int = 0
    seconds: float = 0.0
    rate_used: float = 0.0

    @property
    def passed(self) -> bool:
        return not self.broken


class Life:
    """One case. Everything random comes from its seed; `stage` fixes where the fault is armed."""

    def __init__(
        self,
        lane: Lane,
        cell: Cell,
        seed: int,
        *,
        deaths: int = MAX_DEATHS,
        stage: str | None = None,
    ) -> None:
        self.lane = lane
        self.cell = cell
        self.rng = random.Random(f"{cell.fault.name}/{cell.step}/{seed}")
        number = next(lane.numbers)
        self.promises = Promises(
            lane,
            f"chaos-{number}",
            f"orders-{number}",
            self.rng,
            deaths=deaths,
            watched_share=WATCHED_SHARE if deaths else 0,
            read_timeout_seconds=(
                SHORT_READ_TIMEOUT_SECONDS if cell.fault in _SILENT else READ_TIMEOUT_SECONDS
            ),
        )
        self.partition_id = self.promises.partition_id
        self.outcome = Outcome(cell, seed)
        self.armed: Armed | None = None
        self.foreign: dict[str, Kept] = {}
        self.struck: set[str] = set()
        self.placements = 0
        stages = _STAGES[cell.step]
        if cell.fault in _NEED_SERVERS:
            stages = tuple(one for one in stages if one not in (Stage.LICENSE, Stage.PLACE))
        self.armed_in = stage or self.rng.choice(stages)

    async def run(self) -> Outcome:
        """Live through every stage; what is broken is in the outcome, whatever happens."""
        began, started = time.monotonic(), time.perf_counter()
        try:
            async with asyncio.timeout(CASE_SECONDS):
                await self._live()
                await self._settle()
                await self._leave()
        except TimeoutError:
            self._break(Breach.UNSETTLED, f"it did not end within {CASE_SECONDS:g} s")
        finally:
            self.promises.end()
            if self.armed is not None:
                await asyncio.to_thread(self.armed.disarm)
        self.outcome.broken += await asyncio.to_thread(self._verdict, began)
        self.outcome.deaths = self.promises.deaths
        await asyncio.to_thread(self.promises.close)
        await asyncio.to_thread(self.lane.empty)
        self.outcome.seconds = time.perf_counter() - started
        return self.outcome

    # Stages

    async def _live(self) -> None:
        promises, rng = self.promises, self.rng
        await self._prepare()
        async with self._stage(Stage.LICENSE):
            await promises.license()
        async with self._stage(Stage.PLACE):
            await promises.place(rng.randint(6, 9))
        async with self._stage(Stage.LOOK):
            for _ in range(rng.randint(1, 2)):
                await promises.cycle()
        if self.cell.step in LOSSES:
            await self._lose()
        async with self._stage(Stage.GROW):
            await promises.place(rng.randint(10, 13))
        async with self._stage(Stage.SHRINK):
            await promises.place(rng.randint(3, 6))
        await promises.cycle()
        await self._until_fired()

    async def _until_fired(self) -> None:
        """A life that passed the fault by, because a process died at that moment, goes on a little."""
        for _ in range(MORE_ROUNDS):
            if self.armed is None or await asyncio.to_thread(self.armed.fired) > 0:
                return
            if self.cell.step in LOSSES:
                await self._lose()
            await self.promises.place(self.rng.randint(10, 13))
            await self.promises.place(self.rng.randint(3, 6))
            await self.promises.cycle()

    async def _prepare(self) -> None:
        await self.lane.open_partition(self.partition_id)
        await self.promises.register()
        placed = await asyncio.to_thread(
            self.lane.place_foreign, self.partition_id, self.promises.workload_id
        )
        self.foreign = await asyncio.to_thread(self.lane.cloud.call, lambda cloud: _kept(cloud, placed))

    @asynccontextmanager
    async def _stage(self, name: str) -> AsyncIterator[None]:
        """One stage, under the fault when it is its turn."""
        if name == self.armed_in and self.armed is None:
            await asyncio.to_thread(self._arm)
        yield

    def _arm(self) -> None:
        if self.cell.step is Act.TOKEN:
            self.lane.cloud.admin.expire_tokens()
        ours = {"sco_partition": self.partition_id, "sco_tenant": TENANT}
        victims = Victims(ours, frozenset(self.foreign))
        self.armed = arm(self.lane.cloud, self.cell, self.rng, REGION, victims)

    async def _lose(self) -> None:
        """The provider takes servers away, or their tags, and the next cycles find out."""
        count = self.lane.terms.reconcile.finds_per_cycle + 1 if self.cell.step is Act.DELETED_SINCE else 2
        # Only of a server that exists is there more to say than that it does not.
        tags_only = self.cell.step is Act.TAG or (self.cell.step is Act.FIND and self.cell.fault in IN_BODY)
        await asyncio.to_thread(self._take_away, count, tags_only=tags_only)
        async with self._stage(Stage.LOSE):
            for _ in range(4):
                await self.promises.cycle()
                await self._pause()
        if self.promises.poked:
            await self.promises.place()

    def _take_away(self, count: int, *, tags_only: bool) -> None:
        def act(cloud: Cloud) -> list[str]:
            region = cloud.regions[REGION]
            running = [
                one
                for one in servers_of(cloud, self.partition_id)
                if one.status is Status.ACTIVE and one.id not in self.foreign
            ]
            chosen = self.rng.sample(running, min(count, len(running)))
            for one in chosen:
                if tags_only:
                    one.tags = ()
                    region.touch(one)
                else:
                    region.gone(one, region.now())
            return [one.id for one in chosen]

        self.struck.update(self.lane.cloud.call(act))

    # The end

    async def _settle(self) -> None:
        """The provider is well again: a bounded number of cycles and placements puts everything right."""
        assert self.armed is not None, f"no stage arms {self.cell}"
        await asyncio.to_thread(self._heal)
        # As the next observation does, which sees that the quota has room.
        async with self.lane.engine.begin() as connection:
            await quota_holds.clear(connection, TENANT, REGION)
        problems: list[Broken] = []
        for number in range(1, MAX_CYCLES + 1):
            self.outcome.cycles = number
            quiet = await self._quiet_cycle()
            if quiet or number % 5 == 0:
                problems = await self._problems()
                if quiet and not problems:
                    return
            if (problems or self.promises.poked) and self.placements < MAX_PLACEMENTS:
                self.placements += 1
                await self.promises.place()
                problems = []
            await self._pause()
        self._break(Breach.UNSETTLED, f"not at rest after {MAX_CYCLES} cycles")
        self.outcome.broken += problems

    async def _quiet_cycle(self) -> bool:
        """Whether a cycle had nothing to put right."""
        done = await self.promises.cycle()
        return done is not None and not done.drift and not done.backlog and done.phase is FleetPhase.NORMAL

    def _heal(self) -> None:
        """The fault is over, and what was accepted is carried out."""
        assert self.armed is not None, "a fault is armed"
        self.outcome.fired = self.armed.fired()
        self.struck.update(self.armed.struck())
        self.armed.disarm()
        if not self.outcome.fired:
            self._break(Breach.NOT_FIRED, f"{self.cell} did not come true")
        deadline = time.monotonic() + LATE_SECONDS
        while self.lane.cloud.wire.late and time.monotonic() < deadline:
            time.sleep(0.02)

    async def _leave(self) -> None:
        """Everything is given back."""
        await self.promises.place(0)
        for _ in range(MAX_CYCLES):
            if not await asyncio.to_thread(self._alive):
                return
            await self.promises.cycle()
            await self._pause()

    def _alive(self) -> int:
        def count(cloud: Cloud) -> int:
            ours = servers_of(cloud, self.partition_id)
            return sum(one.status is not Status.DELETED and one.id not in self.foreign for one in ours)

        return self.lane.cloud.call(count)

    async def _pause(self) -> None:
        await asyncio.sleep(self.lane.terms.reconcile.recovery_cycle_seconds)

    async def _problems(self) -> list[Broken]:
        found = await judge.at_rest(self.lane, self.partition_id, self.foreign)
        workload_id = self.promises.workload_id
        async with self.lane.engine.connect() as connection:
            workload = await workloads.find_workload(connection, TENANT, workload_id)
        if workload["phase"] != Phase.PLACED:
            missing = f"{workload['shortfall_units']} missing: {workload['shortfall_reason']}"
            found.append(Broken(Breach.UNSETTLED, f"{workload_id} is {workload['phase']}, {missing}"))
        return found

    def _verdict(self, began: float) -> list[Broken]:
        with psycopg.connect(self.lane.dsn) as connection:
            rows = judge.rows_of(connection, self.partition_id)
        seen = Witness(
            self.lane,
            self.partition_id,
            self.foreign,
            frozenset(self.struck),
            began,
            time_only=costs_time_only(self.cell),
            once_only=not (may_be_made_twice(self.cell) or self.promises.overlapped),
        )
        self.outcome.rate_used = judge.rate_used(self.lane, began)
        return judge.verdict(seen, rows)

    def _break(self, breach: Breach, text: str) -> None:
        self.outcome.broken.append(Broken(breach, text))


def _kept(cloud: Cloud, server_ids: list[str]) -> dict[str, Kept]:
    servers = cloud.regions[REGION].servers
    return {one.id: kept(one) for one in map(servers.get, server_ids) if one is not None}

"""Drains past schedulers that hang, fail or lie, and by clocks that are wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent.clock import ProviderClock, SystemClock
from agent.deadline import DeadlineFile, first_sight, workload_budget
from agent.drain.drains import Drains
from agent.drain.executor import Limits, Surroundings
from agent.drain.ports import Deadline, SchedulerUnreachable, Work
from agent.drain_record import DrainRecord
from agent.files import Writer
from agent.metrics import AgentMetrics
from agent.verifier import edge
from domain.drain import Kind, Memory, Said, decide
from tests.agent.rig import notice
from wire.bundle import DrainOrders, DrainPath, DrainSignal
from wire.lifecycle import EventType
from wire.notices import Notice

ORDERS = DrainOrders(path=DrainPath.KUBERNETES, budget_seconds=115, signal=DrainSignal.USR1)
POD = Work("pod", "a", ())


class Driver:
    """A system that takes note of what it is asked; `bad` names the calls that hang or fail."""

    def __init__(self, name: str, *, hangs: str = "", fails: str = "", stays: bool = False) -> None:
        self.signals_again = name == "kubernetes"
        self.name, self._hangs, self._fails = name, hangs.split(), fails.split()
        self.asked: list[str] = []
        self.let_go = asyncio.Event()
        self.ended: list[str] = []
        self.work: tuple[Work, ...] = (POD,)
        self._stays = stays

    def mend(self) -> None:
        """Let every call succeed from now on."""
        self._hangs, self._fails = [], []

    @property
    def calls(self) -> list[str]:
        return [name for name in self.asked if name != "left"]

    async def _ask(self, call: str) -> None:
        self.asked.append(call)
        if call in self._fails:
            raise SchedulerUnreachable(f"{call} failed")
        if call in self._hangs:
            try:
                await asyncio.sleep(3600)
            finally:
                # It does not even let itself be cancelled.
                await self.let_go.wait()
                self.ended.append(call)

    async def cordon(self, owner: str, until: datetime) -> None:
        await self._ask("cordon")

    async def signal(self, orders: DrainOrders, deadline: Deadline) -> None:
        assert orders.budget_seconds <= max(1.0, deadline.remaining_seconds())
        await self._ask("signal")
        self.work = self.work if self._stays else ()

    async def left(self) -> tuple[Work, ...]:
        await self._ask("left")
        return self.work

    async def force(self, work: Sequence[Work]) -> None:
        await self._ask("force")
        self.work = ()

    async def finish(self, orders: DrainOrders) -> None:
        await self._ask("finish")

    async def uncordon(self, owner: str) -> None:
        await self._ask("uncordon")


class Scheduler(Driver):
    """A driver that offers a local path of its own."""

    def __init__(self, local: Driver, **bad: Any) -> None:
        super().__init__("kubernetes", **bad)
        self._local = local

    def local(self) -> Driver:
        return self._local


class Plain(Driver):
    """A driver that finds the work when it signals, and says afterwards what it found."""

    def __init__(self, **bad: Any) -> None:
        super().__init__("plain", **bad)
        self._told: tuple[Work, ...] = ()

    async def signal(self, orders: DrainOrders, deadline: Deadline) -> None:
        found = self.work
        await super().signal(orders, deadline)
        self._told = found

    def told(self) -> tuple[Work, ...]:
        return self._told


class Told:
    def __init__(self) -> None:
        self.events: list[tuple[EventType, dict[str, Any]]] = []

    def tell(self, type: EventType, **fields: Any) -> None:
        self.events.append((type, fields))

    @property
    def story(self) -> list[str]:
        return [str(type) for type, _ in self.events]


class Bench:
    """Drains of one node around given drivers."""

    def __init__(self, folder: Path, driver: Driver, *, lives_on_seconds: float = 60) -> None:
        self.told = Told()
        self.announced: list[Notice | None] = []
        self.clock = SystemClock()
        self.provider = ProviderClock(self.clock)
        self.kept = DrainRecord(folder, folder, self._failed, self.clock, self.provider)
        around = Surroundings(
            kept=self.kept,
            record=self.told,
            file=DeadlineFile(folder / "deadline", Writer(self._failed), self.clock),
            clock=self.clock,
            now=self.clock.wall,
            metrics=AgentMetrics(),
            limits=Limits(scheduler_seconds=0.4, lives_on_seconds=lives_on_seconds),
        )
        self.drains = Drains(
            around, self.provider, lambda path: driver, lambda: Driver("plain"), self._announced
        )

    def _announced(self, notice: Notice | None, deadline: object) -> None:
        self.announced.append(notice)

    def _failed(self, name: str) -> None:
        raise AssertionError(f"{name} was not written")

    def begin(self, said: Notice) -> None:
        one = Said(said.notice_id, Kind(said.kind), said.issued_at, said.deadline)
        decision = decide(Memory(), one, drain_on_advisory=False, not_before=None)
        self.drains.begin(said, ORDERS, decision.memory)

    async def until(self, holds: Callable[[], object]) -> None:
        for _ in range(2000):
            if holds():
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"not within 20 s; told: {self.told.story}")

    async def finished(self) -> None:
        await self.until(lambda: self.kept.saved.drain and self.kept.saved.drain.phase == "finished")


@asynccontextmanager
async def bench(folder: Path, driver: Driver, **limits: float) -> AsyncIterator[Bench]:
    one = Bench(folder, driver, **limits)
    try:
        yield one
    finally:
        driver.let_go.set()
        await one.drains.close()
        await one.kept.close()


async def test_work_that_nobody_could_see_is_told_as_soon_as_somebody_can(tmp_path: Path) -> None:
    local = Driver("kubernetes", fails="signal left")
    driver = Scheduler(local, fails="cordon left")
    async with bench(tmp_path, driver) as one:
        one.begin(notice("i-1", 30))
        await one.until(lambda: local.asked.count("signal") > 1)
        assert one.told.story == ["notice"]
        local.mend()
        await one.finished()
        assert one.told.story == ["notice", "signalled", "drained"]


async def test_a_scheduler_that_answers_is_the_only_one_asked(tmp_path: Path) -> None:
    local = Driver("kubernetes")
    driver = Scheduler(local)
    async with bench(tmp_path, driver) as one:
        one.begin(notice("i-1", 30))
        await one.finished()
        assert driver.calls == ["cordon", "signal", "finish"]
        assert local.asked == []
        assert one.told.story == ["notice", "signalled", "work_ended", "drained"]


@pytest.mark.parametrize("bad", [{"hangs": "cordon left"}, {"fails": "cordon left"}])
async def test_a_scheduler_that_does_not_answer_is_passed_by_within_its_limit(
    tmp_path: Path, bad: dict[str, str]
) -> None:
    local = Driver("kubernetes")
    driver = Scheduler(local, **bad)
    async with bench(tmp_path, driver) as one:
        one.begin(notice("i-1", 30))
        await one.finished()
        assert local.calls == ["signal"]
        assert "signal" not in driver.calls
        assert driver.ended == [], "a call that hangs was waited for"
        signalled = dict(one.told.events)[EventType.SIGNALLED]
        assert signalled["path"] == "kubernetes-local"


@pytest.mark.parametrize("bad", [{"hangs": "signal"}, {"fails": "signal"}])
async def test_a_signal_that_fails_is_given_by_the_local_path(tmp_path: Path, bad: dict[str, str]) -> None:
    local = Driver("kubernetes")
    driver = Scheduler(local, **bad)
    async with bench(tmp_path, driver) as one:
        one.begin(notice("i-1", 30))
        await one.finished()
        assert local.calls == ["signal"]
        assert one.told.story[-1] == "drained"


async def test_nothing_is_drained_while_nobody_says_what_is_left(tmp_path: Path) -> None:
    driver = Scheduler(Driver("kubernetes", fails="left"), fails="left")
    async with bench(tmp_path, driver) as one:
        one.begin(notice("i-1", 3.5))
        await one.until(lambda: "overrun" in one.told.story)
        assert "drained" not in one.told.story
        assert "nobody can say" in dict(one.told.events)[EventType.OVERRUN]["detail"]


async def test_a_force_that_fails_is_done_by_the_local_path(tmp_path: Path) -> None:
    local = Driver("kubernetes")
    driver = Scheduler(local, stays=True, fails="force")
    async with bench(tmp_path, driver) as one:
        one.begin(notice("i-1", 3))
        await one.until(lambda: "force" in local.calls)
        assert "overrun" in one.told.story


async def test_work_that_ends_at_its_signal_is_told_though_nobody_looked_before(tmp_path: Path) -> None:
    async with bench(tmp_path, driver := Plain()) as one:
        one.begin(notice("i-1", 30))
        await one.finished()
        assert driver.asked[:3] == ["cordon", "signal", "left"]
        assert one.told.story == ["notice", "signalled", "work_ended", "drained"]


async def test_a_signal_that_failed_has_not_ended_the_work(tmp_path: Path) -> None:
    async with bench(tmp_path, driver := Plain(fails="signal", stays=True)) as one:
        one.begin(notice("i-1", 30))
        await one.until(lambda: driver.asked.count("left") >= 3)
        assert one.told.story == ["notice", "signalled"]


async def test_a_withdrawal_takes_back_the_mark_that_was_made(tmp_path: Path) -> None:
    local = Driver("kubernetes")
    driver = Scheduler(local, stays=True)
    async with bench(tmp_path, driver) as one:
        said = notice("i-1", 60)
        one.begin(said)
        await one.until(lambda: "signalled" in one.told.story)
        one.drains.withdraw(said, Memory())
        uncordoning = asyncio.ensure_future(one.drains.run_uncordoning())
        await one.until(lambda: "uncordon" in driver.calls and not one.kept.saved.to_uncordon)
        uncordoning.cancel()
        assert "uncordon" in local.calls
        assert "force" not in driver.calls
        assert one.told.story[-1] == "withdrawn"


class FixedClock:
    """A node's clocks at one moment; the wall is wrong by whatever the test says."""

    def __init__(self, wall: datetime) -> None:
        self._wall = wall

    def boot(self) -> float:
        return 1000.0

    def wall(self) -> datetime:
        return self._wall


@pytest.mark.parametrize("wrong_by", [timedelta(0), timedelta(hours=1), timedelta(hours=-1)])
@pytest.mark.parametrize("is_measured", [True, False])
def test_a_wrong_clock_neither_lengthens_nor_shortens_a_drain(wrong_by: timedelta, is_measured: bool) -> None:
    now = datetime(2030, 1, 1, 12, tzinfo=UTC)
    clock = FixedClock(now + wrong_by)
    provider = ProviderClock(clock)
    if is_measured:
        provider.measure(now, 1000.0, 1000.0)
    said = notice("i-1", 120, now=now)
    assert said.deadline is not None
    assert 119 <= first_sight(said.deadline, said.issued_at, clock, provider) - 1000 <= 120


def test_a_notice_that_was_long_under_way_leaves_what_the_providers_clock_says() -> None:
    now = datetime(2030, 1, 1, 12, tzinfo=UTC)
    clock = FixedClock(now + timedelta(hours=1))
    provider = ProviderClock(clock)
    provider.measure(now, 1000.0, 1000.0)
    said = notice("i-1", 120, now=now - timedelta(seconds=30))
    assert said.deadline is not None
    assert first_sight(said.deadline, said.issued_at, clock, provider) - 1000 == pytest.approx(89.5)


@pytest.mark.parametrize("wall_off", [0, 3600])
def test_a_provider_whose_clock_is_ahead_ends_no_drain_that_the_wall_clock_lets_stand(wall_off: int) -> None:
    now = datetime(2030, 1, 1, 12, tzinfo=UTC)
    clock = FixedClock(now + timedelta(seconds=wall_off))
    provider = ProviderClock(clock)
    provider.measure(now + timedelta(seconds=500), 1000.0, 1000.0)
    said = notice("i-1", 120, now=now)
    assert said.deadline is not None
    left = first_sight(said.deadline, said.issued_at, clock, provider) - 1000
    assert left == pytest.approx(-380.5 if wall_off else 120)


@pytest.mark.parametrize("is_known", [True, False])
async def test_clocks_that_are_set_in_a_drain_do_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    async with bench(tmp_path, Driver("plain", stays=True)) as one:
        now, boot = one.clock.wall(), one.clock.boot()
        if is_known:
            one.provider.measure(now, boot, boot)
        one.begin(notice("i-1", 30, now=now))
        ahead = now + timedelta(hours=3)
        monkeypatch.setattr(one.clock, "wall", lambda: ahead, raising=False)
        for _ in range(9):
            one.provider.measure(ahead, boot, boot)
            one.drains.clock_was_measured()
        assert one.drains.deadline is not None
        # A drain that began by no time but that of its notice is told of one that is over.
        assert (one.drains.deadline.remaining_seconds() > 20) is is_known


def test_a_provider_at_the_end_of_the_calendar_tells_no_time() -> None:
    clock = FixedClock(datetime(2030, 1, 1, tzinfo=UTC))
    provider = ProviderClock(clock)
    provider.measure(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC), 999.0, 999.0)
    assert provider.now() is None
    assert provider.offset_seconds() is None


def test_one_answer_with_a_wrong_date_moves_nothing() -> None:
    now = datetime(2030, 1, 1, 12, tzinfo=UTC)
    provider = ProviderClock(FixedClock(now))
    for wrong in (0, 0, 0, 3600):
        provider.measure(now + timedelta(seconds=wrong), 1000.0, 1000.0)
    assert provider.now() == now + timedelta(seconds=0.5)


@pytest.mark.parametrize(
    ("budget", "remaining", "expected"),
    [(115, 120, 115), (115, 60.9, 57), (30, 120, 30), (115, 2, 1), (9, -5, 1)],
)
def test_the_budget_of_work_is_never_below_a_second(budget: int, remaining: float, expected: int) -> None:
    assert workload_budget(budget, remaining) == expected


@pytest.mark.parametrize(("remaining", "expected"), [(120, 2), (3, 2), (2.5, 1.5), (1, 0.5), (-1, -0.5)])
def test_what_is_forced_was_told_before(remaining: float, expected: float) -> None:
    assert edge(remaining) == pytest.approx(expected)
